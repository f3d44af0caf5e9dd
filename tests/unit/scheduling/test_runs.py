from moorage.domain.errors import ContractBroken
from moorage.domain.model import Isolation, ModelKey, SharePolicy
from moorage.scheduling import events
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec

PINNED = SharePolicy(pinned=True)


def test_a_busy_model_fills_its_next_run_meanwhile() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=4))
    decided = [core.arrive(make_request(number)) for number in range(1, 8)]
    assert decided == [["execute 1"], [], [], [], [], [], []]
    assert core.finish(1) == ["succeed 1", "execute 2 3 4 5"]
    assert core.finish(2) == ["succeed 2 3 4 5", "execute 6 7"]
    assert core.finish(3) == ["succeed 6 7"]


def test_models_run_beside_each_other() -> None:
    core = Core()
    first, second = core.resident(make_spec("first")), core.resident(make_spec("second"))
    assert core.arrive(make_request(1, model=first)) == ["execute 1"]
    assert core.arrive(make_request(2, model=second)) == ["execute 2"]


def test_who_failed_a_batch_is_found_by_halving_it_before_the_others_go_on() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8))
    core.ask(100)
    for number in range(1, 8):
        core.now += 0.1
        core.ask(number)
    core.finish(1)
    core.now += 0.1
    core.ask(8)
    assert core.fail(2) == ["execute 1 2 3 4"]
    assert core.finish(3) == ["succeed 1 2 3 4", "execute 5 6 7"]
    assert core.fail(4) == ["execute 5 6"]
    assert core.fail(5) == ["execute 5"]
    assert core.finish(6) == ["succeed 5", "execute 6"]
    assert core.fail(7) == ["fail 6: InferenceFailed", "execute 7"]
    assert core.finish(8) == ["succeed 7", "execute 8"]


def test_halves_stay_together_where_somebody_else_came_between_them() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8))
    core.ask(100)
    for number in range(1, 5):
        core.ask(number)
    core.finish(1)
    core.now += 0.1
    core.ask(5)
    core.ask(6, priority=1)
    assert core.fail(2) == ["execute 6"]
    assert core.finish(3) == ["succeed 6", "execute 1 2"]
    assert core.finish(4) == ["succeed 1 2", "execute 3 4"]


def test_where_the_model_broke_its_contract_everybody_is_told() -> None:
    core = Core()
    core.resident()
    core.ask(100)
    for number in (1, 2):
        core.ask(number)
    core.finish(1)
    broken = ContractBroken("model", "id", "output 'y': expected 2 rows, got 1")
    failed = core.send(events.RunFailed(2, broken))
    assert failed == ["fail 1: ContractBroken", "fail 2: ContractBroken"]


def test_a_failed_batch_of_three_is_halved_too() -> None:
    core = Core()
    core.resident()
    for number in (1, 2, 3):
        core.now += 0.1
        core.ask(number)
    core.finish(1)
    core.now += 0.1
    core.ask(4)
    assert core.fail(2) == ["execute 2"]
    assert core.fail(3) == ["fail 2: InferenceFailed", "execute 3"]
    assert core.finish(4) == ["succeed 3", "execute 4"]


def test_what_comes_of_a_run_that_ended_before_is_ignored() -> None:
    core = Core()
    core.resident()
    core.arrive(make_request(1))
    core.lose()
    core.recover()
    assert core.finish(1) == []
    assert core.fail(1) == []


def test_a_run_lost_with_its_worker_is_tried_again_but_not_for_ever() -> None:
    core = Core(Limits(max_attempts=2))
    core.resident()
    core.arrive(make_request(1))
    assert core.lose() == []
    core.recover()
    assert core.loaded() == ["execute 1"]
    assert core.lose() == ["fail 1: WorkerLost"]


def test_a_run_takes_its_memory_and_gives_it_back() -> None:
    core = Core(cpu=100)
    core.resident(make_spec(weights=10, fixed=20, per_row=5))
    core.arrive(make_request(1, rows=2))
    assert core.free_bytes() == 60
    core.finish(1)
    assert core.free_bytes() == 90


def test_a_batch_is_as_large_as_memory_allows() -> None:
    core = Core(cpu=40)
    core.resident(make_spec(weights=10, per_row=10, max_batch_size=8))
    core.arrive(make_request(1))
    for number in range(2, 7):
        core.arrive(make_request(number))
    assert core.finish(1) == ["succeed 1", "execute 2 3 4"]


def test_who_waits_for_memory_is_served_in_turn_and_not_passed_over() -> None:
    core = Core(cpu=100)
    keys = [core.resident(make_spec(name, weights=0, fixed=size)) for name, size in [("a", 60), ("b", 50), ("c", 30)]]
    free = core.resident(make_spec("free", weights=0))
    for number, key in enumerate([*keys, free], start=1):
        decided = core.arrive(make_request(number, model=key))
        assert decided == ([f"execute {number}"] if number in {1, 4} else [])
    assert core.finish(1) == ["succeed 1", "execute 2", "execute 3"]


def test_the_one_that_ran_last_lines_up_behind_those_that_waited() -> None:
    core = Core(cpu=100)
    a, b = (core.resident(make_spec(name, weights=0, fixed=60)) for name in "ab")
    core.arrive(make_request(1, model=a))
    core.arrive(make_request(2, model=a))
    core.arrive(make_request(3, model=b))
    assert core.finish(1) == ["succeed 1", "execute 3"]
    assert core.finish(2) == ["succeed 3", "execute 2"]


def test_a_run_that_others_weights_leave_no_room_for_is_refused_and_holds_nobody_up() -> None:
    core = Core(cpu=100)
    core.resident(make_spec("other", weights=60, share=PINNED))
    model = core.resident(make_spec(weights=10, per_row=15))
    assert core.arrive(make_request(1, model=model, rows=2)) == ["execute 1"]
    assert core.arrive(make_request(2, model=model, rows=3)) == []
    assert core.arrive(make_request(3, model=model, rows=1)) == []
    assert core.finish(1) == ["succeed 1", "fail 2: MemoryExhausted", "execute 3"]


def test_it_waits_where_something_leaves() -> None:
    core = Core(cpu=100)
    other = core.resident(make_spec("other", weights=60))
    core.resident(make_spec(weights=10, per_row=15))
    assert core.unload(other) == ["unload other/1 on cpu"]
    assert core.arrive(make_request(1, rows=3)) == []
    assert core.unloaded(other) == ["unloaded other/1", "execute 1"]


def test_it_waits_for_one_that_leaves_when_its_last_run_has_ended() -> None:
    core = Core(cpu=100)
    other = core.resident(make_spec("other", weights=60))
    core.resident(make_spec(weights=10, per_row=15))
    core.arrive(make_request(1, model=other))
    core.unload(other)
    assert core.arrive(make_request(2, rows=3)) == []
    assert core.finish(1) == ["succeed 1", "unload other/1 on cpu"]
    assert core.unloaded(other) == ["unloaded other/1", "execute 2"]


def test_when_none_is_left_to_wait_the_line_is_left() -> None:
    core = Core(cpu=100)
    core.resident(make_spec("other", weights=80, share=PINNED))
    core.resident(make_spec(weights=10, fixed=10, per_row=5))
    assert core.arrive(make_request(1)) == ["fail 1: MemoryExhausted"]
    assert len(core.scheduler.state.devices["cpu"].ready) == 0


def test_nothing_is_sent_to_a_worker_that_is_being_killed() -> None:
    core = Core()
    core.resident()
    slow = core.register(make_spec("slow", load_timeout_s=5.0))
    core.load(slow)
    assert core.wait_until(5.0) == ["kill cpu"]
    assert core.arrive(make_request(1)) == []
    assert core.lose() == ["not loaded slow/1: LoadFailed", "start cpu"]
    core.up()
    assert core.loaded() == ["execute 1"]


def test_the_line_moves_on_when_its_head_loses_its_worker() -> None:
    core = Core(cpu=100)
    core.resident(make_spec("runner", weights=0, fixed=60))
    head = core.resident(make_spec("head", weights=0, fixed=50, isolation=Isolation.DEDICATED))
    core.resident(make_spec("next", weights=0, fixed=40))
    core.arrive(make_request(1, model=ModelKey("runner", 1)))
    core.arrive(make_request(2, model=head))
    assert core.arrive(make_request(3, model=ModelKey("next", 1))) == []
    assert core.lose("cpu/head/1") == ["execute 3"]


def test_after_a_crash_requests_are_tried_one_by_one() -> None:
    core = Core()
    core.resident()
    for number in (1, 2, 3):
        core.arrive(make_request(number))
    assert core.finish(1) == ["succeed 1", "execute 2 3"]
    core.lose()
    core.recover()
    assert core.loaded() == ["execute 2"]
    assert core.finish(3) == ["succeed 2", "execute 3"]
