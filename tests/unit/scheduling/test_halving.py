"""A request whose rows find no memory together finds it in pieces, if its model splits requests; down to a row."""

from moorage.domain.errors import MemoryExhausted, ModelTooLarge
from moorage.domain.model import Loading, SharePolicy
from moorage.domain.request import StepResult
from moorage.scheduling import events
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.scheduling import make_spec
from tests.unit.scheduling.test_splitting import SPLIT, is_over, serving

NO_MEMORY = MemoryExhausted("a run", device="its device", needed_bytes=0, free_bytes=0)


def run_out(core: Core, run_id: int) -> list[str]:
    return core.send(events.RunFailed(run_id, NO_MEMORY))


def test_one_that_finds_no_memory_is_tried_in_halves_down_to_a_row() -> None:
    core = serving()
    assert core.ask(1, rows=4) == ["execute 1"]
    assert run_out(core, 1) == ["execute 1[0:2]"]
    assert run_out(core, 2) == ["execute 1[0:1]"]
    assert core.finish(3) == ["succeed 1[0:1]", "execute 1[1:2]"]
    assert core.finish(4) == ["succeed 1[1:2]", "execute 1[2:3]"]
    assert run_out(core, 5) == ["fail 1: MemoryExhausted"]
    assert is_over(core)


def test_what_found_no_memory_is_not_tried_again_by_those_behind_it() -> None:
    core = serving(make_spec(batching=SPLIT, max_batch_size=8))
    core.ask(1, rows=16)
    core.ask(2, rows=6)
    assert run_out(core, 1) == ["execute 1[0:4]"]
    assert [core.finish(number)[1] for number in (2, 3, 4, 5)] == [
        "execute 1[4:8]",
        "execute 1[8:12]",
        "execute 1[12:16]",
        "execute 2[0:4]",
    ]
    assert core.finish(6) == ["succeed 2[0:4]", "execute 2[4:6]"]
    core.finish(7)
    assert core.ask(3, rows=6) == ["execute 3[0:4]"]
    assert core.model().counts.out_of_memory == 1


def test_an_odd_number_of_rows_leaves_no_piece_above_the_ceiling() -> None:
    core = serving(make_spec(batching=SPLIT, max_batch_size=8))
    core.ask(1, rows=7)
    assert run_out(core, 1) == ["execute 1[0:3]"]
    assert core.finish(2) == ["succeed 1[0:3]", "execute 1[3:6]"]
    assert core.finish(3) == ["succeed 1[3:6]", "execute 1[6:7]"]


def test_batch_mates_part_before_their_rows_do() -> None:
    core = serving(make_spec(batching=SPLIT, max_batch_size=8))
    core.ask(100)
    core.ask(1, rows=4)
    core.ask(2, rows=4)
    core.finish(1)
    assert run_out(core, 2) == ["execute 1"]
    assert run_out(core, 3) == ["execute 1[0:2]"]


def test_its_pieces_have_behind_them_what_it_had() -> None:
    core = serving(make_spec(batching=SPLIT, max_batch_size=8), Limits(max_attempts=2))
    core.ask(1, rows=5)
    core.lose()
    core.recover()
    core.ask(2)
    assert core.loaded() == ["execute 1"]
    assert run_out(core, 2) == ["execute 1[0:2]"]
    core.finish(3)
    assert core.finish(4) == ["succeed 1[2:4]", "execute 1[4:5]"], "it takes nobody along who might lose a worker by it"
    assert core.lose() == ["fail 1: WorkerLost"]


def test_how_often_it_gave_way_is_not_forgotten() -> None:
    core = serving(make_spec(batching=SPLIT, steps=9, state=5, per_row=5, share=SharePolicy(priority=4)))
    high = core.resident(make_spec("high", fixed=78))
    core.ask(1, rows=4)
    core.ask(2, high, priority=1)
    assert core.step() == ["drop 1"]
    assert core.dropped(1) == ["execute 2"]
    core.share(SharePolicy(priority=4, limit_bytes=15))
    assert [(entry.request.rows, entry.preemptions) for entry in core.model().queue] == [(2, 1), (2, 1)]


def test_what_exceeds_its_model_s_limit_runs_in_pieces_that_do_not() -> None:
    core = serving(make_spec(batching=SPLIT, per_row=5, share=SharePolicy(limit_bytes=10)))
    assert core.ask(1, rows=4) == ["execute 1[0:2]"]


def test_where_not_even_a_row_fits_it_is_refused() -> None:
    core = serving(make_spec(batching=SPLIT, per_row=5, share=SharePolicy(limit_bytes=4)))
    assert core.ask(1, rows=9) == ["fail 1: ModelTooLarge"]
    assert isinstance(core.errors()[0], ModelTooLarge)


def test_a_limit_that_is_lowered_cuts_what_waits() -> None:
    core = serving(make_spec(batching=SPLIT, per_row=5, share=SharePolicy(limit_bytes=20)))
    core.ask(1)
    core.ask(2, rows=8)
    core.share(SharePolicy(limit_bytes=10))
    assert core.finish(1) == ["succeed 1", "execute 2[0:2]"]
    assert core.share(SharePolicy(limit_bytes=4)) == ["fail 2: ModelTooLarge"]


def test_what_finds_no_room_beside_what_stays_is_halved_before_it_is_refused() -> None:
    core = Core(cpu=100)
    core.resident(make_spec("other", weights=60, share=SharePolicy(pinned=True)))
    core.resident(make_spec(batching=SPLIT, weights=10, per_row=10))
    assert core.ask(1, rows=4) == ["execute 1[0:2]"]
    assert core.finish(1) == ["succeed 1[0:2]", "execute 1[2:4]"]


def test_a_model_comes_in_for_half_of_a_request_where_all_of_it_leaves_no_room() -> None:
    core = Core(cpu=100)
    core.resident(make_spec("other", weights=60, share=SharePolicy(pinned=True)))
    core.register(make_spec(batching=SPLIT, weights=10, per_row=10, loading=Loading.ON_DEMAND))
    assert core.ask(1, rows=4) == ["load model/1 on cpu"]
    assert core.loaded() == ["execute 1[0:2]"]
    assert core.finish(1) == ["succeed 1[0:2]", "execute 1[2:4]"]


def test_a_stepped_request_is_split_and_halved_too() -> None:
    core = serving(make_spec(batching=SPLIT, steps=2, state=1))
    assert core.ask(1, rows=6) == ["starting 1[0:4]"]
    first = core.model().run
    assert first is not None
    piece_id = first.entries[0].request.request_id
    exhausted = StepResult(piece_id, done=False, state_bytes=0, error=NO_MEMORY)
    assert core.send(events.StepFinished(first.run_id, (exhausted,))) == ["starting 1[4:6] 1[0:2]"]


def test_a_model_that_does_not_split_refuses_it() -> None:
    core = serving(make_spec(max_batch_size=4))
    core.ask(1, rows=4)
    assert run_out(core, 1) == ["fail 1: MemoryExhausted"]
