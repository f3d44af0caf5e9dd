"""The sections of moorage.toml. Only keys that have an effect are known; any other is an error."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from moorage.config.address import EXPECTED_ADDRESS, Address, parse_address, parse_optional_address
from moorage.config.defaults import MAX_RUN_SLOTS, with_defaults
from moorage.config.footprints import EXPECTED_FOOTPRINTS, default_footprints, parse_footprints
from moorage.repository.quantities import EXPECTED_BYTES, Bytes
from moorage.repository.quoting import shown

# gRPC keeps message sizes in a signed 32-bit number.
MAX_MESSAGE_BYTES = 2**31 - 1

_EXPECTED_SECONDS = "seconds from 0 to 86400"
_EXPECTED_HANG = "seconds from 0.1 to 86400"
_EXPECTED_AGEING = "seconds above 0, at most 86400"
_EXPECTED_QUEUE_ROWS = "rows from 1 to 1000000000"
_EXPECTED_RPCS = "a whole number from 1 to 1000000"
_EXPECTED_WINDOW = "a whole number from 1 to 65536"
_EXPECTED_BUDGET = f"{EXPECTED_BYTES}, above 0 (a cuda device has no default yet)"
_EXPECTED_SLOTS = f"a whole number from 1 to {MAX_RUN_SLOTS}"
_EXPECTED_DEVICES = "a table [devices.cpu] or [devices.'cuda:N']"
_DEVICE_NAME = r"^(cpu|cuda:(0|[1-9][0-9]{0,2}))$"


def _refuse_bool(value: object) -> object:
    # Text from the environment has to become numbers here, but true is not 1.
    if isinstance(value, bool):
        raise ValueError(f"expected a number, got {shown(value)}")
    return value


class Section(BaseModel):
    """Frozen, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(Section):
    """Where the server listens and what one caller may ask of it. No HTTP where `http` is None.

    max_stream_requests, max_stream_bytes: what one inference stream may have under way, from when it is read until its
    answer is taken.
    max_queue_rows, max_queue_bytes: what may wait for all models together.
    hang_timeout_s: how long a run may outlive the last of its requests, and an unload may take, before its worker is
    killed.
    ageing_s: a waiting request rises one level in the order each time this passes.
    min_residency_s: so long a model that came in is not put out again, unless for higher priority.
    footprints: the file in which what was measured of models survives restarts; None: it does not.
    check_integrity: recompute the ledger after every step; for tests and for hunting a bug.
    """

    grpc: Annotated[Address, PlainValidator(parse_address)] = Field(
        default=Address("127.0.0.1", 8001), description=EXPECTED_ADDRESS
    )
    http: Annotated[Address | None, PlainValidator(parse_optional_address)] = Field(
        default=Address("127.0.0.1", 8002), description=EXPECTED_ADDRESS
    )
    grace_s: Annotated[float, BeforeValidator(_refuse_bool)] = Field(
        default=30.0, ge=0, le=86400, allow_inf_nan=False, description=_EXPECTED_SECONDS
    )
    max_message_bytes: Bytes = Field(
        default=256 * 1024 * 1024,
        alias="max_message",
        ge=1024,
        le=MAX_MESSAGE_BYTES,
        description=f"{EXPECTED_BYTES}, from 1 KiB to {MAX_MESSAGE_BYTES}",
    )
    max_concurrent_rpcs: Annotated[int, BeforeValidator(_refuse_bool)] = Field(
        default=4096, ge=1, le=1_000_000, description=_EXPECTED_RPCS
    )
    max_stream_requests: Annotated[int, BeforeValidator(_refuse_bool)] = Field(
        default=64, ge=1, le=65536, description=_EXPECTED_WINDOW
    )
    max_stream_bytes: Bytes = Field(default=16 * 1024 * 1024, ge=1, description=EXPECTED_BYTES + ", at least 1")
    max_queue_rows: Annotated[int, BeforeValidator(_refuse_bool)] = Field(
        default=65536, ge=1, le=1_000_000_000, description=_EXPECTED_QUEUE_ROWS
    )
    max_queue_bytes: Bytes = Field(default=1024 * 1024 * 1024, ge=1, description=EXPECTED_BYTES + ", at least 1")
    hang_timeout_s: Annotated[float, BeforeValidator(_refuse_bool)] = Field(
        default=30.0, ge=0.1, le=86400, allow_inf_nan=False, description=_EXPECTED_HANG
    )
    ageing_s: Annotated[float, BeforeValidator(_refuse_bool)] = Field(
        default=10.0, gt=0, le=86400, allow_inf_nan=False, description=_EXPECTED_AGEING
    )
    min_residency_s: Annotated[float, BeforeValidator(_refuse_bool)] = Field(
        default=0.2, ge=0, le=86400, allow_inf_nan=False, description=_EXPECTED_SECONDS
    )
    footprints: Annotated[Path | None, PlainValidator(parse_footprints)] = Field(
        default_factory=default_footprints, description=EXPECTED_FOOTPRINTS
    )
    check_integrity: bool = Field(default=False, description="true or false")


class BatchSettings(Section):
    """Batches. path: the file of durable ones, which is made when the first is opened; None: there are none.

    max_store_bytes: of that file. fsync: whether what is acknowledged survives the loss of power, and not only of the
    server. max_running: batches at once. max_window_items, max_window_bytes: of a batch that is not durable, what may
    be there that its client has not read.
    """

    path: Annotated[Path | None, PlainValidator(parse_footprints)] = Field(
        default=Path("moorage.db"), description=EXPECTED_FOOTPRINTS
    )
    max_store_bytes: Bytes = Field(
        default=16 * 1024**3, alias="max_store", ge=1024 * 1024, description=EXPECTED_BYTES + ", at least 1 MiB"
    )
    fsync: bool = Field(default=True, description="true or false")
    max_running: Annotated[int, BeforeValidator(_refuse_bool)] = Field(
        default=256, ge=1, le=65536, description=_EXPECTED_WINDOW
    )
    max_window_items: Annotated[int, BeforeValidator(_refuse_bool)] = Field(
        default=1024, ge=1, le=65536, description=_EXPECTED_WINDOW
    )
    max_window_bytes: Bytes = Field(
        default=64 * 1024 * 1024, alias="max_window", ge=1, description=EXPECTED_BYTES + ", at least 1"
    )


class RepositorySettings(Section):
    """Where the models are; a relative path counts from the working directory."""

    path: Path = Field(default=Path("models"), description="a folder")


class DeviceSettings(Section):
    """One device. Defaults that depend on its kind are filled in before it is read.

    budget_bytes: what the server may use. reserve_bytes: of that, what it leaves free.
    context_bytes: what a worker process takes on the device before it holds any model.
    host_budget_bytes: what may be kept off the device: offloaded weights and suspended states.
    run_slots: runs or steps at once.
    """

    budget_bytes: Bytes = Field(alias="budget", ge=1, description=_EXPECTED_BUDGET)
    reserve_bytes: Bytes = Field(default=0, alias="reserve", description=EXPECTED_BYTES)
    context_bytes: Bytes = Field(default=0, alias="context", description=EXPECTED_BYTES)
    host_budget_bytes: Bytes = Field(default=0, alias="host_budget", description=EXPECTED_BYTES)
    run_slots: Annotated[int, BeforeValidator(_refuse_bool)] = Field(
        default=1, ge=1, le=MAX_RUN_SLOTS, description=_EXPECTED_SLOTS
    )

    @model_validator(mode="after")
    def _leaves_something(self) -> "DeviceSettings":
        if self.reserve_bytes + self.context_bytes >= self.budget_bytes:
            raise ValueError(
                f"expected reserve and context together below the budget of {self.budget_bytes} bytes, "
                f"got {self.reserve_bytes} and {self.context_bytes}"
            )
        return self


DeviceName = Annotated[str, Field(pattern=_DEVICE_NAME)]


class Settings(BaseSettings):
    """Everything that can be set. `devices` has at least one entry."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="MOORAGE_", env_nested_delimiter="__", enable_decoding=False
    )

    server: ServerSettings = Field(default_factory=ServerSettings, description="a table")
    repository: RepositorySettings = Field(default=RepositorySettings(), description="a table")
    batches: BatchSettings = Field(default_factory=BatchSettings, description="a table")
    devices: Mapping[DeviceName, DeviceSettings] = Field(description=_EXPECTED_DEVICES)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what it is given: load_settings reads the sources, so that an error can name the one at fault."""
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _with_devices(cls, values: dict[str, Any]) -> dict[str, Any]:
        devices = values.get("devices") or {"cpu": {}}
        if not isinstance(devices, Mapping):
            return values
        return {**values, "devices": with_defaults(devices)}
