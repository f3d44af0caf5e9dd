import pytest

from moorage.domain.tensor import Datatype, TensorSpec, element_count


@pytest.mark.parametrize(
    ("datatype", "item_bytes"),
    [
        ("BOOL", 1),
        ("INT8", 1),
        ("UINT16", 2),
        ("FP16", 2),
        ("BF16", 2),
        ("INT32", 4),
        ("FP32", 4),
        ("UINT64", 8),
        ("FP64", 8),
        ("BYTES", 4),
    ],
)
def test_item_bytes(datatype: str, item_bytes: int) -> None:
    assert Datatype(datatype).item_bytes == item_bytes


def test_every_datatype_has_a_size() -> None:
    assert all(datatype.item_bytes > 0 for datatype in Datatype)


@pytest.mark.parametrize(("shape", "count"), [((), 1), ((3,), 3), ((2, 3, 4), 24), ((5, 0), 0)])
def test_element_count(shape: tuple[int, ...], count: int) -> None:
    assert element_count(shape) == count


def test_a_spec_takes_plain_strings_and_lists() -> None:
    spec = TensorSpec("x", "FP32", [3, -1], optional=True)
    assert (spec.datatype, spec.shape, spec.optional) == (Datatype.FP32, (3, -1), True)


def test_a_spec_refuses_an_unknown_datatype() -> None:
    with pytest.raises(ValueError, match="FP8"):
        TensorSpec("x", "FP8", [1])
