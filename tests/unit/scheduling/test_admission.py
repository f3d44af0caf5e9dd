from moorage.domain.model import Loading, ModelSpec
from moorage.scheduling.admission import is_ready, never_fits
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec

ON_DEMAND = make_spec(loading=Loading.ON_DEMAND)


def ready(core: Core) -> bool:
    return is_ready(core.scheduler.state, core.model())


def registered(spec: ModelSpec) -> Core:
    core = Core(cpu=100)
    core.register(spec)
    return core


def test_readiness_follows_the_model() -> None:
    core = registered(make_spec())
    seen = [ready(core)]
    for step in (core.load, core.up, core.loaded, core.lose, core.recover, core.loaded, core.unload):
        step()
        seen.append(ready(core))
    assert seen == [False, False, False, True, False, False, True, False]


def test_a_cold_model_on_demand_is_ready_until_its_worker_dies() -> None:
    core = registered(ON_DEMAND)
    seen = [ready(core)]
    for step in (core.load, core.lose, core.recover, core.loaded):
        step()
        seen.append(ready(core))
    assert seen == [True, True, False, False, True]


def test_a_model_that_is_not_loaded_refuses_requests_unless_it_loads_on_demand() -> None:
    assert registered(make_spec()).arrive(make_request(1)) == ["fail 1: ModelNotReady"]
    assert registered(ON_DEMAND).arrive(make_request(1)) == ["start cpu"]


def test_a_failed_model_refuses_requests_even_on_demand() -> None:
    core = registered(ON_DEMAND)
    core.load()
    core.up()
    core.load_failed()
    assert core.arrive(make_request(1)) == ["fail 1: ModelNotReady"]


def test_a_run_that_can_never_fit_is_refused_before_anything_is_loaded() -> None:
    core = registered(make_spec(weights=40, per_row=20, loading=Loading.ON_DEMAND))
    assert core.arrive(make_request(1, rows=4)) == ["fail 1: ModelTooLarge"]
    assert core.arrive(make_request(2, rows=3)) == ["start cpu"]


def test_the_measured_weights_count_once_they_are_known() -> None:
    core = registered(make_spec(weights=None, hint=40, per_row=20))
    core.load()
    core.up()
    core.loaded(weights_bytes=10)
    error = never_fits(core.scheduler.state, core.model(), 5)
    assert error is not None
    assert (error.needed_bytes, error.capacity_bytes) == (110, 100)
    assert never_fits(core.scheduler.state, core.model(), 4) is None


def test_where_no_device_is_allowed_the_load_says_so() -> None:
    core = registered(make_spec(per_row=1, devices=("tpu",), loading=Loading.ON_DEMAND))
    assert core.arrive(make_request(1)) == ["not loaded model/1: LoadFailed", "fail 1: LoadFailed"]
