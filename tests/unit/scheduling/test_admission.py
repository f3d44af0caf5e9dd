from moorage.domain.model import Loading, ModelSpec, SharePolicy
from moorage.scheduling.admission import is_ready, never_fits
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_request, make_spec

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


def test_where_no_device_is_allowed_the_request_is_told_so() -> None:
    core = registered(make_spec(per_row=1, devices=("tpu",), loading=Loading.ON_DEMAND))
    assert core.arrive(make_request(1)) == ["fail 1: LoadFailed"]
    assert core.load() == ["not loaded model/1: LoadFailed"]


def test_a_run_beyond_its_models_own_limit_is_refused_with_the_limit() -> None:
    core = registered(make_spec(per_row=10, share=SharePolicy(limit_bytes=25)))
    core.load()
    assert core.arrive(make_request(1, rows=2)) == []
    assert core.arrive(make_request(2, rows=3)) == ["fail 2: ModelTooLarge"]
    assert str(core.errors()[0]) == (
        "a run of 3 rows of model 'model' needs 30 bytes, but its memory.limit has a capacity of 25 bytes"
    )


def test_a_model_that_was_put_out_is_ready_and_takes_requests() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=60))
    other = core.register(make_spec("other", weights=50))
    seen = [ready(core)]
    assert core.load(other) == ["unload model/1 on cpu"]
    seen.append(ready(core))
    core.unloaded()
    seen.append(ready(core))
    assert seen == [True, True, True]
    assert core.arrive(make_request(1)) == []
