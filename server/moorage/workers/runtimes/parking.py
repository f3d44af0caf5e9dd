"""Weights, and states between steps, leave the device and come back. Their tensor objects stay what they are.

A tensor's storage is copied out and emptied, and filled again later. So every tensor and view that shares it, also in
a scripted module, holds its values again without knowing. A storage that can't be emptied (one that a file reader,
NumPy or shared memory owns) is first exchanged for one that can, in all tensors that were found to share it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from moorage.workers.runtimes.base import is_out_of_memory
from moorage.workers.runtimes.cuda_memory import own_segments
from moorage.workers.runtimes.holdings import Holdings, find, is_on, memory_of
from moorage.workers.runtimes.host_copies import FileCopy, HostCopy, PinnedCopy


@dataclass(frozen=True, slots=True)
class _Block:
    """A storage, the tensors that were found to share it, and where its bytes go."""

    storage: torch.UntypedStorage
    tensors: list[torch.Tensor]
    size_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class Parked:
    """What was moved off a device. It keeps no tensor alive."""

    size_bytes: int
    copy: HostCopy
    blocks: list[tuple[torch.UntypedStorage, int, int]] = field(default_factory=list)  # size and offset in bytes

    def close(self) -> None:
        """Give the host's copy up. May be called again."""
        self.blocks.clear()
        self.copy.close()


class Parking:
    """Moves tensors between a device and the host: pinned memory beside a CUDA device, a file beside a CPU."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)

    def park(self, *roots: object) -> Parked:
        """Move every storage on the device that objects hold to the host.

        NumPy arrays stay, and tensors over their memory. Raises OSError or MemoryError where the host has no room, and
        then leaves everything as it was.
        """
        with torch.inference_mode(), _memory_errors():
            blocks = _blocks(find(*roots), self._device)
            size_bytes = sum(block.size_bytes for block in blocks)
            copy = self._copy(size_bytes)
            try:
                for block in blocks:
                    copy.store(block.storage, block.offset)
                copy.settle()
                storages = _made_resizable(blocks)
            except BaseException:
                copy.close()
                raise
            for storage in storages:
                storage.resize_(0)
            self._let_go()
        sizes = [(block.size_bytes, block.offset) for block in blocks]
        return Parked(size_bytes, copy, [(storage, *size) for storage, size in zip(storages, sizes, strict=True)])

    def bring_back(self, parked: Parked) -> None:
        """Give the same tensors their values again, and close what was parked.

        Raises torch.OutOfMemoryError, MemoryError or OSError, and then keeps the host's copy for another try.
        """
        with torch.inference_mode(), _memory_errors(), own_segments(self._device):
            try:
                for storage, size_bytes, offset in parked.blocks:
                    storage.resize_(size_bytes)
                    parked.copy.bring(offset, storage)
            except BaseException:
                parked.copy.settle()
                for storage, _, _ in parked.blocks:
                    storage.resize_(0)
                self._let_go()
                raise
            parked.copy.settle()
        parked.close()

    def _copy(self, size_bytes: int) -> HostCopy:
        return FileCopy(size_bytes) if self._device.type == "cpu" else PinnedCopy(size_bytes, self._device)

    def _let_go(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def _blocks(holdings: Holdings, device: torch.device) -> list[_Block]:
    """Each distinct storage on the device once, unless NumPy sees its memory too."""
    arrays = [range(start, start + size_bytes) for start, size_bytes in map(memory_of, holdings.arrays)]
    blocks: dict[int, _Block] = {}
    offset = 0
    for tensor in holdings.tensors:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if not storage.nbytes() or not is_on(storage, device) or any(address in array for array in arrays):
            continue
        if address not in blocks:
            blocks[address] = _Block(storage, [], storage.nbytes(), offset)
            offset += storage.nbytes()
        blocks[address].tensors.append(tensor)
    return list(blocks.values())


def _made_resizable(blocks: list[_Block]) -> list[torch.UntypedStorage]:
    """A storage for each block that can be emptied, which has been where it is a new one. All or nothing."""
    exchanged: list[_Block] = []
    try:
        return [_exchange(block, exchanged) if _is_owned(block.storage) else block.storage for block in blocks]
    except BaseException:
        for block in exchanged:
            _rebind(block.tensors, block.storage)
        raise


def _is_owned(storage: torch.UntypedStorage) -> bool:
    """Whether something else owns the memory. Of shared memory torch claims that it can be resized, and crashes."""
    return not storage.resizable() or (storage.device.type == "cpu" and storage.is_shared())


def _exchange(block: _Block, exchanged: list[_Block]) -> torch.UntypedStorage:
    fresh = torch.UntypedStorage(block.size_bytes, device=block.storage.device)  # type: ignore[no-untyped-call]
    exchanged.append(block)
    _rebind(block.tensors, fresh)
    fresh.resize_(0)
    return fresh


def _rebind(tensors: list[torch.Tensor], storage: torch.UntypedStorage) -> None:
    for tensor in tensors:
        tensor.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


@contextmanager
def _memory_errors() -> Iterator[None]:
    """torch's allocator for CPUs says with a RuntimeError that memory is short."""
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error) and not isinstance(error, torch.OutOfMemoryError):
            raise MemoryError(str(error)) from error
        raise
