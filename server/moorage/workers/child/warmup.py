"""The runs that a model does before it is said to be loaded, so that no request is the first to use anything of it."""

import mmap
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from moorage.domain.model import Fill, WarmupInput, WarmupRun
from moorage.domain.request import RehearsedRun
from moorage.domain.tensor import Datatype
from moorage.workers import segment as segments
from moorage.workers.child.failures import Refusal, describe, detail_of
from moorage.workers.lane_messages import TensorReference
from moorage.workers.runtimes import is_loss_of_device, is_out_of_memory

# A run that took less is quick enough to be done once more, for its time.
_QUICK_S = 1.0
# After these the sequence begins again. A prime number, so that rows differ all the same.
_RANDOM_ELEMENTS = 65_521
_BLOCK_BYTES = 1024 * 1024
# As struct names them; BF16 is the upper half of an FP32.
_FORMATS = {
    Datatype.BOOL: "?",
    Datatype.UINT8: "B",
    Datatype.UINT16: "H",
    Datatype.UINT32: "I",
    Datatype.UINT64: "Q",
    Datatype.INT8: "b",
    Datatype.INT16: "h",
    Datatype.INT32: "i",
    Datatype.INT64: "q",
    Datatype.FP16: "e",
    Datatype.FP32: "f",
    Datatype.FP64: "d",
    Datatype.BF16: "f",
}
_FLOATS = {Datatype.FP16, Datatype.FP32, Datatype.FP64, Datatype.BF16}

Perform = Callable[[int, tuple[TensorReference, ...], int], RehearsedRun]
"""Does one run as a request would have it done: rows, inputs, and where the lane's memory is free behind them.

What comes back has no seconds where the model is a stepped one.
"""


def warm_up(
    runs: Sequence[WarmupRun], memory: mmap.mmap, perform: Perform, folder: Path, *, batched: bool
) -> tuple[RehearsedRun, ...] | Refusal:
    """Do the runs in their order. Those of which something was measured, or why the model is not to be loaded."""

    def do(run: WarmupRun) -> RehearsedRun:
        inputs, end = write_inputs(memory, run, batched=batched)  # anew: a model may have written into them
        return perform(run.rows, inputs, end)

    found: list[RehearsedRun] = []
    for position, run in enumerate(runs):
        try:
            found += _repeated(run, do)
        except BaseException as error:  # a model may raise anything, SystemExit too
            failed = "ran out of memory" if is_out_of_memory(error) else "failed"
            reason = f"warmup[{position}] {failed}: {describe(error, folder)}"
            return Refusal(reason, detail_of(error), is_loss_of_device(error))
    return tuple(run for run in found if run.peak_bytes is not None or run.seconds is not None)


def _repeated(run: WarmupRun, do: Callable[[WarmupRun], RehearsedRun]) -> list[RehearsedRun]:
    """As often as is declared, and once more where a single run was quick. Raises what the model raises.

    Only the last of several tells its seconds: what the first had to set up would have callers refused for a time that
    their runs don't take.
    """
    first, *others = (do(run) for _ in range(run.count))
    if not others and first.seconds is not None and first.seconds < _QUICK_S:
        others.append(do(run))
    untimed = [replace(each, seconds=None) for each in (first, *others[:-1])]
    return untimed + others[-1:]


def write_inputs(memory: mmap.mmap, run: WarmupRun, *, batched: bool) -> tuple[tuple[TensorReference, ...], int]:
    """Lay a run's inputs out as the server lays out those of requests.

    Returns where each is, and where the memory is free after them.
    """
    references: list[TensorReference] = []
    offset = 0
    for item in run.inputs:
        end = offset + item.size_bytes(run.rows)
        _repeat(memory, offset, end, _elements(item))
        shape = (run.rows, *item.shape) if batched else item.shape
        references.append(TensorReference(item.name, item.datatype.value, shape, offset, end - offset))
        offset = segments.aligned(end)
    return tuple(references), offset


def _repeat(memory: mmap.mmap, start: int, end: int, elements: bytes) -> None:
    block = elements * max(1, _BLOCK_BYTES // len(elements))
    for offset in range(start, end, len(block)):
        piece = block[: end - offset]
        memory[offset : offset + len(piece)] = piece


def _elements(item: WarmupInput) -> bytes:
    """What is repeated to fill the input."""
    if item.datatype is Datatype.BYTES:
        texts = [str(value).encode() for value in item.values or ("",)]
        return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    if item.values:
        return _packed(item.datatype, item.values)
    if item.fill is Fill.RANDOM:
        return _packed(item.datatype, _random_values(item))
    return bytes(item.datatype.item_bytes)


def _random_values(item: WarmupInput) -> Sequence[float]:
    chosen = random.Random(item.name)
    if item.datatype in _FLOATS:
        return [chosen.random() for _ in range(_RANDOM_ELEMENTS)]
    return chosen.choices(range(2 if item.datatype is Datatype.BOOL else 10), k=_RANDOM_ELEMENTS)


def _packed(datatype: Datatype, values: Sequence[object]) -> bytes:
    packed = struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values)
    if datatype is not Datatype.BF16:
        return packed
    return b"".join(packed[end - 2 : end] for end in range(4, len(packed) + 1, 4))
