"""The life of requests: admitted, queued, answered. Each has exactly one outcome, or its caller left."""

from moorage.domain.errors import (
    DeadlineExceeded,
    DeadlineUnmeetable,
    MemoryExhausted,
    ModelNotFound,
    MoorageError,
    OutOfMemory,
    Preempted,
    QueueFull,
)
from moorage.domain.model import ModelState
from moorage.domain.request import InferenceRequest
from moorage.scheduling.actions import Fail
from moorage.scheduling.admission import fitting_rows, never_fits, refusal
from moorage.scheduling.entries import Entry, Leaving
from moorage.scheduling.policy import Waiting
from moorage.scheduling.prospects import cannot_be_met, needs_a_look
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.splitting import split
from moorage.scheduling.state import State
from moorage.scheduling.timers import RequestDue, RunDue
from moorage.scheduling.understudies import Understudies


class Requests:
    """Decides about requests outside of runs."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._understudies = Understudies(state)

    def arrived(self, request: InferenceRequest, now: float) -> ModelRecord | None:
        """Queue or refuse a request; the model that is to be brought in though the request was refused, if any.

        Where bringing it in takes longer than the request can wait, those after it shall find it there.
        """
        model = self._state.models.get(request.model)
        if model is None:
            self._answer(request, ModelNotFound(request.model.name, str(request.model.version)))
            return None
        rows = request.rows
        if rows > 1 and model.spec.batching.split_requests:
            rows = self._run_rows(model, rows, now)
        error = refusal(self._state, model, request, rows, now) or self._no_room(model, request, now)
        if error is not None:
            self._answer(request, error)
            return model if isinstance(error, DeadlineUnmeetable) and error.load_s > 0 else None
        entry = self._entry(model, request)
        self._state.entries[request.request_id] = entry
        self._state.timers.add(request.deadline_s, RequestDue(request.request_id))
        self._join(model, entry)
        if rows < request.rows:
            self.split(model, entry, rows)
        model.usage.note(now)
        if model.spec.max_batch_size > 1:
            model.company.arrived(now)
        self._state.touch(model)
        return None

    def _join(self, model: ModelRecord, entry: Entry) -> None:
        """Wait in the model's queue. At the same place in line, it may need another run now, or may pass somebody who
        is short of memory."""
        device = self._state.devices[model.device] if model.device is not None else None
        best = model.queue.best_priority if device is not None and device.short else None
        overtakes = model.queue.append(entry)
        if device is None:
            return
        if overtakes or (device.short and (model.key in device.short or (best is not None and entry.priority < best))):
            self._state.stir(device.name)

    def _run_rows(self, model: ModelRecord, rows: int, now: float) -> int:
        """How many rows of a request of a model that splits them a run may have now."""
        fitting = fitting_rows(self._state, model, rows)
        if model.ceiling is None:
            return fitting
        return min(fitting, model.ceiling.most_rows(model.spec.max_batch_size, now))

    def _no_room(self, model: ModelRecord, request: InferenceRequest, now: float) -> MoorageError | None:
        """Why a request can't wait, if it can't. Where its queue is full, the last of lower priority leave for it."""
        full = model.queue.refusal(request, now)
        if full is None and not needs_a_look(model, request.deadline_s - now):
            return None
        priority = self._priority(model, request)
        leaving = model.queue.displaced_by(request, priority) if full is not None else []
        if full is not None and not leaving:
            return full
        unmeetable = cannot_be_met(model, request, priority, now)
        if unmeetable is not None:
            return unmeetable
        if full is not None:
            self._displace(model, leaving, request, full, now)
        return None

    def _displace(
        self, model: ModelRecord, leaving: list[Entry], newcomer: InferenceRequest, full: QueueFull, now: float
    ) -> None:
        """Refuse those who leave for a newcomer: with it in their stead, the queue is full for each of them.

        Where it is not, as somebody larger had to leave too, they are told what the newcomer would have been.
        """
        gone = {entry.request.request_id: entry for entry in leaving}
        for entry in leaving:
            if entry.request.piece is not None:
                gone.update(self._state.split[entry.request.piece.whole.request_id])
        waited = [entry for entry in gone.values() if entry in model.queue]
        errors: list[QueueFull] = []  # All of them before the first leaves: an empty queue forgets how fast it drained.
        for entry in leaving:
            asked = entry.request if entry.request.piece is None else entry.request.piece.whole
            errors.append(model.queue.full_for_displaced(asked, newcomer, waited, now) or full)
        for entry, error in zip(leaving, errors, strict=True):
            if self._state.is_open(entry):  # unless it went with another piece of its request
                self.refuse(model, entry, error)

    def _priority(self, model: ModelRecord, request: InferenceRequest) -> int:
        """As which it counts: its own or its model's; all alike under a policy that has none."""
        return (request.priority or model.share.priority) if self._state.policy.by_priority else 0

    def _entry(self, model: ModelRecord, request: InferenceRequest) -> Entry:
        priority = self._priority(model, request)
        place = self._state.policy.place(Waiting(request.arrived_s, priority, 0.0), self._state.limits.ageing_s)
        return Entry(request, priority=priority, place=place)

    def refuse_what_never_fits(self, model: ModelRecord) -> None:
        """Answer the waiting requests that turn out too large now that the weights are measured."""
        for entry in list(model.queue):
            self.refuse_if_it_never_fits(model, entry)

    def refuse_if_it_never_fits(self, model: ModelRecord, entry: Entry) -> bool:
        """Answer a waiting request that is too large, or have it wait in pieces that are not; whether it was."""
        kept_bytes = entry.kept_bytes if entry.host is not None else None
        error = never_fits(self._state, model, entry.request.rows, kept_bytes)
        if error is None:
            return False
        rows = fitting_rows(self._state, model, entry.request.rows)
        if never_fits(self._state, model, rows, kept_bytes) is not None or not self.split(model, entry, rows):
            self.refuse(model, entry, error)
        return True

    def refuse_or_halve(self, model: ModelRecord, entry: Entry, error: MoorageError, now: float) -> None:
        """Answer a waiting request that finds no room, or see whether half of it does, or all of it elsewhere."""
        if not self.split(model, entry, entry.request.rows // 2) and not self._goes_elsewhere(model, entry, now):
            self.refuse(model, entry, error)

    def _goes_elsewhere(self, model: ModelRecord, entry: Entry, now: float) -> bool:
        """Whether a waiting request waits on another device from now on. Not where it would lose what it has done."""
        if entry.steps or entry.host is not None or not self._understudies.take(model, entry, now):
            return False
        self._remove(model, entry)
        return True

    def send_elsewhere(self, model: ModelRecord, now: float) -> None:
        """The model can't be had where it was to go: those who wait for it are computed elsewhere, if they can be."""
        for entry in list(model.queue):
            self._goes_elsewhere(model, entry, now)

    def fail_or_halve(self, model: ModelRecord, entry: Entry, error: MoorageError, now: float) -> None:
        """Answer one request that is in no queue with an error, or see whether half of it finds memory, or all of it
        elsewhere."""
        if isinstance(error, MemoryExhausted) and self._state.is_open(entry):
            if self.split(model, entry, entry.request.rows // 2):
                self._understudies.counts_of(model).oom_halved += 1
                return
            if isinstance(error, OutOfMemory) and self._understudies.take(model, entry, now):
                return
        self.fail(entry, error)

    def note_out_of_memory(self, model: ModelRecord, error: MoorageError) -> None:
        """Count it, where one request of a step found no memory."""
        self._understudies.counts_of(model).out_of_memory += isinstance(error, MemoryExhausted)

    def split(self, model: ModelRecord, entry: Entry, most_rows: int) -> bool:
        """Have pieces of at most so many rows wait in the place of a request that waits, or comes from a run.

        False where its model does not split requests, or it has no more rows than that, or an answer already.
        """
        splits = model.spec.batching.split_requests and self._state.is_open(entry)
        if not splits or not 0 < most_rows < entry.request.rows:
            return False
        if entry in model.queue:
            self._remove(model, entry)
        pieces = split(self._state, entry, most_rows)
        for piece in pieces:
            self._state.timers.add(piece.request.deadline_s, RequestDue(piece.request.request_id))
        model.queue.put_back(pieces)
        self._state.touch(model)
        return True

    def fail_waiting(self, model: ModelRecord, error: MoorageError) -> None:
        """Answer all that wait for a model with one error, and those whose callers do not read."""
        for entry in (*model.queue, *model.parked.values()):
            self.refuse(model, entry, error)

    def refuse(self, model: ModelRecord, entry: Entry, error: MoorageError) -> None:
        """Answer one request that waits in its model's queue, or beside it, with an error."""
        if self._state.is_open(entry):  # as above
            self._remove(model, entry)
            self.fail(entry, error)

    def give_up(self, model: ModelRecord, entry: Entry, error: MoorageError) -> None:
        """Answer a running stepped request with an error. Its state is to be dropped."""
        self.fail(entry, error)
        self._drop_state(model, entry)
        self._note_forsaken(model, entry)

    def _drop_state(self, model: ModelRecord, entry: Entry) -> None:
        entry.leaving = Leaving.DROP
        if entry.state is not None:
            budget = self._state.device_of(model).budget
            budget.leave(entry.state)
            self._state.stir(budget.device)
        self._state.touch(model)

    def fail(self, entry: Entry, error: MoorageError) -> None:
        """Answer one request that is in no queue with an error."""
        if self._state.is_open(entry):  # as above
            del self._state.entries[entry.request.request_id]
            self._answer(entry.request, self._understudies.as_told(entry, error))

    def _answer(self, request: InferenceRequest, error: MoorageError) -> None:
        """The first error of a piece is its request's, and ends the others."""
        if request.piece is not None:
            request = request.piece.whole
            self._give_up_pieces(request.request_id)
        self._state.actions.append(Fail(request, error))

    def _give_up_pieces(self, request_id: int) -> None:
        """Forget what is left of a split request, if it is one."""
        for entry in self._state.split.pop(request_id, {}).values():
            if self._state.is_open(entry):
                self._leave(entry)

    def expired(self, request_id: int, now: float) -> None:
        """A deadline passed, perhaps of a request that ended before."""
        entry = self._state.entries.get(request_id)
        if entry is None:
            return
        waited = self._leave(entry)
        waited_s = now - entry.request.arrived_s
        if waited and entry.preemptions and not entry.paused:
            self._answer(entry.request, Preempted(waited_s, entry.preemptions))
        else:
            state = "while it waited" if waited else "while it was computed"
            state = "while its caller took no answers" if entry.paused else state
            self._answer(entry.request, DeadlineExceeded(waited_s, state))

    def cancelled(self, request_id: int) -> None:
        """The caller has gone."""
        entry = self._state.entries.get(request_id)
        if entry is not None:
            self._leave(entry)
        elif self._state.split:
            self._give_up_pieces(request_id)

    def _leave(self, entry: Entry) -> bool:
        """Forget a request; whether it waited. A run is not interrupted, but has not for ever once the last has left; a
        stepped request takes no further step."""
        del self._state.entries[entry.request.request_id]
        model = self._state.models[entry.request.model]
        self._state.touch(model)
        if entry in model.queue or entry.request.request_id in model.parked:
            self._remove(model, entry)
            return True
        waited = entry.leaving is not None
        if model.active.get(entry.request.request_id) is entry and not waited:
            self._drop_state(model, entry)
        self._note_forsaken(model, entry)
        return waited

    def _note_forsaken(self, model: ModelRecord, entry: Entry) -> None:
        """A run has not for ever once the last of its requests has an answer or has left."""
        for run in model.runs:
            if entry in run.entries and not any(map(self._state.is_open, run.entries)):
                self._state.timers.add_in(self._state.limits.hang_timeout_s, RunDue(run.run_id))

    def _remove(self, model: ModelRecord, entry: Entry) -> None:
        """Take a request out of its queue; what its worker keeps for it is to be given up."""
        if model.parked.pop(entry.request.request_id, None) is None:
            model.queue.remove(entry)
        self._state.touch(model)
        if model.device is not None:
            self._state.stir(model.device)  # Who is next may need less, though they wait at the same place.
        if entry.host is not None:
            entry.leaving = Leaving.DROP
            model.active[entry.request.request_id] = entry

    def nobody_wants(self, model: ModelRecord) -> bool:
        """Whether a model that waits to be loaded has lost everybody that it was to be loaded for."""
        waits = model.state is ModelState.LOADING and model.weights is None
        return waits and not model.wanted and not model.queue
