"""Which waiting requests share the next run.

The rule for now: everything compatible that waits at the head of the queue, as far as rows, memory and transfer
size allow. A free model never waits for company, and a busy one fills its next run meanwhile.
"""

from collections.abc import Iterable

from moorage.domain.model import ModelSpec
from moorage.scheduling.queue import Entry


def form_batch(waiting: Iterable[Entry], spec: ModelSpec, *, free_bytes: float, max_input_bytes: int) -> list[Entry]:
    """The head of the queue and those right behind it that can share its run; empty if the head does not fit.

    free_bytes: what the run's workspace may take.
    max_input_bytes: inputs of one run together, unless a single request is larger.
    """
    batch: list[Entry] = []
    rows = size_bytes = 0
    for entry in waiting:
        request = entry.request
        if batch and not (
            _compatible(batch[0], entry)
            and rows + request.rows <= spec.max_batch_size
            and size_bytes + request.size_bytes <= max_input_bytes
        ):
            break
        if spec.memory.workspace_bytes(rows + request.rows) > free_bytes:
            break
        batch.append(entry)
        rows += request.rows
        size_bytes += request.size_bytes
        if entry.alone or request.batch_key is None:
            break
    return batch


def _compatible(head: Entry, other: Entry) -> bool:
    return not other.alone and other.request.batch_key == head.request.batch_key
