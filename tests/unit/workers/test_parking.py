"""Storages leave the device and come back, and the same tensor objects hold the same values again."""

import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from moorage.workers.runtimes import host_copies
from moorage.workers.runtimes.holdings import held_bytes
from moorage.workers.runtimes.parking import Parking
from moorage.workers.runtimes.spare_files import SpareFiles

MIB = 2**20


class Holder:
    def __init__(self, **held: object) -> None:
        vars(self).update(held)


@dataclass(slots=True)
class Slotted:
    tensor: torch.Tensor


def plain(folder: Path) -> torch.Tensor:
    return torch.arange(1000.0)


def of_inference_mode(folder: Path) -> torch.Tensor:
    with torch.inference_mode():
        return torch.arange(1000.0)


def parameter(folder: Path) -> torch.Tensor:
    return torch.nn.Parameter(torch.arange(1000.0))


def from_numpy(folder: Path) -> torch.Tensor:
    return torch.from_numpy(np.arange(1000, dtype=np.float32))


def parameter_from_numpy(folder: Path) -> torch.Tensor:
    return torch.nn.Parameter(from_numpy(folder))


def from_buffer(folder: Path) -> torch.Tensor:
    return torch.frombuffer(bytearray(np.arange(1000, dtype=np.float32).tobytes()), dtype=torch.float32)


def of_inference_mode_from_numpy(folder: Path) -> torch.Tensor:
    with torch.inference_mode():
        return from_numpy(folder)


def shared(folder: Path) -> torch.Tensor:
    tensor = torch.arange(1000.0)
    tensor.share_memory_()  # type: ignore[no-untyped-call]
    return tensor


def loaded(folder: Path) -> torch.Tensor:
    torch.save(torch.arange(1000.0), folder / "tensor.pt")
    tensor: torch.Tensor = torch.load(folder / "tensor.pt")
    return tensor


def mapped(folder: Path) -> torch.Tensor:
    torch.save(torch.arange(1000.0), folder / "tensor.pt")
    tensor: torch.Tensor = torch.load(folder / "tensor.pt", mmap=True)
    return tensor


KINDS: list[Callable[[Path], torch.Tensor]] = [
    plain,
    of_inference_mode,
    parameter,
    from_numpy,
    parameter_from_numpy,
    from_buffer,
    of_inference_mode_from_numpy,
    shared,
    loaded,
    mapped,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_tensor_and_its_views_come_back_as_they_were(kind: Callable[[Path], torch.Tensor], tmp_path: Path) -> None:
    tensor = kind(tmp_path)
    column = tensor.view(100, 10)[:, 3]  # strided, with an offset
    holder = Holder(a=tensor, views=[column])
    expected = tensor.detach().clone(), column.detach().clone()
    for _ in range(2):
        parked = Parking("cpu").park(holder)
        assert held_bytes(holder) == tensor.untyped_storage().nbytes() == 0
        assert parked.size_bytes == expected[0].untyped_storage().nbytes()
        Parking("cpu").bring_back(parked)
        assert torch.equal(tensor, expected[0])
        assert torch.equal(column, expected[1])
    assert column.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    with torch.inference_mode():
        tensor[3] = 77.0
    assert column[0] == 77.0


def test_everything_that_objects_hold_goes_each_storage_once() -> None:
    shared_tensor = torch.ones(1000)
    module = torch.nn.Linear(10, 10)
    holder = Holder(a=[{"b": (shared_tensor,)}], again=shared_tensor[:7], module=module, c=Slotted(torch.ones(50)))
    before = module(torch.ones(10))
    parked = Parking("cpu").park(holder, shared_tensor)
    assert parked.size_bytes == 4 * (1000 + 100 + 10 + 50)
    assert held_bytes(holder) == 0
    Parking("cpu").bring_back(parked)
    assert torch.equal(module(torch.ones(10)), before)


def test_sparse_tensors_go_with_their_parts() -> None:
    dense = torch.eye(50)
    holder = Holder(sparse=dense.to_sparse())
    held = held_bytes(holder)
    assert held > 0
    parked = Parking("cpu").park(holder)
    assert (parked.size_bytes, held_bytes(holder)) == (held, 0)
    Parking("cpu").bring_back(parked)
    assert torch.equal(vars(holder)["sparse"].to_dense(), dense)


def test_arrays_stay_and_so_do_tensors_over_them() -> None:
    array = np.arange(1000, dtype=np.float32)
    holder = Holder(array=array, over=torch.from_numpy(array[10:]))
    with_parked(holder, lambda parked: None)
    array[10] = -1.0
    assert vars(holder)["over"][0] == -1.0


def with_parked(holder: Holder, look: Callable[[Any], None]) -> None:
    parked = Parking("cpu").park(holder)
    look(parked)
    Parking("cpu").bring_back(parked)


def test_nothing_to_park_is_no_error() -> None:
    with_parked(Holder(text="none"), lambda parked: pytest.fail("bytes") if parked.size_bytes else None)


@contextmanager
def limited(kind: int, limit_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def test_without_room_on_the_host_all_stays_as_it_was() -> None:
    tensors = [torch.arange(1000.0), torch.from_numpy(np.arange(1000, dtype=np.float32))]
    addresses = [tensor.data_ptr() for tensor in tensors]
    with limited(resource.RLIMIT_FSIZE, 7999), pytest.raises(OSError, match="large"):
        Parking("cpu").park(tensors)
    assert [tensor.data_ptr() for tensor in tensors] == addresses
    assert all(torch.equal(tensor, torch.arange(1000.0)) for tensor in tensors)


class Stubborn(torch.Tensor):
    def set_(self, *args: Any) -> torch.Tensor:
        raise RuntimeError("no")


def test_where_a_storage_cannot_be_exchanged_all_stays_as_it_was() -> None:
    owned = torch.from_numpy(np.arange(1000, dtype=np.float32))
    stubborn = torch.from_numpy(np.arange(1000, dtype=np.float32)).as_subclass(Stubborn)
    addresses = owned.data_ptr(), stubborn.data_ptr()
    with pytest.raises(RuntimeError, match="no"):
        Parking("cpu").park([owned, stubborn])
    assert (owned.data_ptr(), stubborn.data_ptr()) == addresses
    assert torch.equal(owned, torch.arange(1000.0))


def test_without_room_on_the_device_the_copy_is_kept_for_another_try() -> None:
    tensors = [torch.arange(1000.0), torch.ones(64 * MIB)]
    parked = Parking("cpu").park(tensors)
    address_space = psutil.Process().memory_info().vms
    with limited(resource.RLIMIT_AS, address_space + 16 * MIB), pytest.raises(MemoryError):
        Parking("cpu").bring_back(parked)
    assert held_bytes(tensors) == 0
    Parking("cpu").bring_back(parked)
    assert torch.equal(tensors[0], torch.arange(1000.0))
    assert tensors[1].sum() == 64 * MIB


def test_the_file_has_no_name_and_is_kept_for_the_next_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = SpareFiles()
    monkeypatch.setattr(host_copies, "_files", files)
    for _ in range(3):
        parked = Parking("cpu").park(torch.ones(MIB))
        assert open_files_below(tmp_path) == 1
        assert list(tmp_path.iterdir()) == []
        parked.close()
        parked.close()
        assert open_files_below(tmp_path) == 1
    files.close()
    assert open_files_below(tmp_path) == 0


def open_files_below(folder: Path) -> int:
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(target).startswith(str(folder)) for target in links)
