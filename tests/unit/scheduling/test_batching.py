import pytest

from moorage.domain.model import ModelSpec
from moorage.scheduling import events
from moorage.scheduling.batching import form_batch, halves
from moorage.scheduling.queue import Entry
from moorage.scheduling.workspaces import Workspaces
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec


def entries(*keys: str | None, rows: int = 1, size_bytes: int = 1) -> list[Entry]:
    return [
        Entry(make_request(number, rows=rows, size_bytes=size_bytes, batch_key=key))
        for number, key in enumerate(keys, start=1)
    ]


BATCHED = make_spec(max_batch_size=4)
NOTHING = Workspaces(BATCHED.memory)
UNBATCHED = make_spec(max_batch_size=0)
HUNGRY = make_spec(max_batch_size=4, fixed=10, per_row=5)


@pytest.mark.parametrize(
    ("waiting", "spec", "free_bytes", "size"),
    [
        ([], BATCHED, 0, 0),
        (entries("x"), BATCHED, 0, 1),
        (entries("x", "x", "x"), BATCHED, 0, 3),
        (entries("x", "x", "x", "x", "x"), BATCHED, 0, 4),
        (entries("x", "x", "x", rows=2), BATCHED, 0, 2),
        (entries("x", "x", "x", rows=3), BATCHED, 0, 1),
        (entries("x", "y", "x"), BATCHED, 0, 1),
        (entries(None, None), BATCHED, 0, 1),
        (entries("x", "x"), UNBATCHED, 0, 1),
        (entries("x", "x", "x"), HUNGRY, 14, 0),
        (entries("x", "x", "x"), HUNGRY, 15, 1),
        (entries("x", "x", "x"), HUNGRY, 24, 2),
        (entries("x", "x", "x"), HUNGRY, 25, 3),
        (entries("x", "x", "x", size_bytes=4), BATCHED, 0, 2),
        (entries("x", "x", size_bytes=99), BATCHED, 0, 1),
    ],
)
def test_as_many_of_the_first_as_go_together(waiting: list[Entry], spec: ModelSpec, free_bytes: int, size: int) -> None:
    workspaces = Workspaces(spec.memory)
    batch = form_batch(waiting, workspaces, spec.max_batch_size, free_bytes=free_bytes, max_input_bytes=8)
    assert batch == waiting[:size]


def test_those_whose_batch_failed_go_alone() -> None:
    waiting = entries("x", "x", "x")
    waiting[0].cohort, waiting[1].cohort = 1, 2
    assert form_batch(waiting, NOTHING, 4, free_bytes=0, max_input_bytes=8) == waiting[:1]
    waiting[0].cohort = 0
    assert form_batch(waiting, NOTHING, 4, free_bytes=0, max_input_bytes=8) == waiting[:1]


@pytest.mark.parametrize(
    ("rows", "sizes"), [([1], [1]), ([1, 1], [1, 1]), ([1, 1, 1], [2, 1]), ([1, 1, 6], [2, 1]), ([6, 1, 1], [1, 2])]
)
def test_halves_have_about_as_many_rows(rows: list[int], sizes: list[int]) -> None:
    members = [Entry(make_request(number, rows=count)) for number, count in enumerate(rows)]
    split = halves(members)
    assert [len(half) for half in split] == sizes
    assert [entry for half in split for entry in half] == members


def test_requests_that_arrive_together_share_a_run() -> None:
    core = Core()
    core.resident()
    together = tuple(make_request(number) for number in (1, 2, 3))
    assert core.send(events.RequestsArrived(together)) == ["execute 1 2 3"]


def test_of_several_that_arrive_together_each_goes_to_its_model() -> None:
    core = Core()
    first = core.resident(make_spec("first"))
    second = core.resident(make_spec("second"))
    together = (make_request(1, model=first), make_request(2, model=second), make_request(3, model=first))
    assert core.send(events.RequestsArrived(together)) == ["execute 1 3", "execute 2"]
