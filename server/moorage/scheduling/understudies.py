"""Understudies: a model once more, on another device, for requests that found no memory on its own.

An understudy is loaded when it is needed, and put out like any other model. No request comes to it but from its model,
and it goes with that.
"""

from dataclasses import replace

from moorage.domain.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    ModelTooLarge,
    MoorageError,
    OutOfMemory,
)
from moorage.domain.model import Footprint, Loading, ModelKey, ModelSpec, ModelState, RatePolicy, SharePolicy
from moorage.scheduling.admission import never_fits, not_ready
from moorage.scheduling.entries import Entry
from moorage.scheduling.placement import elsewhere
from moorage.scheduling.records import Counts, ModelRecord, new_model
from moorage.scheduling.state import State

# What says that there is no memory elsewhere either, or that the understudy can't be had.
_NOWHERE = MemoryExhausted | ModelTooLarge | LoadFailed | ModelNotReady


class Understudies:
    """Decides who computes what a model's own device has no memory for."""

    def __init__(self, state: State) -> None:
        self._state = state

    def counts_of(self, model: ModelRecord) -> Counts:
        """Those of the model that it is, or stands in for."""
        return self._principal(model).counts

    def _principal(self, model: ModelRecord) -> ModelRecord:
        return model if model.understudy_of is None else self._state.models[model.understudy_of]

    def take(self, model: ModelRecord, entry: Entry, now: float) -> bool:
        """Have a request wait elsewhere that is in no queue and finds no memory by itself; whether there is a place."""
        assert model.device is not None
        principal = self._principal(model)
        tried = (*entry.tried, model.device)
        for name in elsewhere(principal, self._state.devices, tried):
            understudy = self._on(principal, name, now)
            if self._takes(understudy, entry, now):
                self._move(entry, understudy, tried, now)
                if name == principal.spec.fallback:
                    principal.counts.oom_fallback += 1
                else:
                    principal.counts.oom_other_device += 1
                return True
        return False

    def _on(self, principal: ModelRecord, device: str, now: float) -> ModelRecord:
        """The model's understudy on a device, as the model stands now. One whose load failed may be tried again."""
        share = SharePolicy(principal.share.priority, limit_bytes=principal.share.limit_bytes)
        key = principal.understudies.get(device)
        if key is None:
            self._state.last_understudy += 1
            key = ModelKey(principal.key.name, principal.key.version, -self._state.last_understudy)
            known = Footprint(principal.measured.weights_bytes, state_bytes=principal.measured.state_bytes)
            spec = _understudy_spec(principal.spec, device)
            understudy = new_model(key, spec, known, share, self._state.new_queue(key, spec))
            understudy.understudy_of = principal.key
            self._state.models[key] = understudy
            principal.understudies[device] = key
            return understudy
        understudy = self._state.models[key]
        understudy.share = share
        understudy.semaphore.limit_bytes = share.limit_bytes
        may_retry = now >= understudy.retry_at_s and understudy.quarantined_in is None and not understudy.closing
        if understudy.state is ModelState.FAILED and may_retry:
            self._state.move(understudy, ModelState.UNLOADED)
        return understudy

    def _takes(self, understudy: ModelRecord, entry: Entry, now: float) -> bool:
        if not_ready(self._state, understudy) or never_fits(self._state, understudy, entry.request.rows):
            return False
        full = understudy.queue.refusal(entry.request, now)
        return full is None or not full.model  # All queues together have room for it: it was admitted to them once.

    def _move(self, entry: Entry, understudy: ModelRecord, tried: tuple[str, ...], now: float) -> None:
        """The same request, by its id, waits there from now on: whoever looks for it finds it."""
        request = replace(entry.request, model=understudy.key)
        moved = replace(entry, request=request, cohort=0, tried=tried, made_room=False, paused=False)
        self._state.entries[request.request_id] = moved
        if request.piece is not None:
            self._state.split[request.piece.whole.request_id][request.request_id] = moved
        understudy.queue.put_back([moved])
        understudy.usage.note(now)
        self._state.touch(understudy)

    def as_told(self, entry: Entry, error: MoorageError) -> MoorageError:
        """What a caller is told whose request found no memory anywhere: where it was tried, and what came of it last.

        Whatever else becomes of it where it went is told as it is.
        """
        if not isinstance(error, _NOWHERE) or not (entry.tried or isinstance(error, OutOfMemory)):
            return error
        model = self._state.models[entry.request.model]
        device = model.device if model.understudy_of is None else model.spec.devices[0]
        self.counts_of(model).oom_refused += 1
        what = f"a run of {entry.request.rows} rows of model '{model.key.name}'"
        if isinstance(error, OutOfMemory):
            return OutOfMemory(what, (*entry.tried, device or "its device"))
        holders = error.holders if isinstance(error, MemoryExhausted) else ()
        return OutOfMemory(what, entry.tried, f"on {device}: {error.message}", holders)


def _understudy_spec(spec: ModelSpec, device: str) -> ModelSpec:
    """As the model declares it, but on one device, when it is asked for, and without waiting for company: who was
    served there asks the model again, and not its understudy."""
    return replace(
        spec,
        devices=(device,),
        fallback="",
        loading=Loading.ON_DEMAND,
        share=SharePolicy(spec.share.priority, limit_bytes=spec.share.limit_bytes),
        rate=RatePolicy(),
        batching=replace(spec.batching, max_queue_delay_s=0.0, low_watermark=0, preferred_sizes=()),
        warmup=(),
    )
