"""Where bytes wait that were moved off a device."""

import ctypes
import os
from collections.abc import Iterator
from typing import Protocol

import torch

from moorage.workers.runtimes.spare_files import File, SpareFiles

_files = SpareFiles()

_PIECE_BYTES = 4 * 1024**2
# Pinned memory comes in powers of two; in pieces, all but the last take no more than they hold.
_PINNED_PIECE_BYTES = 64 * 1024**2


class HostCopy(Protocol):
    """Room of a fixed size for the bytes of storages, each at an offset of its own."""

    def store(self, storage: torch.UntypedStorage, offset: int) -> None:
        """Copy a storage here. Not certain to be done before settle. Raises OSError."""
        ...

    def bring(self, offset: int, storage: torch.UntypedStorage) -> None:
        """Fill a storage from here. Not certain to be done before settle. Raises OSError."""
        ...

    def settle(self) -> None:
        """Wait for what is under way."""
        ...

    def close(self) -> None:
        """Give the room up. May be called again."""
        ...


class FileCopy:
    """A file, of those that this process has for that. Raises OSError where the file system has no room."""

    def __init__(self, size_bytes: int) -> None:
        self._file: File | None = _files.take(size_bytes)

    def store(self, storage: torch.UntypedStorage, offset: int) -> None:
        view, descriptor = _memory(storage), self._descriptor
        done = 0
        while done < len(view):
            done += os.pwrite(descriptor, view[done : done + _PIECE_BYTES], offset + done)

    def bring(self, offset: int, storage: torch.UntypedStorage) -> None:
        view, descriptor = _memory(storage), self._descriptor
        done = 0
        while done < len(view):
            got_bytes = os.preadv(descriptor, [view[done : done + _PIECE_BYTES]], offset + done)
            if not got_bytes:
                raise OSError("the file with a model's weights has become shorter")
            done += got_bytes

    def settle(self) -> None:
        """Nothing is ever under way. The kernel writes to disk by itself, and drops its copy when memory is short."""

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            _files.give_up(file)

    @property
    def _descriptor(self) -> int:
        assert self._file is not None, "it was closed"
        return self._file.fileno()


def _memory(storage: torch.UntypedStorage) -> memoryview:
    """What a storage on a CPU holds, to be read and written while the storage lives."""
    return memoryview((ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())).cast("B")


class PinnedCopy:
    """Host memory that a CUDA device copies to and from by itself. Raises MemoryError where there is no room.

    To pin memory, and to give it back, takes several times as long as to copy as much. So torch keeps what was given
    up for the next copy: a worker that has its device for itself has pinned the most that it ever held on the host at
    once. One that shares it gives the rest back (`Caches.copies_ended`), as the others have a right to that room.
    """

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self._device = device
        self._pieces: list[torch.Tensor] = []
        pinned = device.type == "cuda"
        try:
            for start in range(0, size_bytes, _PINNED_PIECE_BYTES):
                piece_bytes = min(_PINNED_PIECE_BYTES, size_bytes - start)
                self._pieces.append(torch.empty(piece_bytes, dtype=torch.uint8, device="cpu", pin_memory=pinned))
        except RuntimeError as error:  # of CUDA, or of torch's own allocator
            self.close()
            raise MemoryError(f"no {size_bytes} bytes of pinned host memory: {error}") from error

    def store(self, storage: torch.UntypedStorage, offset: int) -> None:
        for here, there in self._slices(storage, offset):
            here.copy_(there, non_blocking=True)

    def bring(self, offset: int, storage: torch.UntypedStorage) -> None:
        for here, there in self._slices(storage, offset):
            there.copy_(here, non_blocking=True)

    def settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        self._pieces.clear()

    def _slices(self, storage: torch.UntypedStorage, offset: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Parts of the pieces, and the parts of a storage that go there."""
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        done = 0
        while done < storage.nbytes():
            index, start = divmod(offset + done, _PINNED_PIECE_BYTES)
            here = self._pieces[index][start : start + storage.nbytes() - done]
            yield here, whole[done : done + here.numel()]
            done += here.numel()
