"""What is kept of a run that failed: words, and nothing that it had computed."""

import gc
import weakref
from collections.abc import Callable

import pytest

from moorage.authoring import InvalidInput
from moorage.workers.child.failures import failure_of, let_go
from moorage.workers.runtimes import LaneFull
from moorage.workers.segment import SEGMENT_BYTES


class Buffer:
    """Stands for a tensor."""


KEPT: list[BaseException] = []
SEEN: list[weakref.ref[Buffer]] = []


def plain() -> None:
    buffer = Buffer()
    SEEN.append(weakref.ref(buffer))
    raise MemoryError


def kept() -> None:
    """As a model that remembers what went wrong."""
    try:
        plain()
    except MemoryError as error:
        KEPT.append(error)
        raise


def caused() -> None:
    buffer = Buffer()
    SEEN.append(weakref.ref(buffer))
    try:
        kept()
    except MemoryError as error:
        raise RuntimeError("no room") from error


def in_its_context() -> None:
    buffer = Buffer()
    SEEN.append(weakref.ref(buffer))
    try:
        kept()
    except MemoryError:
        raise KeyError from None


def grouped() -> None:
    try:
        kept()
    except MemoryError as error:
        raise ExceptionGroup("several", [error, ValueError()]) from None


@pytest.mark.parametrize("fail", [plain, kept, caused, in_its_context, grouped])
def test_nothing_survives_that_a_failed_run_had_though_its_exception_is_kept(fail: Callable[[], None]) -> None:
    KEPT.clear()
    SEEN.clear()
    gc.disable()
    try:
        try:
            fail()
        except Exception as error:
            outermost, told = error, failure_of(error)
            let_go(error)
        assert "Traceback" in told.detail
        assert SEEN
        assert not any(buffer() for buffer in SEEN)
        assert str(outermost) is not None
    finally:
        gc.enable()


def test_one_that_is_its_own_cause_ends_too() -> None:
    error = ValueError()
    error.__context__ = other = KeyError()
    other.__cause__ = error
    let_go(error)


class Unspeakable(InvalidInput):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InvalidInput("expected at most 512 tokens, got 600"), "expected at most 512 tokens, got 600"),
        (InvalidInput(), "InvalidInput"),
        (InvalidInput("x" * 1000), "x" * 300),
        (Unspeakable(), "Unspeakable"),
        (ValueError("no fault of the caller's"), ""),
    ],
)
def test_what_a_model_finds_wrong_with_the_data_is_told_in_its_words(error: Exception, words: str) -> None:
    assert failure_of(error).invalid_input == words


def test_outputs_that_exceed_a_lane_are_no_want_of_the_device() -> None:
    failed = failure_of(LaneFull(SEGMENT_BYTES + 7))
    assert (failed.out_of_memory, failed.lane_bytes) == (True, SEGMENT_BYTES + 7)
    assert failure_of(MemoryError()).lane_bytes == 0
