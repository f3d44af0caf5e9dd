"""What the scheduler keeps of each model and each worker process."""

from dataclasses import dataclass, field
from enum import StrEnum

from moorage.domain.errors import MoorageError
from moorage.domain.model import Footprint, ModelKey, ModelSpec, ModelState, RatePolicy, SharePolicy
from moorage.domain.tensor import Datatype, TensorSpec
from moorage.scheduling.actions import Run
from moorage.scheduling.budget import Lease
from moorage.scheduling.ceilings import RowCeiling, Spacing
from moorage.scheduling.company import Company
from moorage.scheduling.entries import Entry
from moorage.scheduling.estimates import RunSeconds
from moorage.scheduling.paying import PayingRows
from moorage.scheduling.queue import ModelQueue
from moorage.scheduling.rates import RateLimit
from moorage.scheduling.semaphore import MemorySemaphore
from moorage.scheduling.usage import Usage
from moorage.scheduling.workspaces import Workspaces


class WorkerState(StrEnum):
    """starting -> up -> stopping; all of them -> down when the process ends, and down -> starting.

    stopping: told to end, or being killed. It is sent nothing more.
    """

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """One worker process, also while it is down.

    context: its own memory. Kept through a back-off, so that no newcomer takes the place of what comes back.
    models: those that live in it. loading: what it builds now; one at a time.
    crashes: ends in a row that nobody asked for. device_lost: it is about to end because it can't use its device.
    retained: what models left behind that were to free it; it comes free only with the process.
    """

    worker: str
    device: str
    dedicated: bool
    state: WorkerState = WorkerState.DOWN
    context: Lease | None = None
    models: dict[ModelKey, None] = field(default_factory=dict)
    loading: ModelKey | None = None
    crashes: int = 0
    device_lost: bool = False
    up_since_s: float = 0.0
    restart_at_s: float | None = None
    retained: dict[ModelKey, Lease] = field(default_factory=dict)

    @property
    def startable(self) -> bool:
        """Down, and no back-off holds it."""
        return self.state is WorkerState.DOWN and self.restart_at_s is None


@dataclass(slots=True)
class Counts:
    """What happened to a model since it was registered; of its understudies, too, where memory was not found.

    oom_*: what was done about a run that found none, see ResidencyCounts.
    """

    loads: int = 0
    evictions: int = 0
    restores: int = 0
    preemptions: int = 0
    out_of_memory: int = 0
    oom_alone: int = 0
    oom_evicted: int = 0
    oom_halved: int = 0
    oom_other_device: int = 0
    oom_fallback: int = 0
    oom_refused: int = 0


@dataclass(slots=True)
class Measured:
    """What is known of a model's costs, from before or from this life of the server. None: not yet.

    device: where it was measured in this life.
    """

    device: str | None = None
    weights_bytes: int | None = None
    load_s: float | None = None
    restore_s: float | None = None
    state_bytes: int | None = None
    state_growth_bytes: int = 0
    step_s: float = 0.0


@dataclass(slots=True, eq=False)
class ModelRecord:
    """One registered model.

    weights: kept while its worker is brought back, so that no newcomer takes its place. host: for its weights while
    they are offloaded. first_run: workspace leased together with the weights, for the warm-up and the request that
    brought it in. cold: it comes without its warm-up, for which there is no memory.
    runs: under way, in the order of their beginnings; of a stepped model one step at most. active: stepped requests
    whose states its worker has, beyond those in the queue and the parked. parked: paused ones, in no queue.
    in_service: it was loaded or is to be, so that a request brings it in again. wanted: a load was asked for and is
    not settled. asked_s: when. closing: takes no new work, and goes when it is idle. evicted: going to make
    room. killed: its process is being ended to make room.
    seconds, workspaces: of its runs, by their rows. paying: how many of these pay. ceiling: of the rows of a run, once
    one has found no memory.
    profiled_on: the kind of device whose profile they began with.
    room_made: how often others make way for its runs that found no memory. behind: those who do just now.
    beside_s: when a run of its last began beside another. kept_apart: how often they are tried beside each other,
    though one of them found no memory there.
    understudies: by their devices; understudy_of: whose it is, if it is one.
    rows_vary: in bytes of input. company: callers who are expected back; company_until_s: it could run, and waits for
    them until then.
    came_s: since when it is in memory; way_in_s: how long its coming took. served_s: when it last had a turn.
    due_s: when the next is due, by its share of the device's seconds. back_until_s: callers who come by then had only
    gone for a moment.
    way_began_s: since when it is loaded or restored now. worst_wait_s: no wait for it is taken to be longer, by what
    its runs took lately, with up to worst_wait_rows waiting. slow_run_s: a run that takes longer says that this is
    wrong; 0 where nothing is known.
    load_crashes: workers that died while they built it. load_failures: loads in a row that failed; not before
    retry_at_s is it tried again.
    failure: why it must not stay, decided while a worker still holds its memory.
    quarantined_in: a worker that kept memory of it when it was to go; it does not come back before that has ended.
    """

    key: ModelKey
    spec: ModelSpec
    queue: ModelQueue
    rate: RateLimit | None
    company: Company
    seconds: RunSeconds
    workspaces: Workspaces
    paying: PayingRows
    share: SharePolicy
    semaphore: MemorySemaphore
    usage: Usage
    measured: Measured
    rows_vary: bool
    state: ModelState = ModelState.UNLOADED
    reason: str = ""
    device: str | None = None
    worker: str | None = None
    weights: Lease | None = None
    host: Lease | None = None
    first_run: Lease | None = None
    cold: bool = False
    runs: list[Run] = field(default_factory=list)
    active: dict[int, Entry] = field(default_factory=dict)
    parked: dict[int, Entry] = field(default_factory=dict)
    stepped: bool = False
    can_offload: bool = False
    in_service: bool = False
    wanted: bool = False
    may_evict: bool = True
    asked_s: float = 0.0
    closing: bool = False
    evicted: bool = False
    killed: bool = False
    came_s: float = float("-inf")
    way_in_s: float = 0.0
    way_began_s: float = 0.0
    worst_wait_s: float = float("inf")
    worst_wait_rows: int = 0
    slow_run_s: float = 0.0
    served_s: float = float("-inf")
    due_s: float = float("-inf")
    back_until_s: float = float("-inf")
    ceiling: RowCeiling | None = None
    profiled_on: str = ""
    room_made: Spacing = field(default_factory=Spacing)
    behind: set[ModelKey] = field(default_factory=set)
    beside_s: float = float("-inf")
    kept_apart: Spacing = field(default_factory=Spacing)
    understudies: dict[str, ModelKey] = field(default_factory=dict)
    understudy_of: ModelKey | None = None
    load_crashes: int = 0
    load_failures: int = 0
    retry_at_s: float = 0.0
    load_deadline_s: float = 0.0
    move_deadline_s: float = 0.0
    states_deadline_s: float = 0.0
    company_until_s: float | None = None
    failure: MoorageError | None = None
    quarantined_in: str | None = None
    counts: Counts = field(default_factory=Counts)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Requests of it that may have a state somewhere."""
        return (*self.active.values(), *self.parked.values(), *self.queue)

    def park(self, entry: Entry) -> None:
        """Have a paused request wait beside the queue."""
        self.parked[entry.request.request_id] = entry

    @property
    def most_rows(self) -> int:
        """Of a run of several requests, as far as more of them pay; who says how many a run is to have knows better."""
        policy, most_rows = self.spec.batching, max(1, self.spec.max_batch_size)
        if policy.preferred_sizes:
            return most_rows
        return min(most_rows, max(self.paying.rows, policy.low_watermark))

    @property
    def run(self) -> Run | None:
        """The longest under way: of a model with one instance, or a stepped one, the only one."""
        return self.runs[0] if self.runs else None

    @property
    def has_free_instance(self) -> bool:
        """Whether a run may begin beside those under way, as far as the model is concerned."""
        return len(self.runs) < self.spec.instances


def new_model(
    key: ModelKey, spec: ModelSpec, footprint: Footprint, share: SharePolicy, queue: ModelQueue
) -> ModelRecord:
    """A model that is known and not in memory."""
    return ModelRecord(
        key=key,
        spec=spec,
        queue=queue,
        rate=RateLimit(key.name, spec.rate) if spec.rate != RatePolicy() else None,
        company=Company(),
        seconds=RunSeconds(),
        workspaces=Workspaces(spec.memory),
        paying=PayingRows(max(1, spec.max_batch_size)),
        share=share,
        semaphore=MemorySemaphore(str(key), reserved_bytes=share.reserved_bytes, limit_bytes=share.limit_bytes),
        usage=Usage(footprint.uses_per_s),
        measured=Measured(None, footprint.weights_bytes, footprint.load_s, footprint.restore_s, footprint.state_bytes),
        rows_vary=any(map(_varies, spec.inputs)),
    )


def _varies(tensor: TensorSpec) -> bool:
    """Whether rows may have more or fewer bytes of it."""
    return -1 in tensor.shape or tensor.datatype is Datatype.BYTES or tensor.optional


def begin_with_profile(model: ModelRecord, device: str) -> None:
    """A model goes to a device: what was profiled on its kind is what is known, until its runs there tell more."""
    kind = device.partition(":")[0]
    if model.profiled_on == kind:
        return
    model.profiled_on = kind
    profile = model.spec.profiles.get(kind, ())
    model.seconds = RunSeconds(profile, rows_vary=model.rows_vary)
    model.workspaces = Workspaces(model.spec.memory, profile)
    model.paying = PayingRows(max(1, model.spec.max_batch_size))
    model.paying.look(model.seconds)


def footprint_of(model: ModelRecord, now: float) -> Footprint:
    """What is known of a model now, to be remembered."""
    measured = model.measured
    return Footprint(
        measured.weights_bytes, measured.load_s, measured.restore_s, measured.state_bytes, model.usage.per_s(now)
    )
