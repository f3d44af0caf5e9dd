"""A request that finds no memory on its model's device is computed elsewhere, and nobody else notices.

The card is not there: its models take and give texts, which never go to a device, and torch's part is played.
"""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from moorage_client import ModelStatus, MoorageClientError, Overloaded, SyncClient
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import write_python_model, write_simulated_model

CARD = "cuda:0"
IDLE = ("idle", "other_idle")

# Texts that begin with "large" find no memory on a card, those with "huge" nowhere; "large wrong" fails on the host.
# Says where it was computed, and how many buffers of failed runs are still there, though it keeps the exceptions.
_PICKY = """
    import weakref
    import torch
    from moorage import Model

    vars(torch.cuda).pop("use_mem_pool", None)
    torch.cuda.empty_cache = lambda: None
    torch.cuda.memory_stats_as_nested_dict = lambda device: {}
    torch.cuda.reset_peak_memory_stats = lambda device: None
    torch.cuda.memory_allocated = torch.cuda.memory_reserved = lambda device: 0
    torch.cuda.max_memory_allocated = torch.cuda.max_memory_reserved = lambda device: 0

    class Picky(Model):
        def load(self, context):
            if context.device in context.parameters.get("broken_on", ()):
                raise RuntimeError("it does not build there")
            self.device = context.device
            self.failed, self.errors = [], []

        def infer(self, inputs, batch):
            alive = sum(buffer() is not None for buffer in self.failed)
            try:
                self.allocate([text.decode() for text in inputs["x"]])
            except MemoryError as error:
                self.errors.append(error)
                raise
            return {"y": [f"{self.device} {text.decode()} {alive}".encode() for text in inputs["x"]]}

        def allocate(self, texts):
            buffer = torch.ones(2**20)
            refused = ("huge",) if self.device == "cpu" else ("large", "huge")
            if self.device == "cpu" and "large wrong" in texts:
                raise ValueError("no such text")
            if any(text.startswith(refused) for text in texts):
                self.failed.append(weakref.ref(buffer))
                raise MemoryError
"""
_PLACED = f'[placement]\ndevices = ["{CARD}"]\n'
_FALLBACK = f'{_PLACED}fallback = "cpu"\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("fallback")
    _write(folder, "picky", _FALLBACK)
    _write(folder, "alone", _PLACED)
    _write(folder, "anywhere", "")
    _write(folder, "broken", _FALLBACK + '[parameters]\nbroken_on = ["cpu"]\n')
    _write(folder, "lonely", _PLACED)
    for name in IDLE:
        extra = f'[memory]\nweights = "64 MiB"\n{_PLACED}'
        write_simulated_model(folder / "models", name, run_s=0.0, load_s=0.0, extra=extra)
    variables = {
        "MOORAGE_DEVICES__CUDA_0__BUDGET": "1 GiB",
        "MOORAGE_DEVICES__CUDA_0__CONTEXT": "0 B",
        "MOORAGE_DEVICES__CUDA_0__HOST_BUDGET": "1 GiB",
        "MOORAGE_SERVER__FOOTPRINTS": "off",
        "MOORAGE_SERVER__MIN_RESIDENCY_S": "0",
    }
    with running_server(folder / "models", folder, environment=variables) as server:
        with SyncClient(server.grpc) as client:
            client.wait_until_ready(timeout_s=50.0, models=("picky", "alone", "broken", "lonely", *IDLE))
        yield server


def _write(folder: Path, name: str, extra: str) -> None:
    write_python_model(folder / "models", name, _PICKY, datatype="BYTES", shape="[1]", max_batch_size=16, extra=extra)


@pytest.fixture
def client(server: RunningServer) -> Iterator[SyncClient]:
    with SyncClient(server.grpc, attempts=1) as client:
        yield client


def _ask(client: SyncClient, model: str, *texts: str) -> list[str]:
    x = np.array([[text.encode()] for text in texts], dtype=np.object_)
    y = client.infer(model, {"x": x}, timeout_s=30.0)["y"]
    return [text.decode() for text in y[:, 0]]


def _status(client: SyncClient, name: str) -> ModelStatus:
    return next(model for model in client.snapshot().models if model.name == name)


def test_what_finds_no_memory_on_the_card_is_computed_on_the_host(client: SyncClient) -> None:
    assert _ask(client, "picky", "small") == [f"{CARD} small 0"]
    assert _ask(client, "picky", "large") == ["cpu large 0"]
    assert _ask(client, "picky", "small") == [f"{CARD} small 0"], "nothing of what failed is left"
    picky = _status(client, "picky")
    assert (picky.device, picky.state) == (CARD, "resident")
    (understudy,) = picky.understudies
    assert (understudy.device, understudy.state) == ("cpu", "resident")
    assert picky.residency_counts.oom_fallback >= 1
    assert picky.residency_counts.oom_refused == 0


def test_what_finds_none_anywhere_is_refused_alone_and_says_what_was_tried(client: SyncClient) -> None:
    with pytest.raises(Overloaded, match=f"a run of 1 rows of model 'picky' found no memory on {CARD} nor on cpu"):
        _ask(client, "picky", "huge")
    assert _ask(client, "picky", "small", "also small") == [f"{CARD} small 0", f"{CARD} also small 0"]
    assert _status(client, "picky").residency_counts.oom_refused >= 1


def test_what_goes_wrong_on_the_host_is_told_as_it_is_and_not_to_be_tried_again(client: SyncClient) -> None:
    before = _status(client, "picky").residency_counts
    with pytest.raises(MoorageClientError, match="inference failed in model 'picky', error id ") as failed:
        _ask(client, "picky", "large wrong")
    assert failed.value.code == "INTERNAL"
    after = _status(client, "picky").residency_counts
    assert (after.oom_fallback, after.oom_refused) == (before.oom_fallback + 1, before.oom_refused)


def test_everybody_gets_their_own_answer(server: RunningServer, client: SyncClient) -> None:
    chance = random.Random(4)
    asked = [f"{chance.choice(('small', 'small', 'small', 'large', 'huge'))} {number}" for number in range(300)]

    def ask(text: str) -> str:
        try:
            (answer,) = _ask(client, "picky", text)
        except MoorageClientError as error:
            return f"{error.code} {text}"
        return answer

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, asked))
    where = {"small": CARD, "large": "cpu"}
    kinds = [text.split()[0] for text in asked]
    served = [f"{where.get(kind)} {text} 0" for kind, text in zip(kinds, asked, strict=True)]
    refused = [f"RESOURCE_EXHAUSTED {text}" for text in asked]
    expected = [refused[number] if kind == "huge" else served[number] for number, kind in enumerate(kinds)]
    assert answers == expected
    assert len(server.workers()) == 2


def test_a_model_without_a_fallback_refuses_it(client: SyncClient) -> None:
    with pytest.raises(Overloaded, match=f"found no memory on {CARD}$"):
        _ask(client, "alone", "large")
    assert not _status(client, "alone").understudies


def test_any_other_device_of_its_own_will_do(client: SyncClient) -> None:
    device = _status(client, "anywhere").device
    assert _ask(client, "anywhere", "large") == ["cpu large 0"]
    counts = _status(client, "anywhere").residency_counts
    assert counts.oom_other_device == (device == CARD)


def test_a_fallback_that_does_not_build_is_named(client: SyncClient) -> None:
    with pytest.raises(Overloaded, match=f"found no memory on {CARD}; on cpu: failed to load model 'broken'"):
        _ask(client, "broken", "large")
    assert _ask(client, "broken", "small") == [f"{CARD} small 0"]


def test_idle_models_make_way_first_as_far_as_that_may_help(client: SyncClient) -> None:
    for evicted in (1, 0):
        for name in IDLE:
            client.load(name)
        with pytest.raises(Overloaded, match="found no memory"):
            _ask(client, "lonely", "large")
        states = [_status(client, name).state for name in IDLE]
        assert states.count("resident") == len(IDLE) - evicted, "they do not go again and again"
    counts = _status(client, "lonely").residency_counts
    assert (counts.out_of_memory, counts.oom_evicted, counts.oom_refused) == (3, 1, 2)


def test_an_unloaded_model_takes_its_understudy_along(server: RunningServer, client: SyncClient) -> None:
    assert _ask(client, "picky", "large")
    client.unload("picky")
    assert not _status(client, "picky").understudies
    client.load("picky")
    assert _ask(client, "picky", "small") == [f"{CARD} small 0"]
    assert _ask(client, "picky", "large") == ["cpu large 0"]
    eventually(lambda: _status(client, "picky").understudies[0].state == "resident", within_s=5.0, what="it is back")
