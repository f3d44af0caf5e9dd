"""Workers beside each other, and one whose end the scheduler has not heard of yet."""

import os
import signal

import pytest

from moorage.domain.model import ModelKey
from moorage.scheduling.actions import Run
from moorage.scheduling.budget import Lease, LeaseKind
from moorage.scheduling.events import Event, ModelLoaded, WorkerLost, WorkerUp
from moorage.workers import pool as pools
from moorage.workers.pool import WorkerPool
from tests.support.one_worker import NAME, OneWorker, with_worker
from tests.support.scheduling import MODEL, make_spec

NEWCOMER = f"{NAME}/own/1"


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


async def _load_beside(worker: OneWorker, *, stopped: bool) -> None:
    """Have a newcomer load while the first worker is to give back what it has cached."""
    worker.pool.start(NEWCOMER, "cpu")
    await worker.next(WorkerUp)
    if stopped:
        os.kill(worker.pool.pids[NAME], signal.SIGSTOP)
    worker.pool.give_back(NAME)
    worker.pool.load(NEWCOMER, ModelKey("own", 1), make_spec("own"))


def test_a_load_goes_on_when_others_have_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_GIVEN_BACK_WITHIN_S", 1000.0)

    async def scenario(worker: OneWorker) -> None:
        await _load_beside(worker, stopped=False)
        await worker.next(ModelLoaded)

    with_worker(scenario)


def test_a_load_waits_for_others_until_they_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_GIVEN_BACK_WITHIN_S", 1000.0)

    async def scenario(worker: OneWorker) -> None:
        await _load_beside(worker, stopped=True)
        # It gives no sign of life, and is killed for that: a second later than the load would take.
        assert (await worker.next(WorkerLost)).worker == NAME
        await worker.next(ModelLoaded)

    with_worker(scenario)


def test_nobody_waits_long_for_others(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(pools, "_GIVEN_BACK_WITHIN_S", 0.01)

    async def scenario(worker: OneWorker) -> None:
        await _load_beside(worker, stopped=True)
        await worker.next(ModelLoaded)
        assert f"worker {NEWCOMER} begins a load though others still hold cached memory" in caplog.text

    with_worker(scenario)
