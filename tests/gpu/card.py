"""The card by its driver's management library, read apart from the server."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from moorage.devices.visible import cuda_environment, find_card


class Card:
    """Bytes in all, used by anybody, and used by one process."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.total_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)

    @property
    def name(self) -> str:
        return str(pynvml.nvmlDeviceGetName(self._handle))

    def used_bytes(self) -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def process_bytes(self, pid: int) -> int | None:
        """None where the driver does not tell."""
        listed = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return next(
            (int(process.usedGpuMemory) for process in listed if process.pid == pid and process.usedGpuMemory), None
        )


@contextmanager
def open_card(device: str) -> Iterator[Card]:
    """NVML, open, and the card that CUDA gives this name. Raises NVMLError where there is no driver."""
    pynvml.nvmlInit()
    try:
        yield Card(find_card(int(device.removeprefix("cuda:")), {**cuda_environment(), **os.environ}))
    finally:
        pynvml.nvmlShutdown()
