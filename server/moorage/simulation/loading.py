"""From a scenario file to a Scenario: devices and models here, traffic in `loading_traffic`."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from moorage.domain.model import BatchingPolicy
from moorage.scheduling.state import Limits
from moorage.simulation.loading_traffic import read_stream
from moorage.simulation.reading import NAME, POSITIVE_SIZE, SIZE, ScenarioError, Table, list_of, number, whole
from moorage.simulation.scenario import Choice, DeviceGroup, LogUniform, ModelGroup, Recorded, Scenario, Sizes, Stream

_MOST_BYTES_OF_A_FILE = 1024 * 1024
_ABOVE_ZERO = number(above=True)
_COUNT = whole(1, 100_000)


def load_scenario(path: Path, *, seed: int | None = None) -> Scenario:
    """Read a scenario; paths in it are relative to its folder. seed: instead of the file's.

    Raises ScenarioError, which names the file, and the key where one is wrong.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES_OF_A_FILE + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise ScenarioError(f"{path}: cannot be read: {reason}") from None
    if len(content) > _MOST_BYTES_OF_A_FILE:
        raise ScenarioError(f"{path}: expected at most {_MOST_BYTES_OF_A_FILE} bytes, got more")
    try:
        scenario = parse_scenario(tomllib.loads(content.decode()), path.stem, path.parent)
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or not a scenario
        raise ScenarioError(f"{path}: {error}") from None
    return scenario if seed is None else replace(scenario, seed=seed)


def parse_scenario(values: Mapping[str, object], name: str, folder: Path) -> Scenario:
    """Tables to a Scenario; the traces that they name are read from the folder. Raises ScenarioError."""
    table = Table(values)
    scenario = Scenario(
        name=name,
        seed=table.take("seed", whole(0, 2**63 - 1), 0),
        requests=table.take("requests", whole(1), 0) or None,
        duration_s=table.take("duration_s", _ABOVE_ZERO, 0.0) or None,
        devices=tuple(_devices(devices) for devices in table.tables("devices")),
        models=tuple(_models(models) for models in table.tables("models")),
        streams=tuple(read_stream(stream, folder) for stream in table.tables("arrivals")),
        limits=_limits(table.table("scheduling")),
    )
    table.close()
    _check_names("devices", [group.name for group in scenario.devices])
    _check_names("models", [group.name for group in scenario.models])
    _check_end(scenario)
    for index, stream in enumerate(scenario.streams):
        _check_stream(f"arrivals[{index}]", stream, scenario)
    return scenario


def _devices(table: Table) -> DeviceGroup:
    group = DeviceGroup(
        name=table.take("name", NAME),
        count=table.take("count", _COUNT, 1),
        capacity_bytes=table.take("capacity", POSITIVE_SIZE),
        context_bytes=table.take("context", SIZE, 0),
        host_bytes=table.take("host_capacity", SIZE, 0),
        disk_bytes_per_s=table.take("disk_per_s", POSITIVE_SIZE, 2 * 10**9),
        host_to_device_bytes_per_s=table.take("host_to_device_per_s", POSITIVE_SIZE, 25 * 10**9),
        device_to_host_bytes_per_s=table.take("device_to_host_per_s", POSITIVE_SIZE, 25 * 10**9),
        run_slots=table.take("run_slots", whole(1, 1000), 1),
    )
    table.close()
    return group


def _models(table: Table) -> ModelGroup:
    group = ModelGroup(
        name=table.take("name", NAME),
        count=table.take("count", _COUNT, 1),
        sizes=_sizes(table),
        run_s=table.take("run_s", _ABOVE_ZERO),
        run_s_per_row=table.take("run_s_per_row", number(), 0.0),
        workspace_bytes=table.take("workspace", SIZE, 0),
        workspace_per_row_bytes=table.take("workspace_per_row", SIZE, 0),
        steps=table.take("steps", whole(1, 1_000_000), 1),
        state_bytes=table.take("state", SIZE, 0),
        priority=table.take("priority", whole(1, 5), 3),
        max_batch_size=table.take("max_batch_size", whole(1), 1),
        instances=table.take("instances", whole(1), 1),
        max_queue_rows=table.take("max_queue_rows", whole(1), 256),
        batching=_batching(table),
    )
    if group.steps > 1 and group.instances > 1:
        raise table.wrong("instances", "1 where steps is above 1")
    table.close()
    return group


def _batching(table: Table) -> BatchingPolicy:
    has_delay = table.peek("max_queue_delay_s") is not None
    given_s = table.take("max_queue_delay_s", number(), 0.0)  # taken in any case, so that a misspelt one is told
    delay_s = given_s if has_delay else None
    low_watermark = table.take("low_watermark", whole(0), 0)
    if low_watermark > 1 and delay_s is None:
        raise table.wrong("low_watermark", "max_queue_delay_s beside it")
    return BatchingPolicy(delay_s, low_watermark)


def _limits(table: Table) -> Limits:
    limits = Limits(
        ageing_s=table.take("ageing_s", _ABOVE_ZERO, Limits().ageing_s),
        min_residency_s=table.take("min_residency_s", number(), Limits().min_residency_s),
    )
    table.close()
    return limits


def _sizes(table: Table) -> Sizes:
    """weights = "8 GB", or { least = …, most = … }, or { choice = […], shares = […] }."""
    if not isinstance(table.peek("weights"), dict):
        return Choice((table.take("weights", SIZE),), (1.0,))
    inner = table.table("weights")
    sizes = _choice(inner) if inner.peek("choice") is not None else _log_uniform(inner)
    inner.close()
    return sizes


def _choice(table: Table) -> Choice:
    sizes = table.take("choice", list_of(SIZE))
    shares = table.take("shares", list_of(_ABOVE_ZERO), (1.0,) * len(sizes))
    if len(shares) != len(sizes):
        raise table.wrong("shares", f"{len(sizes)} numbers, one for each size")
    return Choice(sizes, shares)


def _log_uniform(table: Table) -> LogUniform:
    sizes = LogUniform(table.take("least", POSITIVE_SIZE), table.take("most", POSITIVE_SIZE))
    if sizes.most_bytes < sizes.least_bytes:
        raise table.wrong("most", "no less than 'least'")
    return sizes


def _check_names(path: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ScenarioError(f"{path}: expected names that differ, got {', '.join(names)}")


def _check_end(scenario: Scenario) -> None:
    endless = not all(isinstance(stream.pattern, Recorded) for stream in scenario.streams)
    if endless and scenario.requests is None and scenario.duration_s is None:
        raise ScenarioError("requests: expected this or duration_s, as arrivals do not end by themselves, got neither")


def _check_stream(path: str, stream: Stream, scenario: Scenario) -> None:
    """What a stream asks for exists, and fits a run. Raises ScenarioError."""
    groups = {group.name: group for group in scenario.models}
    for name in stream.models:
        if name not in groups:
            raise ScenarioError(f"{path}.models: expected names of [[models]], got '{name}'")
    if isinstance(stream.pattern, Recorded):
        return
    for group in (groups[name] for name in stream.models or groups):
        if stream.most_rows > group.max_batch_size:
            raise ScenarioError(
                f"{path}.rows: expected at most {group.max_batch_size}, the max_batch_size of '{group.name}', "
                f"got {stream.most_rows}"
            )
