"""Whether a model that could run waits for company first."""

from collections.abc import Callable

from moorage.domain.model import BatchingPolicy
from moorage.scheduling.batching import pays_to_wait
from moorage.scheduling.entries import Entry
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
        most_rows = model.spec.max_batch_size
        if most_rows <= 1 or policy.max_queue_delay_s == 0 or model.stepped or model.first_run is not None:
            return None
        head = model.queue.head
        if head is None or head.cohort or head.request.batch_key is None or model.queue.rows >= most_rows:
            return None
        if model.closing or self._state.draining or device.short or len(device.ready) > (model.key in device.ready):
            return None
        until_s = self._declared_s(model, policy, head, now) or self._learned_s(model, now)
        if until_s is None:
            return None
        if policy.max_queue_delay_s is not None:
            until_s = min(until_s, head.request.arrived_s + policy.max_queue_delay_s)
        until_s = min(until_s, self._latest_start_s(model))
        return until_s if until_s > now else None

    def _latest_start_s(self, model: ModelRecord) -> float:
        """By when a run has to begin, so that nobody misses their deadline by what it takes."""
        run_s = 0.0 if model.seconds.is_empty else self._cost_s(model)(model.spec.max_batch_size)
        return min(entry.request.deadline_s - answer_s(entry.request) for entry in model.queue) - run_s

    def _declared_s(self, model: ModelRecord, policy: BatchingPolicy, head: Entry, now: float) -> float | None:
        """Until when the manifest says to wait for more rows."""
        enough = policy.low_watermark or min(policy.preferred_sizes, default=0)
        if policy.max_queue_delay_s is None or model.queue.rows >= enough:
            return None
        return head.request.arrived_s + policy.max_queue_delay_s

    def _learned_s(self, model: ModelRecord, now: float) -> float | None:
        """Until when those who were just answered are expected back, where that pays."""
        waiting = len(model.queue)
        rows_each = model.queue.rows / waiting
        most = int(model.spec.max_batch_size / rows_each) - waiting
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
        """Whether runs of about so many such rows were seen at least twice: the first may have had to set things up."""
        row_bytes = row_bytes_of(model.queue) if model.rows_vary else 0
        return lambda rows: model.seconds.error(rows, row_bytes) is not None
