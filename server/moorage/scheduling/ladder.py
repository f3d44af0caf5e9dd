"""What becomes of a run that found no memory though the ledger had it: step by step, from what costs least.

Its worker has given back what it had cached. It is tried again whole, with no other run of its model beside it, and
once more when idle models have made way; then in halves, each by itself, down to one row; then on another device, or
the model's fallback (understudies.py); and only who finds none there either is refused.
"""

from moorage.domain.errors import MemoryExhausted, MoorageError, OutOfMemory
from moorage.scheduling.actions import Run
from moorage.scheduling.candidates import Candidates
from moorage.scheduling.ceilings import RowCeiling, Spacing
from moorage.scheduling.claims import Claim
from moorage.scheduling.departures import Departures
from moorage.scheduling.entries import Entry
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.requests import Requests
from moorage.scheduling.runs import Runs
from moorage.scheduling.state import State
from moorage.scheduling.stepping import Steps
from moorage.scheduling.understudies import Understudies
from moorage.scheduling.victims import Victim, choose


class Ladder:
    """Decides about runs that ran out of memory."""

    def __init__(
        self,
        state: State,
        requests: Requests,
        runs: Runs,
        steps: Steps,
        candidates: Candidates,
        departures: Departures,
    ) -> None:
        self._state = state
        self._requests = requests
        self._runs = runs
        self._steps = steps
        self._candidates = candidates
        self._departures = departures
        self._understudies = Understudies(state)

    def failed(self, run: Run, error: MoorageError, now: float) -> None:
        """A run, or step, that has ended failed as a whole."""
        if run.step is not None:
            self._steps.forget_members(run)
        if isinstance(error, MemoryExhausted):
            self._ran_out(run, error, now)
        else:
            self._runs.failed(run, error, now)

    def _ran_out(self, run: Run, error: MemoryExhausted, now: float) -> None:
        """It found no memory; where the error is no OutOfMemory, it was not its device's that was too small for it."""
        model = self._state.models[run.key]
        counts = self._understudies.counts_of(model)
        counts.out_of_memory += 1
        if isinstance(error, OutOfMemory) and self._is_tried_whole(model, run, now):
            return
        if len(run.entries) > 1:
            counts.oom_halved += 1
        self._runs.failed(run, error, now)
        self._lower_ceiling(model, run.rows, now)

    def _is_tried_whole(self, model: ModelRecord, run: Run, now: float) -> bool:
        """Whether it is tried again as it was, as it may find memory once nothing else of its model runs, or once idle
        models have left."""
        counts, alive = self._understudies.counts_of(model), self._runs.alive(run)
        if self._had_company(model, run, now) and alive:
            counts.oom_alone += 1
        elif self._others_make_way(model, run, alive, now):
            counts.oom_evicted += 1
        else:
            return False
        if run.step is None:
            self._runs.set_apart(alive)
        self._runs.put_back(run, alive)
        return True

    def _had_company(self, model: ModelRecord, run: Run, now: float) -> bool:
        """Whether another run of its model was beside it. If so, none is beside another for a while; until one finds no
        memory by itself either, as then it was not for its company."""
        if model.spec.instances == 1:
            return False
        if any(entry.stands_alone for entry in run.entries) or model.beside_s < run.started_s:
            model.kept_apart = Spacing()
            return False
        if model.kept_apart.allows(now):
            model.kept_apart.note(now)
        return True

    def _lower_ceiling(self, model: ModelRecord, rows: int, now: float) -> None:
        """A run of so many rows found no memory: for a while the next ones have fewer."""
        model.ceiling = model.ceiling or RowCeiling()
        model.ceiling.ran_out(rows, now)
        if model.spec.batching.split_requests:
            most_rows = model.ceiling.most_rows(model.spec.max_batch_size, now)
            for entry in list(model.queue):
                self._requests.split(model, entry, most_rows)

    def _others_make_way(self, model: ModelRecord, run: Run, alive: list[Entry], now: float) -> bool:
        """Put out idle models, as many as free what the run was to take once more; False where there is nobody.

        Nobody knows what it lacked. Once for each request, and ever more seldom for a model that goes on like this.
        """
        if not alive or any(entry.made_room for entry in alive) or not model.room_made.allows(now):
            return False
        idle = self._idle(model, run, alive, now)
        if not idle:
            return False
        for victim in choose([idle], max(1, run.workspace.size_bytes)) or idle:
            self._departures.evict(self._state.models[victim.key], now)
            model.behind.add(victim.key)
        self._state.awaiting[model.key] = None
        model.room_made.note(now)
        for entry in alive:
            entry.made_room = True
        return True

    def _idle(self, model: ModelRecord, run: Run, alive: list[Entry], now: float) -> list[Victim]:
        """Who could make way, of the same priority or a lower one."""
        device = self._state.device_of(model)
        priority = min(entry.priority for entry in alive)
        place = min(self._state.place_of(model, entry) for entry in alive)
        claim = Claim(model.key, place, priority, run.workspace.size_bytes, model.semaphore, model.key)
        return [
            victim
            for victim in self._candidates.idle(device, claim, now, guarded=True)
            if victim.priority >= priority and _frees_for(model, self._state.models[victim.key])
        ]


def _frees_for(model: ModelRecord, other: ModelRecord) -> bool:
    """Whether a model finds more memory once another has left their device.

    A card's memory is one for all processes. On the host it is not for want of that that a process is told no, but for
    a bound of its own, of its address space: only what lives in the same process counts.
    """
    assert model.device is not None
    return model.device.partition(":")[0] != "cpu" or other.worker == model.worker
