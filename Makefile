# Every target sets up its own .venv when it is missing or older than pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODELS ?= examples/models

# Clients of other people, for the tests of conformance.
CLIENTS := tests/e2e/clients
KSERVE := .venv-kserve
PERF_ANALYZER := .cache/perf_analyzer/perf_analyzer

.PHONY: demo serve test test-unit test-core check soak bench format fetch-kserve fetch-perf-analyzer try-perf-analyzer clean

PROTOS := protos/google/rpc/status.proto protos/inference/grpc_service.proto protos/inference/model_config.proto protos/moorage/v1/admin.proto protos/moorage/v1/batch.proto

$(VENV)/.dev: pyproject.toml $(PROTOS) protos/build_hook.py
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(KSERVE)/.ready: $(CLIENTS)/kserve.txt
	@test -d $(KSERVE) || $(PYTHON) -m venv $(KSERVE)
	@echo "Installing KServe's client into $(KSERVE) (a minute the first time)"
	@$(KSERVE)/bin/pip install --quiet --disable-pip-version-check --no-compile --requirement $<
	@touch $@

$(PERF_ANALYZER): $(CLIENTS)/fetch_perf_analyzer.sh | $(VENV)/.dev
	@echo "Fetching perf_analyzer into $(@D)"
	@bash $< $(BIN)/python $(@D)

demo: $(VENV)/.dev  ## real models, real answers, in a minute
	@HF_HUB_OFFLINE=1 $(BIN)/python -m examples.demo

serve: $(VENV)/.dev  ## serve examples/models, or MODELS=…
	$(BIN)/moorage serve --models $(MODELS) --budget 2GiB

check: $(VENV)/.dev  ## style, types, and which room may import which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fetch-kserve: $(KSERVE)/.ready  ## KServe's client, in an environment of its own
fetch-perf-analyzer: $(PERF_ANALYZER)  ## NVIDIA's load generator; Linux on x86-64, with apt

try-perf-analyzer: $(VENV)/.dev
	@$(MAKE) --no-print-directory fetch-perf-analyzer || echo "No perf_analyzer: its tests are skipped"

test:  ## everything that a machine without a GPU can show
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=line check fetch-kserve try-perf-analyzer
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target test-unit test-core
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest --ignore tests/unit --ignore tests/properties --ignore tests/simulation $(addprefix --ignore ,$(UNTIMED))

# None of them measures time, so that they may run side by side.
UNTIMED := tests/integration/test_runtimes.py tests/integration/test_varying_inputs.py tests/integration/cases/test_b40_pickle.py tests/integration/cases/test_batch_service.py tests/e2e/test_batch_cli.py

test-unit: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/unit --cov --cov-report=term:skip-covered

test-core: $(VENV)/.dev
	$(BIN)/python -m pytest tests/properties tests/simulation
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest $(UNTIMED)

soak: $(VENV)/.dev  ## twenty times as many random worlds, and the trials of memory and load in full; an hour
	TEST_EXAMPLES=40000 $(BIN)/python -m pytest tests/properties tests/simulation tests/gpu
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.integration.memory.six_models
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.integration.memory.preemption long
	$(BIN)/python -m tests.integration.memory.profiles
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.integration.load.overload
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.integration.load.fair_shares
	HF_HUB_OFFLINE=1 TEST_EXAMPLES=40000 $(BIN)/python -m pytest tests/integration/cases/test_batches.py --timeout 1800

bench: $(VENV)/.dev  ## beside a raw grpc.aio server, the core alone, priorities, streams and batches; a quarter of an hour
	$(BIN)/python -m benchmarks.hot_path
	$(BIN)/python -m benchmarks.scheduler_core
	$(BIN)/python -m benchmarks.disb
	$(BIN)/python -m benchmarks.streams
	$(BIN)/python -m benchmarks.long_batch

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(KSERVE) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
