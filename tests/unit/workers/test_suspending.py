"""States of stepped requests leave the device, come back or are given up, and nobody's answer changes."""

from pathlib import Path

import numpy as np

from moorage.domain.errors import InferenceFailed, MemoryExhausted
from moorage.domain.model import ModelKey
from tests.support.stepped_models import RUNNING, code_of
from tests.support.stepped_worker import SteppedWorker, values

MIB = 2**20
# Of a state of 32 MiB. The rest is the heap's: what else lies on the pages, which come 2 MiB at a time.
AT_LEAST = 24 * MIB


def test_a_suspended_state_leaves_the_process_and_comes_back(worker: SteppedWorker, running: ModelKey) -> None:
    request = worker.request(running, values(2, 3), ballast_mib=32)
    alone = worker.alone(request)
    worker.drop(request)
    worker.step(request, starting=[request])
    with_state = worker.process.memory_info().rss
    assert worker.suspend(request) == ({request.request_id}, set())
    without_state = worker.process.memory_info().rss
    assert without_state < with_state - AT_LEAST
    stepped = worker.step(request, resuming=[request])
    assert stepped.results[request.request_id].state_bytes > 32 * MIB
    assert worker.process.memory_info().rss > without_state + AT_LEAST
    assert np.array_equal(worker.finish(request)[request.request_id], alone)


def test_suspending_one_leaves_the_others_and_the_weights_as_they_were(
    worker: SteppedWorker, running: ModelKey
) -> None:
    """Their states are views of the same results of a batch, and refer to the model's weights."""
    members = [worker.request(running, values(2, 6, seed)) for seed in range(3)]
    alone = [worker.alone(member) for member in members]
    worker.step(*members, starting=members)
    worker.step(*members)
    worker.suspend(members[1])
    worker.step(members[0], members[2])
    worker.suspend(members[0])
    worker.step(members[1], resuming=[members[1]])
    answers = worker.finish(members[1], members[2])
    worker.step(members[0], resuming=[members[0]])
    answers |= worker.finish(members[0])
    for member, answer in zip(members, alone, strict=True):
        assert np.array_equal(answers[member.request_id], answer)


def test_hundreds_of_suspensions_leave_nothing_behind(worker: SteppedWorker, running: ModelKey) -> None:
    request = worker.request(running, values(1, 220), ballast_mib=4)
    alone = worker.alone(request)
    worker.step(request, starting=[request])
    for turn in range(200):
        if turn == 20:
            warm_bytes, files = worker.process.memory_info().rss, worker.process.num_fds()
        worker.suspend(request)
        worker.step(request, resuming=[request])
    assert worker.process.memory_info().rss < warm_bytes + 2 * MIB
    assert worker.process.num_fds() == files
    assert np.array_equal(worker.finish(request)[request.request_id], alone)


def test_suspending_twice_is_suspending_once(worker: SteppedWorker, running: ModelKey) -> None:
    request = worker.request(running, values(1, 2))
    alone = worker.alone(request)
    worker.step(request, starting=[request])
    worker.suspend(request)
    assert worker.suspend(request) == ({request.request_id}, set())
    assert np.array_equal(worker.step(request, resuming=[request]).answers[request.request_id], alone)


def test_a_dropped_state_is_gone_and_its_request_can_start_again(worker: SteppedWorker, running: ModelKey) -> None:
    request = worker.request(running, values(1, 3), ballast_mib=32)
    alone = worker.alone(request)
    worker.step(request, starting=[request])
    with_state = worker.process.memory_info().rss
    worker.drop(request)
    assert worker.process.memory_info().rss < with_state - AT_LEAST
    assert isinstance(worker.step(request).error, InferenceFailed)
    assert np.array_equal(worker.alone(request), alone)


def test_a_suspended_state_can_be_dropped(worker: SteppedWorker, running: ModelKey) -> None:
    files = []
    for _ in range(3):
        request = worker.request(running, values(1, 3), ballast_mib=1)
        worker.step(request, starting=[request])
        worker.suspend(request)
        files.append(worker.process.num_fds())
        worker.drop(request)
        files.append(worker.process.num_fds())
    assert len(set(files)) == 1, "its file is kept for the next"


def test_dropping_what_was_never_there_is_no_error(worker: SteppedWorker, running: ModelKey) -> None:
    worker.drop(worker.request(running, values(1, 1)), worker.request(running, values(1, 1)))


def test_suspending_what_was_never_there_is_told_as_dropped(worker: SteppedWorker, running: ModelKey) -> None:
    there, missing = (worker.request(running, values(1, 3)) for _ in range(2))
    worker.step(there, starting=[there])
    assert worker.suspend(missing, there) == ({there.request_id}, {missing.request_id})
    worker.drop(there)


def test_an_author_may_move_and_size_states_differently(worker: SteppedWorker, custom: ModelKey) -> None:
    x = values(1, 4)
    request = worker.request(custom, x)
    assert worker.step(request, starting=[request]).results[request.request_id].state_bytes == 1000
    for moves in (1, 2):
        assert worker.suspend(request) == ({request.request_id}, set())
        stepped = worker.step(request, resuming=[request])
        assert stepped.results[request.request_id].state_bytes == 1000 + moves
    assert np.array_equal(worker.finish(request)[request.request_id], x + 2)


def test_a_state_that_cannot_be_suspended_is_dropped(worker: SteppedWorker, custom: ModelKey) -> None:
    good, bad = worker.request(custom, values(1, 3)), worker.request(custom, values(1, 3), trouble="suspend")
    worker.step(good, bad, starting=[good, bad])
    assert worker.suspend(bad, good) == ({good.request_id}, {bad.request_id})
    assert isinstance(worker.step(bad).error, InferenceFailed)
    assert worker.step(good, resuming=[good]).error is None
    worker.drop(good)


def test_no_room_to_resume_fails_the_step_and_drops_its_states(worker: SteppedWorker, custom: ModelKey) -> None:
    bad, mate = worker.request(custom, values(1, 3), trouble="resume"), worker.request(custom, values(1, 3))
    worker.step(bad, mate, starting=[bad, mate])
    worker.suspend(bad)
    assert isinstance(worker.step(bad, mate, resuming=[bad]).error, MemoryExhausted)
    assert isinstance(worker.step(mate).error, InferenceFailed)


def test_unloading_takes_suspended_states_along(worker: SteppedWorker, tmp_path: Path) -> None:
    files = worker.process.num_fds()
    key = worker.load_python(tmp_path, "leaving", code_of(RUNNING))
    requests = [worker.request(key, values(1, 3), ballast_mib=8) for _ in range(2)]
    worker.step(*requests, starting=requests)
    worker.suspend(requests[0])
    worker.unload(key)
    assert worker.process.num_fds() == files
