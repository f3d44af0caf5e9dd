"""The tables inside model.toml. Only keys that have an effect are known; any other is an error."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from moorage.domain.model import Isolation
from moorage.domain.tensor import Datatype, TensorSpec
from moorage.repository.quantities import EXPECTED_BYTES, Bytes
from moorage.repository.quoting import shown

MAX_ROWS = 2**20
MAX_SECONDS = 7 * 24 * 3600.0

Seconds = Annotated[float, Field(strict=True, gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(strict=True, ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Dimension = Annotated[int, Field(strict=True, ge=-1, lt=2**31)]

EXPECTED_SECONDS = f"seconds above 0, at most {MAX_SECONDS:.0f}"
_EXPECTED_COSTS = f"seconds from 0 to {MAX_SECONDS:.0f}"
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
    """One input. An optional one may be left out of a request."""

    optional: bool = Field(default=False, strict=True, description="true or false")

    def spec(self) -> TensorSpec:
        return TensorSpec(self.name, self.datatype, self.shape, optional=self.optional)


class MemoryTable(Table):
    """Declared memory. Weights are measured where they are not declared."""

    weights_bytes: Bytes | None = Field(default=None, alias="weights", description=EXPECTED_BYTES)
    workspace_per_row_bytes: Bytes = Field(default=0, alias="workspace_per_row", description=EXPECTED_BYTES)
    workspace_fixed_bytes: Bytes = Field(default=0, alias="workspace_fixed", description=EXPECTED_BYTES)


class SchedulingTable(Table):
    """Bounds of the queue, and how long a request without a deadline may take."""

    max_queue_rows: int = Field(default=256, strict=True, ge=1, le=MAX_ROWS, description=f"rows from 1 to {MAX_ROWS}")
    max_queue_bytes: Bytes = Field(default=64 * 1024 * 1024, ge=1, description=EXPECTED_BYTES + ", at least 1")
    default_timeout_s: Seconds = Field(default=30.0, description=EXPECTED_SECONDS)


DeviceName = Annotated[str, Field(pattern=r"^(\*|cpu|cuda:(0|[1-9][0-9]{0,2}))$")]


def _each_once(devices: tuple[str, ...]) -> tuple[str, ...]:
    if not devices or repeated(devices):
        raise ValueError(f"expected {_EXPECTED_DEVICES}, got {shown(list(devices))}")
    return devices


class PlacementTable(Table):
    """Where the model may run ("*" is any device), and in whose process."""

    devices: Annotated[tuple[DeviceName, ...], AfterValidator(_each_once)] = Field(
        default=("*",), description=_EXPECTED_DEVICES
    )
    isolation: Isolation = Field(default=Isolation.SHARED, description=f"one of {', '.join(Isolation)}")


class SimulatedTable(Table):
    """What a simulated model costs."""

    load_s: SecondsOrZero = Field(default=0.0, description=_EXPECTED_COSTS)
    run_s: SecondsOrZero = Field(default=0.0, description=_EXPECTED_COSTS)
    run_s_per_row: SecondsOrZero = Field(default=0.0, description=_EXPECTED_COSTS)


Runtime = Literal["python", "torchscript", "torch_export", "onnx", "simulated"]
