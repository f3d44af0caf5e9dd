"""The devices and models of a scenario, one by one, with their sizes drawn."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePath
from random import Random

from moorage.domain.model import (
    Loading,
    MemoryPolicy,
    ModelKey,
    ModelSpec,
    QueuePolicy,
    SharePolicy,
    SimulatedCosts,
)
from moorage.simulation.scenario import Choice, DeviceGroup, ModelGroup, Scenario, Sizes

_UNIT_BYTES = 1_000_000  # sizes drawn are whole megabytes: the last bits of exp() differ between machines
_MOST_QUEUE_BYTES = 2**53


@dataclass(frozen=True, slots=True)
class Fleet:
    """Positions in `keys` and `specs` stand for models wherever a plain number does."""

    devices: dict[str, DeviceGroup]
    keys: tuple[ModelKey, ...]
    specs: dict[ModelKey, ModelSpec]
    groups: dict[str, range]

    @property
    def weights_bytes(self) -> list[int]:
        return [self.specs[key].memory.weights_bytes or 0 for key in self.keys]


def assemble(scenario: Scenario) -> Fleet:
    """The same scenario and seed always give the same fleet."""
    random = Random(f"{scenario.seed} sizes")
    specs: dict[ModelKey, ModelSpec] = {}
    groups: dict[str, range] = {}
    for group in scenario.models:
        first = len(specs)
        for name in _names(group.name, group.count, "-"):
            specs[ModelKey(name, 1)] = _spec(name, group, _draw(group.sizes, random))
        groups[group.name] = range(first, len(specs))
    devices = {name: group for group in scenario.devices for name in _names(group.name, group.count, ":")}
    return Fleet(devices, tuple(specs), specs, groups)


def _names(name: str, count: int, separator: str) -> list[str]:
    digits = len(str(count - 1))
    return [name] if count == 1 else [f"{name}{separator}{index:0{digits}}" for index in range(count)]


def _draw(sizes: Sizes, random: Random) -> int:
    if isinstance(sizes, Choice):
        return sizes.sizes_bytes[draw_position(list(accumulate(sizes.weights)), random)]
    spread = math.log(sizes.most_bytes / sizes.least_bytes)
    drawn_bytes = sizes.least_bytes * math.exp(spread * random.random())
    return max(1, round(drawn_bytes / _UNIT_BYTES)) * _UNIT_BYTES


def draw_position(cumulative: Sequence[float], random: Random) -> int:
    """A position, in proportion to what it adds to the running sum."""
    return min(bisect_right(cumulative, random.random() * cumulative[-1]), len(cumulative) - 1)


def _spec(name: str, group: ModelGroup, weights_bytes: int) -> ModelSpec:
    return ModelSpec(
        name=name,
        version=1,
        runtime="simulated",
        inputs=(),
        outputs=(),
        path=PurePath(name),
        max_batch_size=group.max_batch_size,
        instances=group.instances,
        loading=Loading.ON_DEMAND,
        memory=MemoryPolicy(
            weights_bytes, group.workspace_bytes, group.workspace_per_row_bytes, group.state_bytes or None
        ),
        queue=QueuePolicy(group.max_queue_rows, _MOST_QUEUE_BYTES),
        share=SharePolicy(group.priority),
        batching=group.batching,
        simulated=SimulatedCosts(
            run_s=group.run_s,
            run_s_per_row=group.run_s_per_row,
            steps=group.steps,
            state_bytes=group.state_bytes,
        ),
    )
