"""How a play ends: everybody is served who can be, everything that was asked for has ended, and nothing is left."""

from moorage.domain.model import ModelState
from moorage.scheduling import events
from tests.properties.world import World


def ends_well(world: World) -> None:
    """Let run to rest, every request has an answer, and every load and unload that was asked for has ended."""
    for name, limits in world.devices.items():
        world.send(events.CapacityChanged(name, limits.capacity_bytes))
    for hold_id in sorted(world.holds | world.holds_asked):
        world.let_go(hold_id)
    for request_id in world.paused:
        if request_id % 2:
            world.resume(request_id)
    _nobody_starves(world)
    world.come_to_rest()
    state = world.scheduler.state
    assert not world.waiting
    assert not world.loads_asked, f"{world.loads_asked} never ended"
    assert not world.unloads_asked
    assert not state.building
    assert len(state.timers) == 0
    assert not state.split
    moving = {ModelState.LOADING, ModelState.UNLOADING, ModelState.OFFLOADING, ModelState.RESTORING}
    assert not {model.state for model in state.models.values()} & moving
    for key in [key for key in state.models if not key.is_understudy]:
        world.unload(key)
    world.come_to_rest()
    assert not state.models
    assert not world.unloads_asked
    for name, device in state.devices.items():
        workers = [worker for worker in state.workers.values() if worker.device == name]
        own = [lease for worker in workers for lease in (worker.context, *worker.retained.values()) if lease]
        assert device.budget.leased_bytes == sum(lease.size_bytes for lease in own)
        assert device.host.leased_bytes == 0
        assert all(worker.worker == name for worker in workers), "a dedicated worker outlived its model"


def _nobody_starves(world: World) -> None:
    """Arrivals have stopped: while deadlines are far, everybody who can be served is, before anybody expires."""
    world.answer_everything()
    for _ in range(100):
        waiting = [request for request in world.waiting.values() if request.request_id not in world.paused]
        patient = [request for request in waiting if request.deadline_s > world.now + 60.0]
        if not patient:
            return
        wake_s = world.scheduler.next_wake_s
        if wake_s is None or wake_s > world.now + 60.0:
            raise AssertionError(f"{patient} wait for nothing but their deadlines")
        world.wake()
        world.answer_everything()
    raise AssertionError("somebody waits for ever")
