"""What is left of a model's memory after it was told to go."""

import weakref
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from moorage.workers.runtimes.holdings import Holdings, is_on, memory_of


class Remains:
    """Remembers the memory that a model was seen to hold, without keeping any of it alive itself.

    It watches storages rather than tensors: a scripted module makes new tensor objects whenever it is asked, and
    something may hold the memory by a view that was never seen.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._storages: dict[int, StorageWeakRef] = {}
        self._arrays: dict[int, weakref.ref[np.ndarray[Any, Any]]] = {}

    def watch(self, holdings: Holdings) -> None:
        """Remember this too. What has gone since is forgotten."""
        self._storages = {key: seen for key, seen in self._storages.items() if not _is_gone(seen)}
        for tensor in holdings.tensors:
            storage = tensor.untyped_storage()
            if is_on(storage, self._device):
                seen = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._storages.setdefault(seen.cdata, seen)
        if self._device.type == "cpu":
            self._arrays = {id(array): weakref.ref(array) for array in (*holdings.arrays, *self._living_arrays())}

    def alive_bytes(self) -> int:
        """Bytes of the device that something still holds."""
        blocks = dict(map(memory_of, self._living_arrays()))
        for seen in self._storages.values():
            storage = torch.UntypedStorage._new_with_weak_ptr(seen.cdata)
            if storage is not None and storage.nbytes():
                blocks[storage.data_ptr()] = storage.nbytes()
        return sum(blocks.values())

    def _living_arrays(self) -> list[np.ndarray[Any, Any]]:
        return [array for seen in self._arrays.values() if (array := seen()) is not None]


def _is_gone(seen: StorageWeakRef) -> bool:
    return bool(seen.expired())  # type: ignore[no-untyped-call]
