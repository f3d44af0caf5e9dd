"""Models whose unload does not free what they held."""

from moorage.domain.model import Isolation, ModelKey, ModelState, SharePolicy
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_spec

REASON = "failed to load model 'model': unloading it left 20 of 60 bytes behind: quarantined until its worker restarts"


def retaining(*, isolation: Isolation = Isolation.SHARED) -> Core:
    """A model was put out for a hold, and left 20 of its 60 bytes behind."""
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=60, isolation=isolation))
    assert core.hold(1, 50) == [f"unload model/1 on {core.model().worker}"]
    core.unloaded(retained_bytes=20)
    return core


def test_what_stayed_stays_charged_and_the_model_does_not_come_back() -> None:
    core = retaining()
    assert core.kinds() == {"weights": 20, "held": 50}
    assert (core.model().state, core.model().reason) == (ModelState.FAILED, REASON)
    assert core.ask(1) == ["fail 1: ModelNotReady"]


def test_it_comes_free_with_the_worker() -> None:
    core = retaining()
    core.lose()
    assert core.kinds() == {"held": 50}
    core.let_go(1)
    assert core.load() == ["start cpu"]


def test_it_comes_back_by_itself_when_the_worker_has_ended() -> None:
    core = retaining()
    core.let_go(1)
    core.lose()
    assert core.model().state is ModelState.UNLOADED
    assert core.ask(1) == ["start cpu"]
    assert core.up() == ["load model/1 on cpu"]
    assert core.loaded(MODEL, 60) == ["execute 1"]


def test_an_operator_can_not_bring_it_back_before() -> None:
    core = retaining()
    core.let_go(1)
    assert core.load() == ["not loaded model/1: ModelNotReady"]
    assert core.errors()[0].message.endswith("quarantined until its worker restarts")
    assert core.kinds() == {"weights": 20}


def test_a_dedicated_process_ends_and_frees_it_at_once() -> None:
    core = retaining(isolation=Isolation.DEDICATED)
    assert core.kinds() == {"weights": 20, "held": 50}
    core.lose("cpu/model/1")
    assert core.kinds() == {"held": 50}


def test_those_who_waited_for_the_model_are_told() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=60))
    core.hold(1, 50)
    assert core.ask(1) == []
    assert core.load() == []
    assert core.unloaded(retained_bytes=20) == ["not loaded model/1: LoadFailed", "fail 1: LoadFailed", "hold 1"]


def test_what_stays_is_nobodys_share() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=60, share=SharePolicy(reserved_bytes=60)))
    core.unload()
    assert core.unloaded(retained_bytes=20) == ["unloaded model/1"]
    assert core.hold(1, 80) == ["hold 1"]
    assert core.kinds() == {"weights": 20, "held": 80}
    assert MODEL not in core.scheduler.state.models


def test_a_claim_that_what_stays_leaves_no_room_for_is_refused() -> None:
    core = retaining()
    core.let_go(1)
    other = core.register(make_spec("other", weights=81))
    assert core.load(other) == ["not loaded other/1: MemoryExhausted"]
    assert core.errors()[0].retry_after_s == 1.0
    assert core.load(core.register(make_spec("small", weights=80))) == ["load small/1 on cpu"]
    assert core.model(ModelKey("small", 1)).weights is not None
