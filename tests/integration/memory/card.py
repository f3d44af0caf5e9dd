"""A server on a card that is not there: simulated models on cuda:0, whose memory the fake NVML tells of."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from moorage_client import DeviceStatus, MoorageClientError, SyncClient
from tests.support.fake_nvml import GIB, FakeCard
from tests.support.memory_models import write_on_a_card
from tests.support.memory_watch import device_in, leased_bytes
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import EXPLICIT, write_python_model

DEVICE = "cuda:0"
CARD_BYTES = 10 * GIB
BUDGET_BYTES = 8 * GIB
WEIGHTS_BYTES = 3 * GIB // 2
NEEDS_CUDA = "needs_cuda"
MODELS = tuple(f"model_{number}" for number in range(5))
CLIENTS = 8
_NEEDS_CUDA = """
    import torch
    from moorage import Model

    class NeedsCuda(Model):
        def load(self, context):
            self.weights = torch.ones(4, device=context.device)

        def infer(self, inputs, batch):
            return {"y": inputs["x"] * self.weights}
"""
_ROW = np.ones((1, 4), np.float32)


@dataclass(frozen=True)
class CardServer:
    """server: the process. card: what it takes for its card. client: of the server."""

    server: RunningServer
    card: FakeCard
    client: SyncClient

    @property
    def device(self) -> DeviceStatus:
        """The card's ledger now."""
        return device_in(self.client.snapshot(), DEVICE)

    def resident(self) -> set[str]:
        """The models whose weights are on the card."""
        return {model.name for model in self.client.snapshot().models if model.state == "resident"}

    def evictions(self) -> int:
        """Of all models, so far."""
        return sum(model.residency_counts.evictions for model in self.client.snapshot().models)

    def wait_for(self, look: Callable[[DeviceStatus], object], what: str, within_s: float = 15.0) -> None:
        """Until the ledger looks like that."""
        eventually(lambda: look(self.device), within_s=within_s, what=f"{what} ({self.device})")


@contextmanager
def card_server(folder: Path) -> Iterator[CardServer]:
    """A server whose five models of 1.5 GiB are all on a card of 10 GiB, of which it may use 8. A sixth can't load."""
    for name in MODELS:
        write_on_a_card(folder / "models", name, weights_bytes=WEIGHTS_BYTES, run_s=0.005, move_s=0.02)
    extra = f'[placement]\ndevices = ["{DEVICE}"]\n'
    write_python_model(folder / "models", NEEDS_CUDA, _NEEDS_CUDA, top=EXPLICIT, extra=extra)
    card = FakeCard(folder, total_bytes=CARD_BYTES)
    variables = {
        **card.environment,
        "MOORAGE_DEVICES__CUDA_0__BUDGET": f"{BUDGET_BYTES} B",
        "MOORAGE_DEVICES__CUDA_0__CONTEXT": "0 B",
        "MOORAGE_DEVICES__CUDA_0__HOST_BUDGET": "16 GiB",
        "MOORAGE_SERVER__FOOTPRINTS": "off",
    }
    with (
        running_server(folder / "models", folder, environment=variables) as server,
        SyncClient(server.grpc, attempts=1) as client,
    ):
        client.wait_until_ready(timeout_s=50.0, models=MODELS)
        yield CardServer(server, card, client)
        assert client.is_live()
        assert len(server.workers()) == 1


@dataclass
class Traffic:
    """What became of requests. answered: by model. failures: in words."""

    answered: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, model: str, failure: str | None) -> None:
        """One request's outcome."""
        with self._lock:
            if failure is None:
                self.answered[model] += 1
            else:
                self.failures.append(f"{model}: {failure}")

    def wait_for_more(self, count: int = 20, within_s: float = 30.0) -> None:
        """Until every model has answered so many more."""
        before = Counter(self.answered)
        eventually(
            lambda: all(self.answered[model] >= before[model] + count for model in MODELS),
            within_s=within_s,
            what=f"{count} more answers of each: {before}, {self.answered}, {self.failures[:3]}",
        )


@contextmanager
def traffic(target: str, timeout_s: float = 30.0) -> Iterator[Traffic]:
    """Eight clients ask all models in turn, for the length of a block."""
    seen = Traffic()
    leaving = threading.Event()
    with SyncClient(target, attempts=1) as client:
        threads = [
            threading.Thread(target=_ask_on, args=(client, number, timeout_s, seen, leaving))
            for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield seen
        finally:
            leaving.set()
            for thread in threads:
                thread.join(timeout=timeout_s + 10.0)


def _ask_on(client: SyncClient, number: int, timeout_s: float, seen: Traffic, leaving: threading.Event) -> None:
    random = np.random.default_rng(number)
    while not leaving.is_set():
        model = MODELS[random.integers(len(MODELS))]
        try:
            ask(client, model, timeout_s)
        except MoorageClientError as error:
            seen.note(model, f"{error.code}: {error}")
        else:
            seen.note(model, None)


def ask(client: SyncClient, model: str, timeout_s: float) -> None:
    """One request. Raises MoorageClientError."""
    client.infer(model, {"x": _ROW}, timeout_s=timeout_s)


def all_fits(device: DeviceStatus) -> bool:
    """Whether the ledger is within the capacity."""
    return leased_bytes(device) <= device.capacity_bytes
