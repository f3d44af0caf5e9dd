# Every target sets up its own .venv when it is missing or older than pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODELS ?= examples/models

.PHONY: demo serve test check bench format fetch-perf-analyzer clean

$(VENV)/.dev: pyproject.toml protos/inference/grpc_service.proto protos/inference/model_config.proto protos/build_hook.py
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.dev  ## real models, real answers, in a minute
	@HF_HUB_OFFLINE=1 $(BIN)/python -m examples.demo

serve: $(VENV)/.dev  ## serve examples/models, or MODELS=…
	$(BIN)/moorage serve --models $(MODELS) --budget 2GiB

check: $(VENV)/.dev  ## style, types, and which room may import which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check  ## everything that a machine without a GPU can show
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest

bench: $(VENV)/.dev  ## against a raw grpc.aio server, in one run
	$(BIN)/python -m benchmarks.hot_path

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
