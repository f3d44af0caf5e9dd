"""Copies of weights in host memory: those least worth keeping make way for the next model that is to be offloaded."""

from moorage.domain.model import ModelState
from moorage.scheduling.candidates import Candidates, load_s
from moorage.scheduling.claims import urgent_claim
from moorage.scheduling.departures import Departures, is_idle
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.victims import choose


class Copies:
    """Decides which offloaded models the host forgets. Their next request loads them from disk."""

    def __init__(self, state: State, candidates: Candidates, departures: Departures) -> None:
        self._state = state
        self._candidates = candidates
        self._departures = departures

    def trim(self, device: DeviceRecord, now: float) -> None:
        """Have the host ready for the model that would be put out next.

        Otherwise a host once full would stay so: of models nobody asks for any more, while those put out later were
        unloaded. The copy most worth keeping stays in any case, as where the host has room for only one model.
        Nothing goes where that would not do.
        """
        if device.host.leased_bytes == 0 or not _is_crowded(device):
            return
        missing_bytes = self._next_bytes(device, now) - device.host.free_bytes - device.host.leaving_bytes
        if missing_bytes <= 0:
            return
        copies = [model for model in device.models.values() if self._may_go(model)]
        copies.sort(key=lambda model: (-model.share.priority, self._worth(model, now), model.key))
        sizes_bytes = [model.host.size_bytes if model.host is not None else 0 for model in copies[:-1]]
        if sum(sizes_bytes) < missing_bytes:
            return
        for model, size_bytes in zip(copies, sizes_bytes, strict=False):
            if missing_bytes <= 0:
                return
            missing_bytes -= size_bytes
            self._departures.drop_copy(model, now)

    def _next_bytes(self, device: DeviceRecord, now: float) -> int:
        """What the model that would be put out next takes on the host; 0 where none goes there."""
        first = choose([self._candidates.idle(device, urgent_claim(device.name), now, guarded=False)], 1)
        model = self._state.models[first[0].key] if first else None
        if model is None or model.weights is None or not model.can_offload:
            return 0
        return model.weights.size_bytes if model.weights.size_bytes <= device.host.capacity_bytes else 0

    def _may_go(self, model: ModelRecord) -> bool:
        return (
            model.state is ModelState.OFFLOADED
            and not (model.closing or model.share.pinned or model.wanted or model.queue)
            and is_idle(model)
            and self._state.is_up(model)
        )

    def _worth(self, model: ModelRecord, now: float) -> float:
        """By the policy's measure, what a restore from here saves of a load from disk."""
        assert model.host is not None
        size_bytes = model.host.size_bytes
        saved_s = load_s(model, size_bytes) - (model.measured.restore_s or 0.0)
        return self._candidates.worth(model, size_bytes, max(0.0, saved_s), now)


def _is_crowded(device: DeviceRecord) -> bool:
    """Whether some model could not be offloaded now: only then is it worth finding out which is next."""
    sizes_bytes = (
        model.weights.size_bytes for model in device.models.values() if model.weights is not None and model.can_offload
    )
    return max(sizes_bytes, default=0) > device.host.free_bytes + device.host.leaving_bytes
