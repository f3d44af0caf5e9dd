"""Whether a model that could run waits for company first."""

import math
from bisect import bisect_right
from collections.abc import Callable

from moorage.scheduling.batching import pays_to_wait
from moorage.scheduling.entries import Entry
from moorage.scheduling.placement import most_workspace_bytes
from moorage.scheduling.prospects import answer_s, row_bytes_of
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.state import DeviceRecord, State


class Patience:
    """Looks only; nothing is changed here."""

    def __init__(self, state: State) -> None:
        self._state = state

    def until_s(self, model: ModelRecord, device: DeviceRecord, now: float) -> float | None:
        """Until when the next run of a model that batches is not to begin yet; None where it may begin at once.

        Nobody waits for company where others wait for the device: they would take it, and the model come after them.
        """
        policy = model.spec.batching
        if (
            model.spec.max_batch_size <= 1
            or policy.max_queue_delay_s == 0
            or model.stepped
            or model.first_run is not None
        ):
            return None
        head = model.queue.head
        if head is None or head.cohort or head.request.batch_key is None:
            return None
        if model.closing or self._state.draining or device.short or len(device.ready) > (model.key in device.ready):
            return None
        most_rows = self._most_rows(model, device, head, now)
        if model.queue.rows >= most_rows:
            return None
        enough = policy.low_watermark or min(policy.preferred_sizes, default=0)
        if not enough:
            until_s = self._learned_s(model, most_rows, now)
        else:
            # Who says how many are enough knows better than what was learned.
            until_s = None if model.queue.rows >= enough else math.inf
        if until_s is None:
            return None
        if policy.max_queue_delay_s is not None:
            oldest_s = min(entry.request.arrived_s for entry in model.queue)
            until_s = min(until_s, oldest_s + policy.max_queue_delay_s)
        until_s = min(until_s, self._latest_start_s(model))
        return until_s if until_s > now else None

    def _latest_start_s(self, model: ModelRecord) -> float:
        """By when a run has to begin, so that nobody misses their deadline by what it takes."""
        run_s = 0.0 if model.seconds.is_empty else self._cost_s(model)(model.spec.max_batch_size)
        return min(entry.request.deadline_s - answer_s(entry.request) for entry in model.queue) - run_s

    def _most_rows(self, model: ModelRecord, device: DeviceRecord, head: Entry, now: float) -> int:
        """Of a run like the head's that began now, as far as is known before others come. To wait for more is vain."""
        rows = model.most_rows
        if model.ceiling is not None:
            rows = model.ceiling.most_rows(rows, now)
        row_bytes = head.request.row_bytes
        if rows * row_bytes > self._state.limits.max_input_bytes:
            rows = self._state.limits.max_input_bytes // row_bytes
        free_bytes = min(device.budget.free_bytes, most_workspace_bytes(model, device))
        workspaces = model.workspaces
        if workspaces.bytes_for(rows, row_bytes) > free_bytes:
            rows = bisect_right(range(1, rows + 1), free_bytes, key=lambda size: workspaces.bytes_for(size, row_bytes))
        return rows

    def _learned_s(self, model: ModelRecord, most_rows: int, now: float) -> float | None:
        """Until when those who were just answered are expected back, where that pays."""
        waiting = len(model.queue)
        rows_each = model.queue.rows / waiting
        most = int(most_rows / rows_each) - waiting
        expected = min(model.company.expected(), most)
        wait_s = max(0.0, model.company.likely_s - now)
        if expected <= 0 or model.company.until_s <= now or model.seconds.is_empty:
            return None
        cost_s, is_known = self._cost_s(model), self._is_known(model)
        pays = pays_to_wait(cost_s, waiting, expected, wait_s, rows_each, is_known=is_known)
        return model.company.until_s if pays else None

    def _cost_s(self, model: ModelRecord) -> Callable[[int], float]:
        """What a run of so many rows takes that are like those who wait: others who come are taken to be, too."""
        if not model.rows_vary:
            return model.seconds.expected_s
        row_bytes = row_bytes_of(model.queue)
        return lambda rows: model.seconds.expected_s(rows, row_bytes)

    def _is_known(self, model: ModelRecord) -> Callable[[int], bool]:
        """Whether it is known what runs of about so many such rows take."""
        row_bytes = row_bytes_of(model.queue) if model.rows_vary else 0
        return lambda rows: model.seconds.is_known(rows, row_bytes)
