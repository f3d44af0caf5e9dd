"""What a worker says about an exception: whatever a model raised, saying so must not fail."""

import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from moorage.authoring import InvalidInput
from moorage.workers.lane_messages import Failure
from moorage.workers.runtimes import BrokenContract, LaneFull, is_loss_of_device, is_out_of_memory

_DEVICE_LOST = 71  # EX_OSERR of sysexits.h

_MAX_REASON = 300
_MAX_DETAIL = 64 * 1024  # a limit of the server's log, not of what travels


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a model is not loaded. reason: one line for callers. detail: a traceback for the log.

    device_is_lost: the device failed with it, so that this process is good for nothing any more.
    """

    reason: str
    detail: str
    device_is_lost: bool = False


def describe(error: BaseException, folder: Path) -> str:
    """One line for callers: the kind of error and its message, without traceback and without the folder's path."""
    try:
        text = str(error)
    except Exception:
        text = ""
    if isinstance(error, OSError) and error.strerror:
        text = str(error.strerror)
    text = " ".join(text.replace(f"{folder}/", "").replace(str(folder), "its folder").split())
    name = type(error).__name__
    if isinstance(error, BrokenContract):  # our own words, which say all
        return _sendable(text[:_MAX_REASON])
    return _sendable(f"{name}: {text[:_MAX_REASON]}" if text else name)


def failure_of(error: BaseException) -> Failure:
    """What the server is told of a run or step that raised."""
    return Failure(
        detail_of(error),
        out_of_memory=is_out_of_memory(error),
        lane_bytes=error.size_bytes if isinstance(error, LaneFull) else 0,
        invalid_input=_words_of(error) if isinstance(error, InvalidInput) else "",
        broken_contract=_words_of(error) if isinstance(error, BrokenContract) else "",
        device_lost=is_loss_of_device(error),
    )


def _words_of(error: BaseException) -> str:
    """What an exception says, whatever its author made of str; never empty."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return _sendable(text[:_MAX_REASON]) or type(error).__name__


def let_go(error: BaseException) -> None:
    """Drop what the frames of a failed run hold, however long the exception itself is kept: some models keep them."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
        left += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions


def detail_of(error: BaseException) -> str:
    """The traceback, for the log; of a very long one both ends."""
    text = "".join(traceback.format_exception(error))
    if len(text) > _MAX_DETAIL:
        text = f"{text[: _MAX_DETAIL // 2]}\n[...]\n{text[-_MAX_DETAIL // 2 :]}"
    return _sendable(text)


def _sendable(text: str) -> str:
    """Text of which UTF-8 can be made: file names can bring in lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def end_with_device(name: str) -> NoReturn:
    """End the process, once the failure is told: the server starts another, which can use the device."""
    print(f"{name}: the device failed, and this process with it", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(_DEVICE_LOST)
