"""model.toml: what a model declares of itself."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PlainValidator, ValidationError, ValidationInfo, field_validator, model_validator

from moorage.domain.model import Isolation, Loading, Preemption, WarmupRun
from moorage.domain.tensor import MAX_RANK
from moorage.repository.errors import ManifestError
from moorage.repository.names import MAX_VERSION
from moorage.repository.problems import problems_in
from moorage.repository.quoting import shown
from moorage.repository.tables import (
    EXPECTED_SECONDS,
    MAX_ROWS,
    BatchingTable,
    InputTable,
    MemoryTable,
    OutputTable,
    PlacementTable,
    RateTable,
    Runtime,
    SchedulingTable,
    Seconds,
    SimulatedTable,
    Table,
    repeated,
)
from moorage.repository.toml import TomlError, parse_toml
from moorage.repository.warmup import MAX_WARMUPS, WarmupTable

MANIFEST_FILE = "model.toml"
MAX_MANIFEST_BYTES = 1024 * 1024
# Each is a thread of its worker, and a piece of shared memory.
MAX_INSTANCES = 16

VersionPolicy = Literal["latest", "all"] | tuple[int, ...]

_EXPECTED_POLICY = '"latest", "all" or a list of version numbers, each once'
_EXPECTED_TENSORS = 'a list of tables such as {{ name = "{name}", datatype = "FP32", shape = [3] }}'


def parse_version_policy(value: object) -> VersionPolicy:
    """Which versions to offer, as the key `versions` says.

    Raises ValueError, saying what was expected and what came.
    """
    if value == "latest":
        return "latest"
    if value == "all":
        return "all"
    numbers = value if isinstance(value, list | tuple) else ()
    if not numbers or len(set(map(repr, numbers))) != len(numbers) or not all(map(_is_version, numbers)):
        raise ValueError(f"expected {_EXPECTED_POLICY}, got {shown(value)}")
    return tuple(sorted(numbers))


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_VERSION


class Manifest(Table):
    """A whole model.toml. Validate with the folder's name as context: {"folder": name}."""

    name: str | None = Field(default=None, description="the folder's name")
    runtime: Runtime = Field(description=f"one of {', '.join(get_args(Runtime))}")
    max_batch_size: int = Field(default=0, strict=True, ge=0, le=MAX_ROWS, description=f"rows from 0 to {MAX_ROWS}")
    instances: int = Field(
        default=1, strict=True, ge=1, le=MAX_INSTANCES, description=f"runs at once, from 1 to {MAX_INSTANCES}"
    )
    decoupled: bool = Field(default=False, strict=True, description="true or false")
    inputs: tuple[InputTable, ...] = Field(description=_EXPECTED_TENSORS.format(name="x"))
    outputs: tuple[OutputTable, ...] = Field(description=_EXPECTED_TENSORS.format(name="y"))
    loading: Loading = Field(default=Loading.EAGER, alias="load", description=f"one of {', '.join(Loading)}")
    load_timeout_s: Seconds = Field(default=300.0, description=EXPECTED_SECONDS)
    versions: Annotated[VersionPolicy, PlainValidator(parse_version_policy)] = Field(
        default="latest", description=_EXPECTED_POLICY
    )
    memory: MemoryTable = Field(default=MemoryTable(), description="a table")
    batching: BatchingTable = Field(default=BatchingTable(), description="a table")
    scheduling: SchedulingTable = Field(default=SchedulingTable(), description="a table")
    rate_limit: RateTable = Field(default=RateTable(), description="a table")
    placement: PlacementTable = Field(default=PlacementTable(), description="a table")
    warmup: tuple[WarmupTable, ...] = Field(
        default=(), max_length=MAX_WARMUPS, description=f"at most {MAX_WARMUPS} tables [[warmup]]"
    )
    simulated: SimulatedTable | None = Field(default=None, description="a table")
    parameters: Mapping[str, Any] = Field(default_factory=dict, description="a table")

    @field_validator("name")
    @classmethod
    def _as_the_folder(cls, name: str | None, info: ValidationInfo) -> str | None:
        folder = (info.context or {}).get("folder", name)
        if name is not None and name != folder:
            raise ValueError(f"expected the folder's name {shown(folder)}, got {shown(name)}")
        return name

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> "Manifest":
        problems = [*_repeated_names("inputs", self.inputs), *_repeated_names("outputs", self.outputs)]
        for position, table in enumerate(self.inputs):
            problems += [f"inputs[{position}]{line}" for line in table.problems(self.max_batch_size)]
        problems += self.memory.problems() + self.batching.problems(self.max_batch_size)
        problems += _preemption(self.scheduling, self.placement)
        problems += _ranks("inputs", self.inputs, self.max_batch_size) + _ranks(
            "outputs", self.outputs, self.max_batch_size
        )
        if not self.outputs:
            problems.append("outputs: expected at least one, got []")
        if self.max_batch_size > 0 and not self.inputs:
            problems.append("inputs: expected at least one where max_batch_size is above 0, got []")
        if self.simulated is not None and self.runtime != "simulated":
            problems.append(f"simulated: expected only with runtime = 'simulated', got runtime = '{self.runtime}'")
        problems += self._decoupled_problems() if self.decoupled else []
        if self.instances > 1 and self.simulated is not None and self.simulated.steps > 1:
            problems.append(f"instances: expected 1 where simulated.steps is above 1, got {self.instances}")
        problems += [] if problems else self._warmup_problems()
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _decoupled_problems(self) -> list[str]:
        """Who sends many responses computes in steps, and only some runtimes can. Pieces of it could not be joined."""
        problems = []
        steps = self.simulated.steps if self.simulated is not None else 1
        if self.runtime != "python" and not (self.runtime == "simulated" and steps > 1):
            problems.append(
                "decoupled: expected true only with runtime = 'python', or 'simulated' with simulated.steps above 1, "
                f"got runtime = '{self.runtime}'"
            )
        if self.instances > 1:
            problems.append(f"instances: expected 1 where decoupled is true, got {self.instances}")
        if self.batching.split_requests:
            problems.append("batching.split_requests: expected false where decoupled is true, got true")
        return problems

    def _warmup_problems(self) -> list[str]:
        """What a warm-up asks for and the model does not offer. It must be right otherwise."""
        declared = [table.spec() for table in self.inputs]
        found: list[str] = []
        for position, table in enumerate(self.warmup):
            found += table.problems(("warmup", position), declared, self.max_batch_size)
            found += self.memory.run_problems(f"warmup[{position}].rows", table.rows or 1)
        return found

    @property
    def warmup_runs(self) -> tuple[WarmupRun, ...]:
        declared = [table.spec() for table in self.inputs]
        return tuple(table.run(declared) for table in self.warmup)


def parse_manifest(content: bytes, folder: str) -> Manifest:
    """The manifest of the model in the folder of that name.

    Raises ManifestError with one line per problem.
    """
    try:
        return Manifest.model_validate(parse_toml(content), context={"folder": folder})
    except TomlError as error:
        raise ManifestError([f"{MANIFEST_FILE}: {error}"]) from None
    except ValidationError as error:
        raise ManifestError([f"{MANIFEST_FILE}: {problem.text}" for problem in problems_in(error, Manifest)]) from None


def _repeated_names(key: str, tensors: Sequence[OutputTable]) -> list[str]:
    twice = repeated(tensor.name for tensor in tensors)
    return [f"{key}: expected every name once, got {shown(name)} more than once" for name in twice]


def _preemption(scheduling: SchedulingTable, placement: PlacementTable) -> list[str]:
    # In a shared process, it would end other models' work, too.
    if scheduling.preemption is not Preemption.KILL or placement.isolation is Isolation.DEDICATED:
        return []
    return [
        "scheduling.preemption: expected 'kill' only with placement.isolation = 'dedicated', "
        f"got isolation = '{placement.isolation}'"
    ]


def _ranks(key: str, tensors: Sequence[OutputTable], max_batch_size: int) -> list[str]:
    # The limit is on what travels, and there the batch axis is one dimension more.
    most = MAX_RANK - 1 if max_batch_size > 0 else MAX_RANK
    return [
        f"{key}[{position}].shape: expected at most {most} dimensions, got {len(tensor.shape)}"
        for position, tensor in enumerate(tensors)
        if len(tensor.shape) > most
    ]
