"""Where CUDA memory lies and what is cached of it: what can be told without a CUDA device."""

import contextlib
import itertools

import pytest
import torch

from moorage.workers.runtimes.cuda_memory import cached_bytes, own_segments, release_pinned_memory, why_no_segments

CUDA = torch.device("cuda:0")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)


def test_a_cuda_device_has_them() -> None:
    assert why_no_segments(CUDA) is None


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_expandable_segments_stand_against_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "max_split_size_mb:64, expandable_segments: True")
    assert f"{name} asks for expandable segments" in str(why_no_segments(CUDA))
    monkeypatch.setenv(name, "expandable_segments:False")
    assert why_no_segments(CUDA) is None


def test_a_cpu_has_none_and_loads_all_the_same() -> None:
    assert "no CUDA device" in str(why_no_segments(torch.device("cpu")))
    with own_segments(torch.device("cpu")):
        assert torch.ones(1).item() == 1.0


def test_pools_may_be_given_up_while_others_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    # torch's MemPool, when it goes, ends the process if another thread allocates in its own.
    calls: list[tuple[str, object]] = []
    numbers = itertools.count(1)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, next(numbers)))
    monkeypatch.delattr(torch.cuda, "MemPool")
    for call in ("beginAllocateCurrentThreadToPool", "endAllocateToPool", "releasePool"):
        monkeypatch.setattr(
            torch.cuda.memory, f"_cuda_{call}", lambda device, pool, call=call: calls.append((call, pool))
        )
    with contextlib.ExitStack() as outer:
        outer.enter_context(own_segments(CUDA))
        with own_segments(CUDA):
            assert calls[-2:] == [(calls[0][0], (0, 1)), (calls[0][0], (0, 2))]
        assert calls[-2:] == [("endAllocateToPool", (0, 2)), ("releasePool", (0, 2))]
    assert calls[-2:] == [("endAllocateToPool", (0, 1)), ("releasePool", (0, 1))]


def test_what_is_reserved_and_not_allocated_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cached_bytes("cuda:0") == 0, "before CUDA is used"
    stats = {"reserved_bytes": {"all": {"current": 100}}, "allocated_bytes": {"all": {"current": 70}}}
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", {"cuda:0": stats}.get)
    assert cached_bytes("cuda:0") == 30


@pytest.mark.parametrize("release", ["public", "private", "neither"])
def test_pinned_memory_is_given_back_by_whatever_torch_has_for_that(
    release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.delattr(torch.accelerator, "empty_host_cache", raising=False)
    if release == "public":
        monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: calls.append("public"), raising=False)
    if release != "neither":
        monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: calls.append("private"), raising=False)
    release_pinned_memory()
    assert calls == [release] * (release != "neither")


def test_where_cuda_is_not_used_nothing_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: pytest.fail("asked"), raising=False)
    release_pinned_memory()
