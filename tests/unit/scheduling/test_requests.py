import pytest

from moorage.domain.model import ModelKey, QueuePolicy
from moorage.scheduling.events import DrainStarted
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec


def test_a_request_for_a_model_that_nobody_knows_is_refused() -> None:
    assert Core().arrive(make_request(1)) == ["fail 1: ModelNotFound"]


def test_a_request_waits_for_its_model_to_load() -> None:
    core = Core()
    core.register()
    core.load()
    assert core.arrive(make_request(1)) == []
    core.up()
    assert core.loaded() == ["loaded model/1", "execute 1"]


def test_the_queue_is_bounded() -> None:
    core = Core()
    core.register(make_spec(queue=QueuePolicy(max_rows=2)))
    core.load()
    assert [core.arrive(make_request(number)) for number in (1, 2, 3)] == [[], [], ["fail 3: QueueFull"]]


@pytest.mark.parametrize("running", [True, False])
def test_a_request_ends_at_its_deadline(running: bool) -> None:
    core = Core()
    if running:
        core.resident()
    else:
        core.register()
        core.load()
    core.arrive(make_request(1, deadline_s=5.0))
    assert core.wait_until(4.9) == []
    assert core.wait_until(5.0) == ["fail 1: DeadlineExceeded"]
    assert core.cancel(1) == []


def test_the_deadline_of_an_answered_request_means_nothing() -> None:
    core = Core()
    core.resident()
    core.arrive(make_request(1, deadline_s=5.0))
    core.finish(1)
    assert core.wait_until(5.0) == []


def test_a_late_wake_up_runs_nothing_that_expired() -> None:
    core = Core()
    core.resident()
    core.arrive(make_request(1))
    core.arrive(make_request(2, deadline_s=5.0))
    core.arrive(make_request(3))
    core.now = 6.0
    assert core.finish(1) == ["fail 2: DeadlineExceeded", "succeed 1", "execute 3"]


def test_an_expired_request_is_refused_at_the_door() -> None:
    core = Core()
    core.resident()
    assert core.arrive(make_request(1, deadline_s=0.0)) == ["fail 1: DeadlineExceeded"]


def test_a_cancelled_request_leaves_the_queue_and_disturbs_nobody() -> None:
    core = Core()
    core.resident()
    for number in (1, 2, 3):
        core.arrive(make_request(number))
    assert core.cancel(2) == []
    assert core.finish(1) == ["succeed 1", "execute 3"]


def test_a_request_cancelled_in_its_run_is_not_tried_again() -> None:
    core = Core()
    core.resident()
    core.arrive(make_request(1))
    core.arrive(make_request(2))
    core.arrive(make_request(3))
    core.finish(1)
    core.cancel(2)
    assert core.fail(2) == ["execute 3"]


def test_cancelling_what_is_unknown_is_harmless() -> None:
    assert Core().cancel(99) == []


def test_when_the_head_of_the_line_for_memory_leaves_the_next_may_go() -> None:
    """`big` waits for memory that `runner` holds, and `small` behind it, though there is room for it."""
    core = Core(cpu=100)
    runner = core.resident(make_spec("runner", weights=0, fixed=60))
    big = core.resident(make_spec("big", weights=0, per_row=30))
    small = core.resident(make_spec("small", weights=0, fixed=10))
    core.arrive(make_request(1, model=runner))
    core.arrive(make_request(2, model=big, rows=2))
    core.arrive(make_request(3, model=small))
    assert core.arrive(make_request(4, model=big)) == []
    assert core.cancel(2) == ["execute 4", "execute 3"]


def test_when_the_only_one_of_the_head_leaves_the_next_may_go() -> None:
    core = Core(cpu=100)
    runner = core.resident(make_spec("runner", weights=0, fixed=60))
    big = core.resident(make_spec("big", weights=0, fixed=50))
    small = core.resident(make_spec("small", weights=0, fixed=10))
    core.arrive(make_request(1, model=runner))
    core.arrive(make_request(2, model=big))
    assert core.arrive(make_request(3, model=small)) == []
    assert core.cancel(2) == ["execute 3"]


def test_a_draining_server_takes_nothing_new() -> None:
    core = Core()
    core.resident()
    core.arrive(make_request(1))
    assert core.send(DrainStarted()) == []
    assert core.arrive(make_request(2)) == ["fail 2: ServerDraining"]
    assert core.finish(1) == ["succeed 1"]


def test_generations_are_models_of_their_own() -> None:
    core = Core()
    core.resident()
    assert core.arrive(make_request(1, model=ModelKey("model", 1, 1))) == ["fail 1: ModelNotFound"]
