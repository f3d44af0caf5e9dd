"""The states of a SteppedModel's requests, and what its author leaves to the worker: their size, and moving them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from moorage.authoring import StartingRequest, Step, SteppedModel
from moorage.workers.runtimes.base import BrokenContract
from moorage.workers.runtimes.holdings import find
from moorage.workers.runtimes.parking import Parked, Parking
from moorage.workers.runtimes.yielding import YieldingModel


@dataclass(slots=True)
class _Held:
    """parked: by the default of suspend."""

    state: Any
    parked: Parked | None = None
    on_host: bool = False


class PythonStates:
    """Holds each state from its request's start until it is dropped."""

    def __init__(self, model: SteppedModel, device: str) -> None:
        self._model = model
        self._device = torch.device(device)
        self._parking = Parking(device)
        self._moves_itself = type(model).suspend is not SteppedModel.suspend
        self._sizes_itself = type(model).state_bytes is not SteppedModel.state_bytes
        self._held: dict[int, _Held] = {}
        self.method = "infer" if isinstance(model, YieldingModel) else "step"

    def start(self, request_id: int, inputs: Mapping[str, Any], request: StartingRequest) -> None:
        own = {name: _own(value) for name, value in inputs.items()}
        with torch.inference_mode():
            self._held[request_id] = _Held(self._model.start(own, request))

    def step(self, request_ids: Sequence[int]) -> Sequence[Step]:
        states = [self._held[request_id].state for request_id in request_ids]
        with torch.inference_mode():
            return self._model.step(states)

    def state_bytes(self, request_id: int) -> int:
        state = self._held[request_id].state
        size_bytes = self._model.state_bytes(state) if self._sizes_itself else find(state).size_bytes(self._device)
        if not isinstance(size_bytes, int) or size_bytes < 0:
            raise BrokenContract(f"state_bytes must return an int of at least 0, got {size_bytes!r}")
        return size_bytes

    def suspend(self, request_id: int) -> None:
        held = self._held[request_id]
        if not held.on_host:
            with torch.inference_mode():
                self._suspend(held)
            held.on_host = True

    def _suspend(self, held: _Held) -> None:
        if self._moves_itself:
            held.state = self._model.suspend(held.state)
            return
        others = [other.state for other in self._held.values() if other is not held]
        held.parked = self._parking.park(_set_apart(held.state, others, self._model))

    def resume(self, request_id: int) -> None:
        held = self._held[request_id]
        if not held.on_host:
            return
        with torch.inference_mode():
            if held.parked is None:
                held.state = self._model.resume(held.state)
            else:
                self._parking.bring_back(held.parked)
        held.parked, held.on_host = None, False

    def drop(self, request_id: int) -> None:
        held = self._held.pop(request_id, None)
        if held is not None and held.parked is not None:
            held.parked.close()

    def drop_all(self) -> None:
        for request_id in list(self._held):
            self.drop(request_id)


def check_stepped(kind: type[SteppedModel]) -> None:
    """Raises BrokenContract for a class that leaves out what has no default, or defines half of a pair."""
    for method, call in (("start", "start(inputs, request)"), ("step", "step(states)")):
        if not _defines(kind, method):
            raise BrokenContract(f"class {kind.__name__} in model.py does not define {call}")
    if _defines(kind, "suspend") != _defines(kind, "resume"):
        defined, missing = ("suspend", "resume") if _defines(kind, "suspend") else ("resume", "suspend")
        raise BrokenContract(f"class {kind.__name__} in model.py defines {defined}, and does not define {missing}")


def _defines(kind: type[SteppedModel], method: str) -> bool:
    return getattr(kind, method) is not getattr(SteppedModel, method)


def _set_apart(state: object, others: Sequence[object], model: SteppedModel) -> list[torch.Tensor]:
    """The tensors of a state, made to share no memory with others, so that theirs stays when these are moved.

    Batched steps leave views of one result in many states: each gets a copy of its part. What is the model's, or is the
    same object in another state, is left out.
    """
    of_model = {tensor.untyped_storage().data_ptr() for tensor in find(model).tensors}
    theirs = find(*others).tensors
    of_others = {tensor.untyped_storage().data_ptr() for tensor in theirs}
    same = {id(tensor) for tensor in theirs}
    apart = []
    for tensor in find(state).tensors:
        address = tensor.untyped_storage().data_ptr()
        if address in of_model or id(tensor) in same:
            continue
        if address in of_others:
            tensor.set_(tensor.clone(memory_format=torch.contiguous_format))  # type: ignore[call-overload]
        apart.append(tensor)
    return apart


def _own(value: Any) -> Any:
    """An input that lasts: on a CPU it comes as a view of memory that the next step's inputs are written to."""
    return value.clone() if isinstance(value, torch.Tensor) and value.is_cpu else value
