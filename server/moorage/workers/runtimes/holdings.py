"""What a loaded model holds: the tensors and arrays that can be reached from its objects."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

# They reach into whole libraries, and hold no weights of their own.
_NOT_LOOKED_INTO = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_PARTS_OF_LAYOUT = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


@dataclass(frozen=True, slots=True)
class Holdings:
    """Tensors with a storage of bytes, and NumPy arrays. Several may share memory."""

    tensors: tuple[torch.Tensor, ...]
    arrays: tuple[np.ndarray[Any, Any], ...]

    def size_bytes(self, device: torch.device | None = None) -> int:
        """Bytes of all distinct memory; or of that on one device: arrays are a CPU's."""
        blocks: dict[int, int] = {}
        for tensor in self.tensors:
            storage = tensor.untyped_storage()
            if device is None or is_on(storage, device):
                blocks[storage.data_ptr()] = storage.nbytes()
        if device is None or device.type == "cpu":
            blocks.update(map(memory_of, self.arrays))
        return sum(blocks.values())


def find(*roots: object) -> Holdings:
    """Look into attributes, fields of dataclasses, lists, dicts and sets.

    What else a library keeps for a model (a tokenizer's tables, a session's buffers) can't be seen from here.
    """
    tensors: list[torch.Tensor] = []
    arrays: list[np.ndarray[Any, Any]] = []
    seen: dict[int, object] = {}  # keeps what it has seen, or another object could get the same id
    pending: list[object] = list(roots)
    while pending:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, torch.Tensor):
            parts = _parts(item)
            if not parts and _has_storage(item):
                tensors.append(item)
            pending += [*parts, item._base, *vars(item).values()]  # a view keeps the tensor that it is a view of
        elif isinstance(item, np.ndarray):
            arrays.append(item)
        else:
            pending += _members(item)
    return Holdings(tuple(tensors), tuple(arrays))


def held_bytes(*roots: object) -> int:
    """Bytes of the distinct tensor storages and NumPy arrays that objects hold, on whatever device."""
    return find(*roots).size_bytes()


def is_on(storage: torch.UntypedStorage, device: torch.device) -> bool:
    return storage.device.type == device.type and device.index in (None, storage.device.index)


def memory_of(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Address and bytes of what an array is, or is a view of."""
    base = array.base if isinstance(array.base, np.ndarray) else array
    return base.ctypes.data, base.nbytes


def _members(item: object) -> Iterable[object]:
    if isinstance(item, torch.nn.Module):
        # A scripted module shows its tensors only by these two.
        return [*item.parameters(), *item.buffers(), *vars(item).values()]
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, list | tuple | set | frozenset):
        return list(item)
    if isinstance(item, _NOT_LOOKED_INTO):
        return []
    if dataclasses.is_dataclass(item):  # it may have slots
        return [*(getattr(item, field.name, None) for field in dataclasses.fields(item)), *_attributes(item)]
    return _attributes(item)


def _attributes(item: object) -> Iterable[object]:
    return list(vars(item).values()) if hasattr(item, "__dict__") else []


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that one without a storage of its own is made of."""
    if hasattr(tensor, "__tensor_flatten__"):  # torch's protocol for subclasses that wrap others
        return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    return [getattr(tensor, name)() for name in _PARTS_OF_LAYOUT.get(tensor.layout, ())]


def _has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and not torch.nn.parameter.is_lazy(tensor)
