import pytest

from moorage.domain.model import Footprint, Isolation, ModelKey, ModelSpec, SharePolicy
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.events import HoldRequested, ModelRegistered
from moorage.scheduling.placement import (
    candidates,
    expected_state_bytes,
    expected_weights_bytes,
    largest_device,
    least_bytes,
    worker_of,
)
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, DeviceRecord
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_spec


def model(spec: ModelSpec, footprint: Footprint | None = None) -> ModelRecord:
    scheduler = Scheduler({"nowhere": DeviceLimits(0)})
    scheduler.handle(ModelRegistered(MODEL, spec, footprint or Footprint()), 0.0)
    return scheduler.state.models[MODEL]


def devices_of(devices: dict[str, tuple[int, int]]) -> dict[str, DeviceRecord]:
    """Devices are given as (capacity, leased)."""
    records = {name: DeviceRecord(name, DeviceLimits(capacity)) for name, (capacity, _) in devices.items()}
    for name, (_, leased_bytes) in devices.items():
        assert records[name].budget.acquire("other", LeaseKind.WEIGHTS, leased_bytes) is not None
    return records


@pytest.mark.parametrize(
    ("patterns", "devices", "chosen"),
    [
        (("*",), {"cuda0": (50, 0), "cuda1": (50, 10)}, ["cuda0", "cuda1"]),
        (("*",), {"cuda0": (50, 20), "cuda1": (50, 10)}, ["cuda1", "cuda0"]),
        (("*",), {"cuda1": (50, 0), "cuda0": (50, 0)}, ["cuda0", "cuda1"]),
        (("cuda*",), {"cpu": (99, 0), "cuda0": (50, 0)}, ["cuda0"]),
        (("cpu", "cuda1"), {"cpu": (20, 0), "cuda0": (99, 0), "cuda1": (30, 0)}, ["cuda1", "cpu"]),
        (("tpu*",), {"cpu": (99, 0)}, []),
        # Only the busy one is large enough.
        (("*",), {"cpu": (9, 0), "cuda0": (50, 45)}, ["cuda0"]),
        (("*",), {"cpu": (8, 0), "cuda0": (9, 5)}, []),
    ],
)
def test_candidates(patterns: tuple[str, ...], devices: dict[str, tuple[int, int]], chosen: list[str]) -> None:
    spec = make_spec(weights=10, devices=patterns)
    assert [device.name for device in candidates(model(spec), devices_of(devices))] == chosen


@pytest.mark.parametrize(("patterns", "largest"), [(("*",), "cuda0"), (("cpu",), "cpu"), (("tpu",), None)])
def test_the_largest_device_is_named_where_none_will_do(patterns: tuple[str, ...], largest: str | None) -> None:
    found = largest_device(make_spec(devices=patterns), devices_of({"cpu": (8, 0), "cuda0": (9, 5)}))
    assert (found and found.name) == largest


@pytest.mark.parametrize(("isolation", "worker"), [(Isolation.SHARED, "cuda:0"), (Isolation.DEDICATED, "cuda:0/m/2+1")])
def test_worker_of(isolation: Isolation, worker: str) -> None:
    assert worker_of(ModelKey("m", 2, 1), make_spec(isolation=isolation), "cuda:0") == worker


@pytest.mark.parametrize(
    ("weights", "hint", "measured", "expected"),
    [(None, 7, None, 7), (3, 7, None, 3), (0, 7, None, 0), (None, 7, 5, 5), (3, 7, 5, 5), (6, 7, 5, 6)],
)
def test_what_is_declared_or_was_measured_counts_before_what_is_guessed(
    weights: int | None, hint: int, measured: int | None, expected: int
) -> None:
    known = model(make_spec(weights=weights, hint=hint), Footprint(weights_bytes=measured))
    assert expected_weights_bytes(known) == expected


@pytest.mark.parametrize(("declared", "measured", "expected"), [(0, None, 0), (4, None, 4), (4, 6, 6), (4, 2, 4)])
def test_a_state_is_expected_as_large_as_it_ever_was(declared: int, measured: int | None, expected: int) -> None:
    assert expected_state_bytes(model(make_spec(state=declared), Footprint(state_bytes=measured))) == expected


@pytest.mark.parametrize(("reserved", "least"), [(0, 117), (16, 117), (40, 140)])
def test_least_bytes_has_room_for_one_row_and_all_that_is_reserved(reserved: int, least: int) -> None:
    spec = make_spec(weights=10, fixed=5, per_row=2, share=SharePolicy(reserved_bytes=reserved))
    assert least_bytes(model(spec), DeviceRecord("cpu", DeviceLimits(200, context_bytes=100))) == least


def test_a_load_goes_where_it_fits_without_putting_anybody_out() -> None:
    core = Core(UNGUARDED, cpu=100, gpu=100)
    core.resident(make_spec("large", weights=60, devices=("cpu",)))
    core.resident(make_spec("small", weights=50, devices=("gpu",)))
    core.register(make_spec(weights=45))
    core.load()
    assert core.model().device == "gpu"


def test_a_load_that_fits_nowhere_goes_where_it_puts_out_what_is_worth_least() -> None:
    core = Core(UNGUARDED, cpu=100, gpu=100)
    wanted = core.resident(make_spec("wanted", weights=60, devices=("cpu",)), load_s=1.0)
    core.resident(make_spec("unwanted", weights=70, devices=("gpu",)), load_s=1.0)
    core.now = 10.0
    core.ask(1, wanted)
    core.finish(1)
    core.register(make_spec(weights=45))
    assert core.load() == ["unload unwanted/1 on gpu"]


def test_a_load_goes_nowhere_where_somebody_is_pinned_if_there_is_another_place() -> None:
    core = Core(UNGUARDED, cpu=100, gpu=100)
    core.resident(make_spec("pinned", weights=60, devices=("cpu",), share=SharePolicy(pinned=True)))
    core.resident(make_spec("other", weights=70, devices=("gpu",)))
    core.register(make_spec(weights=45))
    assert core.load() == ["unload other/1 on gpu"]


def test_a_load_goes_where_its_worker_runs_already_if_only_there_it_fits() -> None:
    core = Core()
    limits = DeviceLimits(100, context_bytes=20, run_slots=8)
    core.scheduler = Scheduler({"cuda0": limits, "cuda1": limits}, UNGUARDED)
    core.resident(make_spec("there", weights=35, devices=("cuda1",)))
    core.send(HoldRequested(1, "cuda0", 50, 3, 1e6))
    core.register(make_spec(weights=40))
    core.load()
    assert core.model().device == "cuda1"
