"""Stepped models in a real worker: requests come and go between steps, and each fails or is answered by itself."""

from pathlib import Path

import numpy as np
import pytest

from moorage.domain.errors import InferenceFailed, MemoryExhausted
from moorage.domain.model import ModelKey, SimulatedCosts
from moorage.scheduling.events import ModelLoaded
from tests.support.stepped_worker import SteppedWorker, spec_of, values

MIB = 2**20


def test_requests_join_and_leave_between_steps(worker: SteppedWorker, running: ModelKey) -> None:
    shapes = [(1, 5), (3, 2), (2, 4)]
    first, second, third = (worker.request(running, values(*shape, seed)) for seed, shape in enumerate(shapes))
    alone = {request.request_id: worker.alone(request) for request in (first, second, third)}
    stepped = worker.step(first, starting=[first])
    assert not stepped.results[first.request_id].done
    answers = worker.step(first, second, starting=[second]).answers
    assert answers == {}
    answers |= worker.step(third, second, first, starting=[third]).answers
    assert answers.keys() == {second.request_id}
    answers |= worker.finish(first, third)
    for request_id, answer in alone.items():
        assert np.array_equal(answers[request_id], answer)


def test_results_come_in_the_order_of_the_members(worker: SteppedWorker, running: ModelKey) -> None:
    members = [worker.request(running, values(1, 3)) for _ in range(3)]
    stepped = worker.step(*members, starting=[members[2], members[0], members[1]])
    assert list(stepped.results) == [member.request_id for member in members]
    worker.drop(*members)


def test_a_state_is_measured_and_a_finished_request_keeps_none(worker: SteppedWorker, running: ModelKey) -> None:
    request = worker.request(running, values(1, 2), ballast_mib=3)
    kept = worker.step(request, starting=[request]).results[request.request_id].state_bytes
    assert 3 * MIB < kept < 3 * MIB + 1000
    assert worker.step(request).results[request.request_id].state_bytes == 0


def test_inputs_are_copies_that_last(worker: SteppedWorker, running: ModelKey) -> None:
    """Later members' inputs are written over the same memory."""
    early = worker.request(running, values(1, 4, 1))
    alone = worker.alone(early)
    worker.step(early, starting=[early])
    late = worker.request(running, values(1, 3, 2))
    worker.step(early, late, starting=[late])
    assert np.array_equal(worker.finish(early, late)[early.request_id], alone)


def test_a_start_that_fails_fails_alone(worker: SteppedWorker, running: ModelKey) -> None:
    good = [worker.request(running, values(1, 2, seed)) for seed in range(2)]
    alone = [worker.alone(member) for member in good]
    bad = worker.request(running, values(1, 2), trouble="start")
    members = [good[0], bad, good[1]]
    results = worker.step(*members, starting=members).results
    error = results[bad.request_id].error
    assert isinstance(error, InferenceFailed)
    assert "secret detail of a start" in worker.details[-1]
    assert "secret" not in str(error)
    assert f"error-{len(worker.details)}" in str(error)
    assert results[bad.request_id].state_bytes == 0
    assert [results[member.request_id].error for member in good] == [None, None]
    answers = worker.finish(*good)
    assert all(np.array_equal(answers[one.request_id], answer) for one, answer in zip(good, alone, strict=True))


def test_a_step_of_members_that_all_fail_to_start_is_a_step(worker: SteppedWorker, running: ModelKey) -> None:
    bad = worker.request(running, values(1, 2), trouble="start")
    assert isinstance(worker.step(bad, starting=[bad]).results[bad.request_id].error, InferenceFailed)


def test_a_step_that_raises_takes_all_its_states_along_and_no_others(worker: SteppedWorker, running: ModelKey) -> None:
    apart, mate = (worker.request(running, values(1, 3, seed)) for seed in range(2))
    alone = worker.alone(mate)
    bad = worker.request(running, values(1, 3), trouble="step")
    worker.step(apart, starting=[apart])
    worker.step(mate, bad, starting=[mate, bad])
    failed = worker.step(mate, bad)
    assert isinstance(failed.error, InferenceFailed)
    assert "secret detail of a step" in worker.details[-1]
    assert isinstance(worker.step(mate).error, InferenceFailed)
    assert np.array_equal(worker.alone(mate), alone)
    assert worker.step(apart).error is None
    worker.drop(apart)


def test_want_of_memory_is_told_apart(worker: SteppedWorker, running: ModelKey) -> None:
    request = worker.request(running, values(1, 3), trouble="memory")
    assert isinstance(worker.step(request, starting=[request]).error, MemoryExhausted)


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("count", "step returned 1 Steps for 2 states"),
        ("kind", "step must return a list of Steps, got list of dict"),
    ],
)
def test_a_step_that_is_not_what_was_promised(
    worker: SteppedWorker, running: ModelKey, trouble: str, told: str
) -> None:
    members = [worker.request(running, values(1, 3), trouble=trouble) for _ in range(2)]
    assert isinstance(worker.step(*members, starting=members).error, InferenceFailed)
    assert told in worker.details[-1]


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("no outputs", "step returned a Step with done=True and no outputs"),
        ("datatype", "output 'y': expected dtype torch.float32 (FP32), got torch.float64"),
    ],
)
def test_an_answer_that_is_not_what_was_declared_fails_alone(
    worker: SteppedWorker, running: ModelKey, trouble: str, told: str
) -> None:
    good, bad = worker.request(running, values(1, 1)), worker.request(running, values(1, 1), trouble=trouble)
    stepped = worker.step(bad, good, starting=[bad, good])
    assert isinstance(stepped.results[bad.request_id].error, InferenceFailed)
    assert told in worker.details[-1]
    assert stepped.answers.keys() == {good.request_id}


def test_outputs_of_a_step_that_is_not_the_last_are_ignored(worker: SteppedWorker, running: ModelKey) -> None:
    plain, early = worker.request(running, values(1, 3)), worker.request(running, values(1, 3), trouble="early outputs")
    assert np.array_equal(worker.alone(early), worker.alone(plain))


def test_a_size_that_is_none_fails_its_request(worker: SteppedWorker, custom: ModelKey) -> None:
    bad = worker.request(custom, values(1, 3), trouble="negative")
    error = worker.step(bad, starting=[bad]).results[bad.request_id].error
    assert isinstance(error, InferenceFailed)
    assert "state_bytes must return an int of at least 0, got -1" in worker.details[-1]


def test_a_simulated_model_takes_the_steps_that_its_table_says(worker: SteppedWorker, tmp_path: Path) -> None:
    costs = SimulatedCosts(run_s=0.001, run_s_per_row=0.001, steps=3, state_bytes=123)
    loaded = worker.load(spec_of("simulated", "simulated", tmp_path, costs))
    assert isinstance(loaded, ModelLoaded)
    assert loaded.stepped
    early, late = worker.request(loaded.key, values(2, 5)), worker.request(loaded.key, values(1, 5))
    assert worker.step(early, starting=[early]).results[early.request_id].state_bytes == 123
    worker.step(early, late, starting=[late])
    assert worker.suspend(late) == ({late.request_id}, set())
    assert worker.step(early).answers[early.request_id].tolist() == [[0.0], [0.0]]
    worker.step(late, resuming=[late])
    assert worker.step(late).answers[late.request_id].shape == (1, 1)
    assert isinstance(worker.step(late).error, InferenceFailed)


def test_a_worker_says_which_models_are_stepped(worker: SteppedWorker, running: ModelKey, tmp_path: Path) -> None:
    plain = worker.load(spec_of("plain", "simulated", tmp_path))
    assert isinstance(plain, ModelLoaded)
    assert not plain.stepped
