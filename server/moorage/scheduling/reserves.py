"""What is reserved for a model stays its own when its work or its weights go: others gain nothing by that."""

from dataclasses import replace

from moorage.domain.model import ModelKey
from moorage.scheduling.claims import Claim
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.victims import Victim, Way, order_of_leaving


class Reserves:
    """Counts what victims would free for one claim. Those of one model are counted together, stage by stage."""

    def __init__(self, state: State, device: DeviceRecord, claim: Claim) -> None:
        self._state = state
        self._device = device
        self._claim = claim
        self._uncounted_bytes: dict[ModelKey, int] = {}

    def without(self, stage: list[Victim]) -> list[Victim]:
        """The same victims, each with what comes free for the claim: not what is reserved for the victim's model."""
        if not any(self._state.models[victim.key].share.reserved_bytes for victim in stage):
            return stage
        return [self._freeing(victim) for victim in sorted(stage, key=order_of_leaving)]

    def _freeing(self, victim: Victim) -> Victim:
        model = self._state.models[victim.key]
        if not model.share.reserved_bytes or victim.key == self._claim.key:
            return victim
        if victim.key not in self._uncounted_bytes:
            self._uncounted_bytes[victim.key] = self._beyond_reserved_bytes(model)
        left_bytes = self._uncounted_bytes[victim.key]
        context_bytes = process_bytes(self._state, model) if victim.way in {Way.KILL, Way.END} else 0
        size_bytes = min(victim.size_bytes, left_bytes + context_bytes)
        self._uncounted_bytes[victim.key] = left_bytes - max(0, size_bytes - context_bytes)
        return replace(victim, size_bytes=size_bytes)

    def _beyond_reserved_bytes(self, model: ModelRecord) -> int:
        """Of what a model holds, what others could have once it goes, and is not on its way to them already."""
        share = model.semaphore
        leases = self._device.budget.leases
        leaving_bytes = sum(lease.size_bytes for lease in leases if lease.share is share and lease.leaving)
        return max(0, share.held_bytes - leaving_bytes - share.reserved_bytes)


def process_bytes(state: State, model: ModelRecord) -> int:
    """What the end of a dedicated model's process would free besides its weights."""
    worker = state.worker_of(model)
    if worker is None or not worker.dedicated or worker.context is None or worker.context.leaving:
        return 0
    return worker.context.size_bytes
