import pytest

from moorage.domain.model import ModelSpec
from moorage.scheduling import events
from moorage.scheduling.batching import form_batch, halves
from moorage.scheduling.entries import Entry
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


def test_who_is_unlike_the_first_is_passed_by() -> None:
    waiting = entries("x", "y", "x", None, "x", "y", "x", "x")
    batch = form_batch(waiting, NOTHING, 4, free_bytes=0, max_input_bytes=8)
    assert batch == [waiting[number] for number in (0, 2, 4, 6)]
    many = entries("x", *("y",) * 1000, "x")
    assert form_batch(many, NOTHING, 4, free_bytes=0, max_input_bytes=8) == many[:1], "not however many there are"


def test_those_whose_batch_failed_go_alone() -> None:
    waiting = entries("x", "x", "x")
    waiting[0].cohort, waiting[1].cohort = 1, 2
    assert form_batch(waiting, NOTHING, 4, free_bytes=0, max_input_bytes=8) == waiting[:1]
    waiting[0].cohort = 0
    assert form_batch(waiting, NOTHING, 4, free_bytes=0, max_input_bytes=8) == waiting[:1]


def padded_entries(*lengths: int, rows: int = 1, other_bytes: int = 0) -> list[Entry]:
    """Requests with one input of so many elements of two bytes, which is padded, beside others."""
    return [
        Entry(make_request(number, rows=rows, size_bytes=rows * length * 2 + other_bytes, padded=((2, length),)))
        for number, length in enumerate(lengths)
    ]


@pytest.mark.parametrize(
    ("waiting", "size"),
    [
        (padded_entries(1, 1, 1), 3),
        (padded_entries(1, 1, 20), 2),  # 60 elements once they are padded
        (padded_entries(1, 20, 1), 2),
        (padded_entries(20, 1, 1), 2),
        (padded_entries(50, 1), 1),
        (padded_entries(3, 5, 4, rows=3), 3),
        (padded_entries(3, 6, 4, rows=3), 2),
        (padded_entries(10, 10, 12, other_bytes=4), 3),
        (padded_entries(10, 10, 12, other_bytes=7), 2),
    ],
)
def test_padding_counts_among_the_bytes_of_a_run(waiting: list[Entry], size: int) -> None:
    assert form_batch(waiting, NOTHING, 16, free_bytes=0, max_input_bytes=90) == waiting[:size]


def test_several_inputs_are_padded_each_to_its_largest() -> None:
    shapes = [((1, 2, 5), (4, 1)), ((1, 6, 1), (4, 2))]  # 2 x (6 x 5 + 4 x 2) bytes
    waiting = [Entry(make_request(number, size_bytes=14, padded=padded)) for number, padded in enumerate(shapes)]
    assert form_batch(waiting, NOTHING, 4, free_bytes=0, max_input_bytes=76) == waiting
    assert form_batch(waiting, NOTHING, 4, free_bytes=0, max_input_bytes=75) == waiting[:1]


def test_dimensions_that_cost_an_empty_tensor_nothing_count_beside_others() -> None:
    waiting = [
        Entry(make_request(number, padded=padded)) for number, padded in enumerate([((1, 0, 2**40),), ((1, 1, 1),)])
    ]
    assert form_batch(waiting, NOTHING, 4, free_bytes=0, max_input_bytes=2**30) == waiting[:1]


def test_a_preferred_size_counts_the_rows_that_are_left() -> None:
    waiting = padded_entries(1, 1, 1, 40)
    batch = form_batch(waiting, NOTHING, 8, free_bytes=0, max_input_bytes=90, preferred_sizes=(2, 4))
    assert batch == waiting[:2]


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
