import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.repository.quantities import MAX_BYTES, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected_bytes"),
    [
        ("0 B", 0),
        ("2GiB", 2 * 1024**3),
        ("90 MiB", 90 * 1024**2),
        ("1.5 GiB", 3 * 512 * 1024**2),
        ("0.1 GB", 100_000_000),
        ("1 kb", 1000),
        ("512", 512),
        (" 7 tib ", 7 * 1024**4),
        (1048576, 1048576),
    ],
)
def test_bytes_are_read(text: object, expected_bytes: int) -> None:
    assert parse_bytes(text) == expected_bytes


@pytest.mark.parametrize(
    "text", ["1,5 GiB", "-1", "-1 MiB", "2 G", "1e3", "GiB", "", "1 GiB please", "9999999 TiB", True, -1, 1.5, None, []]
)
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"^expected bytes such as .*, got "):
        parse_bytes(text)


@given(st.one_of(st.text(), st.text("0123456789.kMGiB "), st.integers(), st.floats()))
def test_any_value_is_bytes_in_range_or_a_value_error(value: object) -> None:
    with contextlib.suppress(ValueError):
        assert 0 <= parse_bytes(value) <= MAX_BYTES
