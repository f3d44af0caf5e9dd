"""A stream's requests under way, and their answers in the order in which they are to be written."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from moorage.domain.errors import MoorageError, ServerDraining
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import OutputTensor
from moorage.rpc.ports import Backend
from moorage.rpc.render import Renderer
from moorage.rpc.streamed import answer_of, failure_of


@dataclass(frozen=True, slots=True)
class Window:
    """What one stream may have under way: of requests that were read and are not answered, and likewise of answers of
    decoupled models that the client has not taken. A single one may be larger than max_bytes."""

    max_requests: int = 64
    max_bytes: int = 16 * 1024 * 1024


@dataclass(slots=True, eq=False)
class _Asked:
    """A request that was read. request_id: of the engine's, 0 where it has none. answer: of a decoupled model, empty
    where its end is not to be told."""

    body: bytes
    answer: "asyncio.Future[bytes]"
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A message to be written. error: what it tells of, or what ends the stream where there is no message. ends: the
    request that it is the last answer to."""

    message: bytes
    error: Exception | None = None
    ends: _Asked | None = None


class Outbox:
    """Answers in the order of their requests, and between them those of decoupled models as they are made."""

    def __init__(self, backend: Backend, window: Window, has_news: Callable[[], None]) -> None:
        """has_news: is called whenever there may be an answer, or nothing is under way any more."""
        self._backend = backend
        self._window = window
        self._has_news = has_news
        self._ordered: deque[_Asked] = deque()
        self._decoupled: dict[int, _Asked] = {}
        self._made: deque[Answer] = deque()
        self._asked = self._asked_bytes = self._made_bytes = 0
        self._is_paused = self._was_ordered = False

    def begin(self, body: bytes, request: InferenceRequest, render: Renderer) -> None:
        """Have the engine take a request that has one answer."""

        def rendered(outputs: tuple[OutputTensor, ...]) -> bytes:
            return answer_of(render, outputs, is_final=True)

        self._queue(_Asked(body, self._backend.begin(request, rendered), request.request_id))

    def refuse(self, body: bytes, error: MoorageError) -> None:
        """Answer a request that the engine does not get."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer.set_exception(error)
        self._queue(_Asked(body, answer))

    def _queue(self, asked: _Asked) -> None:
        self._hold(asked)
        self._ordered.append(asked)
        asked.answer.add_done_callback(lambda _: self._has_news())

    def _hold(self, asked: _Asked) -> None:
        """A place in the window, until its last answer is taken."""
        self._asked += 1
        self._asked_bytes += len(asked.body)

    def begin_decoupled(self, body: bytes, request: InferenceRequest, render: Renderer) -> None:
        """Have the engine take a request that has any number of answers."""

        def made(outputs: tuple[OutputTensor, ...]) -> None:
            self._add(Answer(answer_of(render, outputs, is_final=False)))
            self._pause_if_full()

        def ended(outputs: tuple[OutputTensor, ...]) -> bytes:
            return answer_of(render, outputs, is_final=True) if outputs or render.empty_final else b""

        asked = _Asked(body, self._backend.begin(request, ended, made), request.request_id)
        self._hold(asked)
        self._decoupled[request.request_id] = asked
        asked.answer.add_done_callback(lambda _: self._end(asked))
        if self._is_paused:
            self._backend.pause(request.request_id)

    def _end(self, asked: _Asked) -> None:
        """The last of a decoupled model's answers is there."""
        if self._decoupled.pop(asked.request_id, None) is None:
            return  # The stream has ended.
        last = _settled(asked)
        if last.message or last.error:
            self._add(last)
            self._pause_if_full()
        else:
            self._forget(asked)
            self._has_news()

    def _add(self, answer: Answer) -> None:
        self._made.append(answer)
        self._made_bytes += len(answer.message)
        self._has_news()

    def _pause_if_full(self) -> None:
        is_full = len(self._made) >= self._window.max_requests or self._made_bytes >= self._window.max_bytes
        if is_full:
            # Each time anew: a pause does not outlast what makes a request begin again.
            self._is_paused = True
            for request_id in self._decoupled:
                self._backend.pause(request_id)

    def _resume_if_half_empty(self) -> None:
        fewer = len(self._made) <= self._window.max_requests // 2 and self._made_bytes <= self._window.max_bytes // 2
        if fewer and self._is_paused:
            self._is_paused = False
            for request_id in self._decoupled:
                self._backend.resume(request_id)

    @property
    def has_answer(self) -> bool:
        """Whether `take` has something to give."""
        return bool(self._made) or self._has_ordered

    @property
    def _has_ordered(self) -> bool:
        return bool(self._ordered) and self._ordered[0].answer.done()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is under way, or still to be written."""
        return not (self._ordered or self._decoupled or self._made)

    @property
    def is_full(self) -> bool:
        """Whether no more requests are to be read."""
        is_full = self._asked >= self._window.max_requests or self._asked_bytes >= self._window.max_bytes
        return is_full or self._is_paused

    def take(self) -> Answer:
        """The answer to be written next; of both kinds in turn, where there are both. See written."""
        if self._made and not (self._has_ordered and not self._was_ordered):
            self._was_ordered = False
            return self._made[0]
        self._was_ordered = True
        return _settled(self._ordered[0])

    def written(self, answer: Answer) -> None:
        """The client's side has taken what `take` gave: there is room for more."""
        if self._was_ordered:
            self._ordered.popleft()
        else:
            self._made.popleft()
            self._made_bytes -= len(answer.message)
            self._resume_if_half_empty()
        if answer.ends is not None:
            self._forget(answer.ends)

    def _forget(self, asked: _Asked) -> None:
        self._asked -= 1
        self._asked_bytes -= len(asked.body)

    def abandon(self) -> None:
        """Nobody waits for an answer any more."""
        for asked in (*self._ordered, *self._decoupled.values()):
            if asked.request_id:
                self._backend.give_up(asked.request_id)
            if asked.answer.done() and not asked.answer.cancelled():
                asked.answer.exception()  # else asyncio says that nobody looked at it
        self._ordered.clear()
        self._decoupled.clear()
        self._made.clear()


def _settled(asked: _Asked) -> Answer:
    """The last answer to a request."""
    if asked.answer.cancelled():
        return Answer(b"", ServerDraining(), asked)  # the engine has gone
    error = asked.answer.exception()
    if error is None:
        return Answer(asked.answer.result(), ends=asked)
    if isinstance(error, MoorageError):
        return Answer(failure_of(asked.body, error), error, asked)
    return Answer(b"", error if isinstance(error, Exception) else RuntimeError(str(error)), asked)
