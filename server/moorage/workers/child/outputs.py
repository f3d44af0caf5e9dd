"""What a model returned, checked against its declaration and put where the server reads it."""

from collections.abc import Mapping, Sequence
from types import GeneratorType

from moorage.domain.tensor import TensorSpec
from moorage.workers import segment as segments
from moorage.workers.child.building import Built
from moorage.workers.lane_messages import OutputReference
from moorage.workers.runtimes import BrokenContract, Payload, SharedMemory


class OutputWriter:
    """Puts outputs into one lane's memory, each behind the one before."""

    def __init__(self, built: Built, memory: SharedMemory) -> None:
        self._built = built
        self._memory = memory
        self.free_offset = 0

    def write(self, method: str, outputs: object, member_rows: Sequence[int]) -> tuple[OutputReference, ...]:
        """The outputs that a method of the model returned for members with so many rows, from free_offset on.

        Raises BrokenContract unless they are what was declared, LaneFull where they do not fit.
        """
        given = _by_name(method, outputs, self._built.outputs)
        rows = sum(member_rows)
        return tuple(
            self._write_one(spec, (rows, *spec.shape) if self._built.batched else spec.shape, given[name], member_rows)
            for name, spec in self._built.outputs.items()
        )

    def _write_one(
        self, spec: TensorSpec, declared: tuple[int, ...], value: object, member_rows: Sequence[int]
    ) -> OutputReference:
        payload = self._built.runtime.arrays.payload(spec, declared, value)
        _check_shape(spec.name, payload.shape, declared, batched=self._built.batched)
        start = payload.place(self._memory, self.free_offset)
        if start == self.free_offset:
            self.free_offset = segments.aligned(self.free_offset + payload.size_bytes)
        return OutputReference(
            spec.name, spec.datatype.value, payload.shape, start, payload.size_bytes, _splits(payload, member_rows)
        )


def _by_name(method: str, outputs: object, declared: Mapping[str, TensorSpec]) -> dict[str, object]:
    if not isinstance(outputs, dict):
        hint = "; who yields has to say decoupled = true in model.toml" if isinstance(outputs, GeneratorType) else ""
        raise BrokenContract(f"{method} must return a dict of outputs, got {type(outputs).__name__}{hint}")
    if outputs.keys() != declared.keys():
        raise BrokenContract(f"{method} returned outputs {sorted(map(str, outputs))}, declared are {sorted(declared)}")
    return outputs


def _check_shape(name: str, shape: tuple[int, ...], declared: tuple[int, ...], *, batched: bool) -> None:
    """Raises BrokenContract unless the shape is what was declared, with as many rows as went in."""
    fits = len(shape) == len(declared) and all(want in (-1, got) for want, got in zip(declared, shape, strict=True))
    if fits:
        return
    if batched and shape and shape[0] != declared[0]:
        raise BrokenContract(f"output '{name}': expected {declared[0]} rows, got {shape[0]}")
    raise BrokenContract(f"output '{name}': expected shape {list(declared)}, got {list(shape)}")


def _splits(payload: Payload, member_rows: Sequence[int]) -> tuple[int, ...]:
    """Where each member's bytes end."""
    if len(member_rows) == 1:
        return (payload.size_bytes,)
    ends: list[int] = []
    rows = 0
    for count in member_rows:
        rows += count
        ends.append(payload.end_of_row(rows))
    return tuple(ends)
