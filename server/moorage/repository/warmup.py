"""[[warmup]] in model.toml: runs that a worker does right after it has built the model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from moorage.domain.model import Fill, WarmupInput, WarmupRun
from moorage.domain.tensor import MAX_RUN_INPUT_BYTES, Datatype, TensorSpec, element_count
from moorage.repository.problems import Location, key_path, unknown_key
from moorage.repository.quoting import shown
from moorage.repository.ranges import LARGEST_FLOATS, integers_of
from moorage.repository.tables import MAX_ROWS, Table

MAX_WARMUPS = 32
MAX_COUNT = 100

_EXPECTED_VALUES = "a list of numbers, strings, or true and false, not empty"

Size = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Values = tuple[bool | int | float | str, ...]


def _parse_values(value: object) -> Values:
    values = value if isinstance(value, list | tuple) else ()
    if not values or not all(isinstance(element, bool | int | float | str) for element in values):
        raise ValueError(f"expected {_EXPECTED_VALUES}, got {shown(value)}")
    return tuple(values)


class WarmupInputTable(Table):
    """What one input holds."""

    shape: tuple[Size, ...] | None = Field(default=None, description="a list of sizes, each at least 0")
    fill: Fill | None = Field(default=None, description=f"one of {', '.join(Fill)}")
    values: Annotated[Values, PlainValidator(_parse_values)] = Field(default=(), description=_EXPECTED_VALUES)


class WarmupTable(Table):
    """One run, done so many times. Inputs that it does not name are zeros, the optional ones left out."""

    rows: int | None = Field(default=None, strict=True, ge=0, le=MAX_ROWS, description=f"rows from 0 to {MAX_ROWS}")
    count: int = Field(default=1, strict=True, ge=1, le=MAX_COUNT, description=f"times from 1 to {MAX_COUNT}")
    inputs: Mapping[str, WarmupInputTable] = Field(
        default_factory=dict, description="a table by inputs' names, each such as { shape = [3], fill = 'random' }"
    )

    def run(self, declared: Sequence[TensorSpec]) -> WarmupRun:
        """The run, of a table in which nothing is wrong."""
        return WarmupRun(
            rows=self.rows or 1,
            count=self.count,
            inputs=tuple(_input(spec, table) for spec, table in self._with_defaults(declared)),
        )

    def problems(self, location: Location, declared: Sequence[TensorSpec], max_batch_size: int) -> list[str]:
        """What does not agree with the model's declaration. location: of this table."""
        found = list(self._rows_problems(key_path((*location, "rows")), max_batch_size))
        known = [spec.name for spec in declared]
        path = key_path((*location, "inputs"))
        found += [f"{path}: {unknown_key(name, known)}" for name in self.inputs if name not in known]
        for spec, table in self._with_defaults(declared):
            found += _input_problems((*location, "inputs", spec.name), spec, table, self.rows or 1)
        return found or list(self._size_problems(path, declared))

    def _rows_problems(self, path: str, max_batch_size: int) -> Iterator[str]:
        if max_batch_size == 0 and self.rows:
            yield f"{path}: expected none where max_batch_size is 0, got {self.rows}"
        elif max_batch_size > 0 and self.rows is not None and not 1 <= self.rows <= max_batch_size:
            yield f"{path}: expected rows from 1 to max_batch_size = {max_batch_size}, got {self.rows}"

    def _size_problems(self, path: str, declared: Sequence[TensorSpec]) -> Iterator[str]:
        run = self.run(declared)
        size_bytes = sum(item.size_bytes(run.rows) for item in run.inputs)
        if size_bytes > MAX_RUN_INPUT_BYTES:
            yield f"{path}: expected at most {MAX_RUN_INPUT_BYTES} bytes together, got {size_bytes}"

    def _with_defaults(self, declared: Sequence[TensorSpec]) -> Iterator[tuple[TensorSpec, WarmupInputTable]]:
        for spec in declared:
            if spec.name in self.inputs or not spec.optional:
                yield spec, self.inputs.get(spec.name, WarmupInputTable())


def _input(spec: TensorSpec, table: WarmupInputTable) -> WarmupInput:
    shape = spec.shape if table.shape is None else table.shape
    return WarmupInput(spec.name, spec.datatype, shape, table.fill or Fill.ZEROS, table.values)


def _input_problems(location: Location, spec: TensorSpec, table: WarmupInputTable, rows: int) -> list[str]:
    path = key_path(location)
    found = list(_shape_problems(f"{path}.shape", spec, table.shape))
    if table.values and table.fill is not None:
        found.append(f"{path}: expected fill or values, got both")
    if table.fill is Fill.RANDOM and spec.datatype is Datatype.BYTES:
        found.append(f"{path}.fill: expected {Fill.ZEROS} for BYTES, or values, got '{Fill.RANDOM}'")
    wrong = [index for index, value in enumerate(table.values) if not _is_one(value, spec.datatype)]
    if wrong:
        expected, got = _expected_value(spec.datatype), shown(table.values[wrong[0]])
        found.append(f"{path}.values[{wrong[0]}]: expected {expected}, got {got}")
    if not found and len(table.values) > (most := rows * element_count(_input(spec, table).shape)):
        found.append(f"{path}.values: expected at most {most}, which fill the run, got {len(table.values)}")
    return found


def _shape_problems(path: str, spec: TensorSpec, given: Sequence[int] | None) -> Iterator[str]:
    declared = list(spec.shape)
    if given is None:
        if -1 in declared:
            yield f"{path}: expected {declared} with a size for each -1, got nothing"
    elif len(given) != len(declared) or any(want not in (-1, got) for want, got in zip(declared, given, strict=True)):
        yield f"{path}: expected {declared} with a size for each -1, got {shown(list(given))}"


def _is_one(value: Any, datatype: Datatype) -> bool:
    """Whether an input of the datatype can hold the value."""
    if datatype in (Datatype.BYTES, Datatype.BOOL):
        return isinstance(value, str if datatype is Datatype.BYTES else bool)
    if isinstance(value, bool | str):
        return False
    least, most = _range_of(datatype)
    return least <= value <= most and (isinstance(value, int) or datatype in LARGEST_FLOATS)


def _range_of(datatype: Datatype) -> tuple[float, float]:
    if datatype in LARGEST_FLOATS:
        return -LARGEST_FLOATS[datatype], LARGEST_FLOATS[datatype]
    return integers_of(datatype)


def _expected_value(datatype: Datatype) -> str:
    if datatype in (Datatype.BYTES, Datatype.BOOL):
        return "a string" if datatype is Datatype.BYTES else "true or false"
    least, most = _range_of(datatype)
    return f"a number from {least:g} to {most:g}" if datatype in LARGEST_FLOATS else f"an int from {least} to {most}"
