"""Inputs of which each request of a run has brought a tensor of its own shape: where those stand in the lane's memory,
and where they go in one that is filled up."""

from collections.abc import Iterator, Sequence

from moorage.domain.tensor import element_count


def element_counts(parts: Sequence[tuple[int, ...]]) -> list[int]:
    """How many elements each part has."""
    return [element_count(shape) for shape in parts]


def places(parts: Sequence[tuple[int, ...]]) -> Iterator[tuple[slice, ...]]:
    """Of each part, the index at which it stands in the padded tensor: its rows below the rows of those before."""
    row = 0
    for rows, *dimensions in parts:
        yield (slice(row, row + rows), *map(slice, dimensions))
        row += rows
