"""What a loaded model is measured to hold."""

import numpy as np
import torch

from moorage.workers.runtimes.holdings import held_bytes

MIB = 2**20


class Pipeline:
    """Callable, as many libraries' models are."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(512, 512, bias=False)

    def __call__(self) -> None:
        return None


class Holder:
    def __init__(self, **held: object) -> None:
        vars(self).update(held)


def test_tensors_are_found_wherever_they_are() -> None:
    tensor = torch.zeros(MIB // 4)
    assert held_bytes(Holder(a=[{"b": (tensor,)}])) == MIB
    assert held_bytes(Holder(pipeline=Pipeline())) == MIB
    assert held_bytes(Holder(module=torch.nn.Sequential(torch.nn.Linear(512, 512, bias=False)))) == MIB


def test_what_is_shared_counts_once() -> None:
    tensor = torch.zeros(MIB // 4)
    assert held_bytes(Holder(a=tensor, b=tensor[:10], c=tensor.view(-1))) == MIB


def test_numpy_arrays_count_and_their_views_do_not() -> None:
    array = np.zeros(MIB, np.uint8)
    assert held_bytes(Holder(a=array, b=array[:10])) == MIB


def test_libraries_are_not_looked_into() -> None:
    assert held_bytes(Holder(library=torch, function=held_bytes, kind=Holder)) == 0


def test_circles_end() -> None:
    holder = Holder()
    vars(holder)["itself"] = holder
    assert held_bytes(holder) == 0
