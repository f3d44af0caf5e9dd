"""Understudies: a model once more, on another device, for requests that found no memory on its own.

An understudy is loaded when it is needed and put out like any other model. No request comes to it but from its model, and
it goes with its model.
"""

from dataclasses import replace

from moorage.domain.errors import DeadlineExceeded, MoorageError, OutOfMemory, Preempted
from moorage.domain.model import Footprint, Loading, ModelKey, ModelSpec, ModelState, RatePolicy, SharePolicy
from moorage.scheduling.admission import never_fits, not_ready
from moorage.scheduling.placement import elsewhere
from moorage.scheduling.queue import Entry
from moorage.scheduling.records import Counts, ModelRecord, new_model
from moorage.scheduling.state import State


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
        """Have a request wait elsewhere that is in no queue and found no memory by itself; whether there is a place."""
        assert model.device is not None
        entry.tried += (model.device,)
        principal = self._principal(model)
        for name in elsewhere(principal, self._state.devices, entry.tried):
            understudy = self._on(principal, name, now)
            if self._takes(understudy, entry, now):
                self._move(entry, understudy, now)
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
            understudy = new_model(key, spec, known, share, self._state.waiting)
            understudy.understudy_of = principal.key
            self._state.models[key] = understudy
            principal.understudies[device] = key
            return understudy
        understudy = self._state.models[key]
        understudy.share = share
        if understudy.state is ModelState.FAILED and understudy.quarantined_in is None:
            if now >= understudy.retry_at_s and not understudy.closing:
                self._state.move(understudy, ModelState.UNLOADED)
        return understudy

    def _takes(self, understudy: ModelRecord, entry: Entry, now: float) -> bool:
        return (
            not_ready(self._state, understudy) is None
            and never_fits(self._state, understudy, entry.request.rows) is None
            and understudy.queue.refusal(entry.request, now) is None
        )

    def _move(self, entry: Entry, understudy: ModelRecord, now: float) -> None:
        """The same request, by its id, waits there from now on: whoever looks for it finds it."""
        request = replace(entry.request, model=understudy.key)
        moved = replace(entry, request=request, cohort=0, made_room=False)
        self._state.entries[request.request_id] = moved
        if request.piece is not None:
            self._state.split[request.piece.whole.request_id][request.request_id] = moved
        understudy.queue.put_back([moved])
        understudy.usage.note(now)
        self._state.touch(understudy)

    def as_told(self, entry: Entry, error: MoorageError) -> MoorageError:
        """What the caller is told: of a request that was tried on several devices, where, and what came of it last."""
        if not entry.tried or isinstance(error, DeadlineExceeded | Preempted):
            return error
        model = self._state.models[entry.request.model]
        self.counts_of(model).oom_refused += 1
        what = f"a run of {entry.request.rows} rows of model '{model.key.name}'"
        if model.understudy_of is None or model.spec.devices[0] in entry.tried:
            return OutOfMemory(what, entry.tried)
        return OutOfMemory(what, entry.tried, f"on {model.spec.devices[0]}: {error.message}")


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
