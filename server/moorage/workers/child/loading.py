"""Models come to this process: built, warmed up and put on their lanes, or refused with nothing of them left."""

import contextlib
import gc
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from moorage.domain.model import WarmupRun
from moorage.workers.child.building import Built, build
from moorage.workers.child.caches import Caches
from moorage.workers.child.failures import Refusal, describe, detail_of, end_with_device
from moorage.workers.child.gauges import Gauges, LaneGauge
from moorage.workers.child.lane import LaneHandles, LaneThread, Opened
from moorage.workers.child.memory import release_freed_memory, wait_for_device
from moorage.workers.child.transfers import Present, Transfers, finish
from moorage.workers.messages import Loaded, LoadModel, LoadRefused

# How long a lane that came to nothing is kept open for the server to close it first.
_LAST_WORDS_S = 10.0


class Loading:
    """For one thread: frameworks patch global state while they build."""

    def __init__(
        self,
        device: str,
        send: Callable[[msgspec.Struct], None],
        caches: Caches,
        transfers: Transfers,
        gauges: Gauges,
    ) -> None:
        self._device = device
        self._send = send
        self._caches = caches
        self._transfers = transfers
        self._gauges = gauges

    def load(self, message: LoadModel, lanes: Sequence[LaneHandles]) -> None:
        """Bring a model in, and answer. lanes: one for each instance, closed here or by its thread."""
        outcome = self._load(message, lanes)
        if isinstance(outcome, Refusal):
            self._refuse(message, outcome, [lane.socket for lane in lanes])
        else:
            self._send(outcome)

    def _load(self, message: LoadModel, lanes: Sequence[LaneHandles]) -> Loaded | Refusal:
        began_s = time.perf_counter()
        folder = Path(message.blueprint.path)
        try:
            built = self._gauges.beside(lambda: self._build(message))
        except BaseException as error:  # a model may raise anything, SystemExit too
            for lane in lanes:
                os.close(lane.segment)
            return Refusal(describe(error, folder), detail_of(error))
        threads: list[LaneThread] = []
        try:
            threads.extend(self._thread(message, built, lane) for lane in lanes)  # keeps those before one that fails
            opened = _open_all(threads, message.blueprint.warmup, folder)
        except BaseException as error:  # no address space for a lane's memory, or no more threads
            for lane in lanes[len(threads) :]:
                os.close(lane.segment)
            opened = Refusal(describe(error, folder), detail_of(error))
        if isinstance(opened, Refusal):
            finish(built.runtime, threads)
            return opened
        self._transfers.add(message.key, Present(built.runtime, folder, threads))
        load_s = time.perf_counter() - began_s
        stepped = built.runtime.stepped
        return Loaded(
            message.key, opened.weights_bytes, load_s, stepped, opened.can_offload, opened.warmup_s, opened.rehearsed
        )

    def _thread(self, message: LoadModel, built: Built, lane: LaneHandles) -> LaneThread:
        is_real = message.blueprint.runtime != "simulated"  # what that takes is nowhere but in its table
        gauge = LaneGauge(self._gauges if is_real else Gauges(None), measures_all=message.blueprint.measures_all)
        return LaneThread(message.key, built, lane, self._caches, gauge)

    def _build(self, message: LoadModel) -> Built:
        built = build(message.key, message.blueprint, self._device, self._caches.apply_cap)
        wait_for_device(self._device)
        return built

    def _refuse(self, message: LoadModel, refusal: Refusal, lanes: Sequence[socket.socket]) -> None:
        """By now nothing here refers to what was built."""
        answer = LoadRefused(message.key, refusal.reason, refusal.detail)
        if refusal.device_is_lost:
            self._send(answer)
            end_with_device(str(message.key))
        gc.collect()
        release_freed_memory(self._device)
        self._send(answer)
        for lane in lanes:
            _close_after_the_server(lane)


def _open_all(threads: Sequence[LaneThread], warmup: Sequence[WarmupRun], folder: Path) -> Opened | Refusal:
    """Have every instance warm up, one after the other, and then serve; or the first refusal, and none serves.

    What comes back is what the last of them found, as then all are warm; of warm-ups, all that they took together.
    """
    found: list[Opened] = []
    for thread in threads:
        opened = thread.open(warmup, folder)
        if isinstance(opened, Refusal):
            return opened
        found.append(opened)
    for thread in threads:
        thread.serve()
    warmup_s = sum(opened.warmup_s for opened in found)
    rehearsed = tuple(run for opened in found for run in opened.rehearsed)
    return replace(found[-1], warmup_s=warmup_s, rehearsed=rehearsed)


def _close_after_the_server(lane: socket.socket) -> None:
    """Keep a lane that came to nothing until the server has closed its end, which otherwise takes it for our death."""
    lane.settimeout(_LAST_WORDS_S)
    with lane, contextlib.suppress(OSError):
        while lane.recv(4096):
            pass
