"""A model that may have several runs at once, in the core."""

from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_spec


def with_instances(instances: int, *, slots: int = 8, capacity: int = 100, **options: object) -> Core:
    """A model that is in memory, whose runs have one request each."""
    core = Core.on(DeviceLimits(capacity, run_slots=slots), UNGUARDED)
    core.resident(make_spec(instances=instances, max_batch_size=1, **options))  # type: ignore[arg-type]
    return core
