"""The life of requests: admitted, queued, answered. Each ends by exactly one Succeed or Fail, or a cancel."""

from moorage.domain.errors import DeadlineExceeded, ModelNotFound, MoorageError
from moorage.domain.request import InferenceRequest
from moorage.scheduling.actions import Fail
from moorage.scheduling.admission import never_fits, refusal
from moorage.scheduling.queue import Entry
from moorage.scheduling.state import ModelRecord, State
from moorage.scheduling.timers import RequestDue


class Requests:
    """Decides about requests outside of runs."""

    def __init__(self, state: State) -> None:
        self._state = state

    def arrived(self, request: InferenceRequest, now: float) -> ModelRecord | None:
        """Queue or refuse a request; the model it joined, if it joined one."""
        model = self._state.models.get(request.model)
        if model is None:
            self._answer(request, ModelNotFound(request.model.name, str(request.model.version)))
            return None
        error = refusal(self._state, model, request, now)
        if error is not None:
            self._answer(request, error)
            return None
        entry = Entry(request)
        self._state.entries[request.request_id] = entry
        self._state.timers.add(request.deadline_s, RequestDue(request.request_id))
        model.queue.append(entry)
        return model

    def refuse_what_never_fits(self, model: ModelRecord) -> None:
        """Answer the waiting requests that turn out too large now that the weights are measured."""
        for entry in list(model.queue):
            error = never_fits(self._state, model, entry.request.rows)
            if error is not None:
                model.queue.remove(entry)
                self.fail(entry, error)

    def fail_waiting(self, model: ModelRecord, error: MoorageError) -> None:
        """Answer all that wait for a model with one error."""
        for entry in list(model.queue):
            model.queue.remove(entry)
            self.fail(entry, error)

    def fail(self, entry: Entry, error: MoorageError) -> None:
        """Answer one request that is in no queue with an error."""
        del self._state.entries[entry.request.request_id]
        self._answer(entry.request, error)

    def _answer(self, request: InferenceRequest, error: MoorageError) -> None:
        self._state.actions.append(Fail(request, error))

    def expired(self, request_id: int, now: float) -> None:
        """A deadline passed, perhaps of a request that ended before."""
        entry = self._state.entries.get(request_id)
        if entry is not None:
            state = "while it waited" if self._leave(entry) else "while it was computed"
            self._answer(entry.request, DeadlineExceeded(now - entry.request.arrived_s, state))

    def cancelled(self, request_id: int) -> None:
        """The caller has gone."""
        entry = self._state.entries.get(request_id)
        if entry is not None:
            self._leave(entry)

    def _leave(self, entry: Entry) -> bool:
        """Forget a request; whether it waited. One that is computed stays in its run, which nobody interrupts."""
        del self._state.entries[entry.request.request_id]
        model = self._state.models[entry.request.model]
        if entry not in model.queue:
            return False
        model.queue.remove(entry)
        if not model.queue:
            self._state.leave_line(model)
        elif model.device is not None and self._state.short_of_memory[model.device]:
            # It may have been the one that all the others waited behind.
            self._state.stir(model.device)
        return True
