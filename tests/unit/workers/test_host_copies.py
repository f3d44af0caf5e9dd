"""Copies in pieces: whatever the sizes, the same bytes come back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moorage.workers.runtimes import host_copies
from moorage.workers.runtimes.host_copies import FileCopy, HostCopy, PinnedCopy


def pinned(size_bytes: int) -> HostCopy:
    return PinnedCopy(size_bytes, torch.device("cpu"))


@pytest.mark.parametrize("kind", [FileCopy, pinned])
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8), piece_bytes=st.sampled_from([1, 8, 16, 64]))
def test_what_was_stored_comes_back(kind: type[FileCopy], sizes: list[int], piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_copies, "_PIECE_BYTES", piece_bytes)
        patch.setattr(host_copies, "_PINNED_PIECE_BYTES", piece_bytes)
        tensors = [torch.randint(0, 256, (size,), dtype=torch.uint8) for size in sizes]
        expected = [tensor.clone() for tensor in tensors]
        offsets = [sum(sizes[:index]) for index in range(len(sizes))]
        copy = kind(sum(sizes))
        for tensor, offset in zip(tensors, offsets, strict=True):
            copy.store(tensor.untyped_storage(), offset)
            tensor.zero_()
        for tensor, offset in zip(tensors, offsets, strict=True):
            copy.bring(offset, tensor.untyped_storage())
        copy.settle()
        copy.close()
    assert all(map(torch.equal, tensors, expected))
