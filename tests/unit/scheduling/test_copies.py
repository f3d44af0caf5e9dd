"""Which copies of weights the host keeps when there are more than it has room for."""

from moorage.domain.model import Isolation, ModelKey, SharePolicy
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_spec

A, B, C, D = (ModelKey(name, 1) for name in "abcd")


def two_on_the_host(*, room_for: int = 2, isolation: Isolation = Isolation.SHARED) -> Core:
    """First a and then b made way for c, which is being loaded. The device has room for one of them."""
    core = Core.on(DeviceLimits(100, host_bytes=60 * room_for, run_slots=8), UNGUARDED)
    core.now = 100.0
    core.resident(make_spec("a", weights=60, offloads=True, isolation=isolation))
    for key, before in ((B, A), (C, B)):
        core.register(make_spec(key.name, weights=60, offloads=True, isolation=isolation))
        core.load(key)
        core.offloaded(before)
        if key is B:
            core.up("cpu" if isolation is Isolation.SHARED else f"cpu/{B}")
            core.loaded(B, 60)
    return core


def test_a_copy_makes_way_so_that_the_next_model_can_be_offloaded() -> None:
    core = two_on_the_host()
    assert core.loaded(C, 60) == ["loaded c/1", "unload a/1 on cpu"]
    core.unloaded(A)
    core.register(make_spec("d", weights=60))
    assert core.load(D) == ["offload c/1 on cpu"]
    assert core.host_bytes() == 120


def test_the_copy_that_is_asked_for_more_often_stays() -> None:
    core = two_on_the_host()
    for key in (A, B):
        core.model(key).measured.load_s = 1.0
    core.model(A).usage.note(core.now)
    assert core.loaded(C, 60) == ["loaded c/1", "unload b/1 on cpu"]


def test_a_copy_that_saves_more_of_a_load_stays() -> None:
    core = two_on_the_host()
    for key, load_s in ((A, 5.0), (B, 1.0)):
        core.model(key).usage.note(core.now)
        core.model(key).measured.load_s = load_s
    assert core.loaded(C, 60) == ["loaded c/1", "unload b/1 on cpu"]


def test_the_copy_of_higher_priority_stays() -> None:
    core = two_on_the_host()
    core.model(B).measured.load_s = 1.0
    core.model(B).usage.note(core.now)
    core.share(SharePolicy(priority=1), A)
    assert core.loaded(C, 60) == ["loaded c/1", "unload b/1 on cpu"]


def test_nothing_goes_while_the_host_has_room() -> None:
    assert two_on_the_host(room_for=3).loaded(C, 60) == ["loaded c/1"]


def test_the_only_copy_stays() -> None:
    core = two_on_the_host(room_for=1)
    core.unloaded(B)
    assert core.loaded(C, 60) == ["loaded c/1"]


def test_pinned_copies_stay() -> None:
    core = two_on_the_host()
    core.share(SharePolicy(pinned=True), A)
    core.share(SharePolicy(pinned=True), B)
    assert core.loaded(C, 60) == ["loaded c/1"]


def test_a_copy_that_a_request_waits_for_stays() -> None:
    core = two_on_the_host()
    core.ask(1, A)
    core.ask(2, B)
    # The host is full, so it is c itself that goes altogether.
    assert core.loaded(C, 60) == ["loaded c/1", "unload c/1 on cpu"]


def test_the_worker_of_a_dedicated_model_goes_with_its_copy() -> None:
    core = two_on_the_host(isolation=Isolation.DEDICATED)
    core.up(f"cpu/{C}")
    assert core.loaded(C, 60) == ["loaded c/1", "unload a/1 on cpu/a/1"]
    assert core.unloaded(A) == ["stop cpu/a/1"]


def test_a_request_brings_a_forgotten_model_from_disk() -> None:
    core = two_on_the_host()
    core.loaded(C, 60)
    assert core.ask(1, A) == []
    assert core.unloaded(A) == ["offload c/1 on cpu"]
    assert core.offloaded(C) == ["load a/1 on cpu"]
    assert core.loaded(A, 60) == ["unload b/1 on cpu", "execute 1"]
