"""What the scheduler asks of a worker whose end it has not heard of yet: nothing happens, and nothing breaks."""

from moorage.scheduling.actions import Run
from moorage.scheduling.budget import Lease, LeaseKind
from moorage.scheduling.events import Event
from moorage.workers.pool import WorkerPool
from tests.support.scheduling import MODEL, make_spec


def test_a_worker_that_has_just_ended_is_asked_in_vain() -> None:
    posted: list[Event] = []
    pool = WorkerPool(posted.append, lambda model, detail: "id")
    lease = Lease("cpu", str(MODEL), LeaseKind.WORKSPACE, 0)
    run = Run(1, MODEL, "cpu", (), 0, lease, 0.0)
    pool.execute(run)
    pool.trim(run)
    pool.load("cpu", MODEL, make_spec())
    pool.unload("cpu", MODEL)
    pool.suspend("cpu", MODEL, (1, 2))
    pool.drop("cpu", MODEL, (1, 2))
    pool.offload("cpu", MODEL)
    pool.restore("cpu", MODEL)
    pool.cap("cpu", 1)
    pool.give_back("cpu")
    pool.stop("cpu")
    pool.kill("cpu", "no reason")
    assert posted == []
    assert pool.pids == {}
