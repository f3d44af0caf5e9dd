"""The tables inside model.toml. Only keys that have an effect are known; any other is an error."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from moorage.domain.model import Isolation, Preemption
from moorage.domain.tensor import Datatype, TensorSpec
from moorage.repository.padding import EXPECTED_PADDING, Padding, as_element, expected_padding
from moorage.repository.quantities import EXPECTED_BYTES, Bytes
from moorage.repository.quoting import shown

MAX_ROWS = 2**20
MAX_PREEMPTIONS = 1000
MAX_SECONDS = 7 * 24 * 3600.0
MAX_PER_S = 1e9
MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000.0
MAX_STEPS = 2**20

Seconds = Annotated[float, Field(strict=True, gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(strict=True, ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
PerSecond = Annotated[float, Field(strict=True, gt=0, le=MAX_PER_S, allow_inf_nan=False)]
PreferredRows = Annotated[int, Field(strict=True, ge=1, le=MAX_ROWS)]
Dimension = Annotated[int, Field(strict=True, ge=-1, lt=2**31)]

EXPECTED_SECONDS = f"seconds above 0, at most {MAX_SECONDS:.0f}"
_EXPECTED_COSTS = f"seconds from 0 to {MAX_SECONDS:.0f}"
_EXPECTED_PER_S = "a number per second, above 0, at most 1e9"
_EXPECTED_WEIGHT = f"a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
_EXPECTED_SIZES = "a list of rows, each at least 1, ascending"
_EXPECTED_FALLBACK = '"cpu", or no such key'
_EXPECTED_DEVICES = 'a list of "*", "cpu" or "cuda:N", each once'


def repeated(names: Iterable[str]) -> list[str]:
    """The names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


class Table(BaseModel):
    """Frozen, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OutputTable(Table):
    """One output. The shape is without the batch axis."""

    name: str = Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$", description="a name")
    datatype: Datatype = Field(description=f"one of {', '.join(Datatype)}")
    shape: tuple[Dimension, ...] = Field(description="a list of dimensions, each -1 (any size) or at least 0")

    def spec(self) -> TensorSpec:
        return TensorSpec(self.name, self.datatype, self.shape)


class InputTable(OutputTable):
    """One input. An optional one may be left out of a request.

    ragged, padding: how those of several requests are put together where their free dimensions differ.
    """

    optional: bool = Field(default=False, strict=True, description="true or false")
    ragged: bool = Field(default=False, strict=True, description="true or false")
    padding: Padding | None = Field(default=None, description=EXPECTED_PADDING)

    def spec(self) -> TensorSpec:
        padding = None if self.padding is None else as_element(self.padding, self.datatype)
        return TensorSpec(
            self.name, self.datatype, self.shape, optional=self.optional, ragged=self.ragged, padding=padding
        )

    def problems(self, max_batch_size: int) -> list[str]:
        """What ragged and padding can't mean here; each line goes on after the input's key path."""
        key = "ragged" if self.ragged else "padding"
        if not self.ragged and self.padding is None:
            return []
        found = []
        if self.ragged and self.padding is not None:
            found.append(f": expected either ragged or padding, got ragged = true and padding = {shown(self.padding)}")
        if max_batch_size == 0:
            found.append(f".{key}: expected only with max_batch_size above 0, got max_batch_size = 0")
        if -1 not in self.shape:
            found.append(f".{key}: expected only with a dimension of -1, got shape = {shown(list(self.shape))}")
        if self.padding is not None and (expected := expected_padding(self.padding, self.datatype)):
            found.append(f".padding: expected {expected}, as datatype = '{self.datatype}', got {shown(self.padding)}")
        return found


class MemoryTable(Table):
    """Declared memory, and the model's share of its device. Weights and state are measured where not declared."""

    weights_bytes: Bytes | None = Field(default=None, alias="weights", description=EXPECTED_BYTES)
    workspace_per_row_bytes: Bytes = Field(default=0, alias="workspace_per_row", description=EXPECTED_BYTES)
    workspace_fixed_bytes: Bytes = Field(default=0, alias="workspace_fixed", description=EXPECTED_BYTES)
    state_bytes: Bytes | None = Field(default=None, alias="state", description=EXPECTED_BYTES)
    reserved_bytes: Bytes = Field(default=0, alias="reserved", description=EXPECTED_BYTES)
    limit_bytes: Bytes | None = Field(default=None, alias="limit", description=EXPECTED_BYTES)
    pinned: bool = Field(default=False, strict=True, description="true or false")

    def problems(self) -> list[str]:
        """What can't be meant: a limit below the least request, or a reserve beyond all that the model can hold."""
        if self.limit_bytes is None:
            return []
        found = []
        least_bytes = self._run_bytes(1)
        if self.limit_bytes < least_bytes:
            found.append(
                f"memory.limit: expected at least {least_bytes} bytes, which one row takes by workspace_fixed, "
                f"workspace_per_row and state, got {self.limit_bytes}"
            )
        if self.weights_bytes is not None and self.reserved_bytes > self.weights_bytes + self.limit_bytes:
            found.append(
                f"memory.reserved: expected at most {self.weights_bytes + self.limit_bytes} bytes, weights and limit "
                f"together, got {self.reserved_bytes}"
            )
        return found

    def run_problems(self, path: str, rows: int) -> list[str]:
        """Whether a run of so many rows exceeds the limit. path: of the key that asks for it."""
        needed_bytes = self._run_bytes(rows)
        if self.limit_bytes is None or needed_bytes <= self.limit_bytes:
            return []
        return [
            f"{path}: expected a run of at most memory.limit = {self.limit_bytes} bytes, got {rows} rows, which take "
            f"{needed_bytes} by workspace_fixed, workspace_per_row and state"
        ]

    def _run_bytes(self, rows: int) -> int:
        return self.workspace_fixed_bytes + rows * self.workspace_per_row_bytes + (self.state_bytes or 0)


class BatchingTable(Table):
    """When a run begins where its device is idle, and how many rows it takes."""

    max_queue_delay_s: SecondsOrZero | None = Field(default=None, description=_EXPECTED_COSTS)
    low_watermark: int = Field(default=0, strict=True, ge=0, le=MAX_ROWS, description=f"rows from 0 to {MAX_ROWS}")
    preferred_sizes: tuple[PreferredRows, ...] = Field(default=(), description=_EXPECTED_SIZES)
    split_requests: bool = Field(default=False, strict=True, description="true or false")
    per_request_parameters: frozenset[Annotated[str, Field(min_length=1)]] = Field(
        default=frozenset(), description="a list of names of parameters, or '*' for all"
    )

    def problems(self, max_batch_size: int) -> list[str]:
        """What can't be meant: sizes that no run may have, rows that are waited for without an end, or a split between
        rows where there are none."""
        found = []
        largest = max((self.low_watermark, *self.preferred_sizes))
        if largest > max(1, max_batch_size):
            found.append(
                f"batching: expected low_watermark and preferred_sizes of at most max_batch_size = {max_batch_size}, "
                f"got {largest}"
            )
        if (self.low_watermark > 1 or self.preferred_sizes) and self.max_queue_delay_s is None:
            found.append(
                "batching.max_queue_delay_s: expected the seconds that low_watermark and preferred_sizes are waited "
                "for, got nothing"
            )
        if list(self.preferred_sizes) != sorted(set(self.preferred_sizes)):
            found.append(
                f"batching.preferred_sizes: expected {_EXPECTED_SIZES}, got {shown(list(self.preferred_sizes))}"
            )
        if self.split_requests and max_batch_size == 0:
            found.append(
                "batching.split_requests: expected true only with max_batch_size above 0, got max_batch_size = 0"
            )
        return found


class SchedulingTable(Table):
    """Bounds of the queue, how long a request without a deadline may take, and who goes first."""

    priority: int = Field(default=3, strict=True, ge=1, le=5, description="1 (highest) to 5")
    weight: float = Field(
        default=1.0, strict=True, ge=MIN_WEIGHT, le=MAX_WEIGHT, allow_inf_nan=False, description=_EXPECTED_WEIGHT
    )
    max_queue_rows: int = Field(default=256, strict=True, ge=1, le=MAX_ROWS, description=f"rows from 1 to {MAX_ROWS}")
    max_queue_bytes: Bytes = Field(default=64 * 1024 * 1024, ge=1, description=EXPECTED_BYTES + ", at least 1")
    default_timeout_s: Seconds = Field(default=30.0, description=EXPECTED_SECONDS)
    preemption: Preemption = Field(default=Preemption.STEP, description=f"one of {', '.join(Preemption)}")
    max_preemptions: int = Field(
        default=3, strict=True, ge=0, le=MAX_PREEMPTIONS, description=f"times from 0 to {MAX_PREEMPTIONS}"
    )


class RateTable(Table):
    """How much the model may be asked for."""

    requests_per_s: PerSecond | None = Field(default=None, description=_EXPECTED_PER_S)
    rows_per_s: PerSecond | None = Field(default=None, description=_EXPECTED_PER_S)
    burst_s: Seconds = Field(default=1.0, description=EXPECTED_SECONDS)


DeviceName = Annotated[str, Field(pattern=r"^(\*|cpu|cuda:(0|[1-9][0-9]{0,2}))$")]


def _each_once(devices: tuple[str, ...]) -> tuple[str, ...]:
    if not devices or repeated(devices):
        raise ValueError(f"expected {_EXPECTED_DEVICES}, got {shown(list(devices))}")
    return devices


class PlacementTable(Table):
    """Where the model may run ("*" is any device), and in whose process. fallback: what finds no memory there goes."""

    devices: Annotated[tuple[DeviceName, ...], AfterValidator(_each_once)] = Field(
        default=("*",), description=_EXPECTED_DEVICES
    )
    fallback: Literal["cpu"] | None = Field(default=None, description=_EXPECTED_FALLBACK)
    isolation: Isolation = Field(default=Isolation.SHARED, description=f"one of {', '.join(Isolation)}")


class SimulatedTable(Table):
    """What a simulated model costs."""

    load_s: SecondsOrZero = Field(default=0.0, description=_EXPECTED_COSTS)
    restore_s: SecondsOrZero = Field(default=0.0, description=_EXPECTED_COSTS)
    run_s: SecondsOrZero = Field(default=0.0, description=_EXPECTED_COSTS)
    run_s_per_row: SecondsOrZero = Field(default=0.0, description=_EXPECTED_COSTS)
    steps: int = Field(default=1, strict=True, ge=1, le=MAX_STEPS, description=f"steps from 1 to {MAX_STEPS}")
    state_bytes: Bytes = Field(default=0, alias="state", description=EXPECTED_BYTES)


Runtime = Literal["python", "torchscript", "torch_export", "onnx", "simulated"]
