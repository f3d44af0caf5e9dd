"""Simulated devices: memory that is counted, run slots, and links that carry one transfer at a time."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from moorage.domain.model import ModelKey
from moorage.scheduling.actions import Run
from moorage.simulation.errors import SimulationError
from moorage.simulation.scenario import DeviceGroup


class Link:
    """One direction of a way into or out of a device. Transfers queue."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0

    def seconds(self, size_bytes: int) -> float:
        """What a transfer takes by itself."""
        return size_bytes / self._bytes_per_s

    def carry(self, size_bytes: int, now_s: float) -> float:
        """Queue a transfer; when it will have ended."""
        self._free_at_s = max(now_s, self._free_at_s) + self.seconds(size_bytes)
        return self._free_at_s


class Device:
    """One device, and what happened on it. Runs beyond its slots wait for one, first come, first served.

    slot_waits: how many had to; a scheduler that keeps to the slots lets none of them.
    """

    def __init__(self, name: str, group: DeviceGroup, index: int) -> None:
        self.name = name
        self.index = index
        self.group = group
        self.disk = Link(group.disk_bytes_per_s)
        self.to_device = Link(group.host_to_device_bytes_per_s)
        self.to_host = Link(group.device_to_host_bytes_per_s)
        self.busy_s = 0.0
        self.slot_waits = 0
        self.held_bytes = 0
        self._slots_free_at_s = [0.0] * group.run_slots
        self._held_byte_s = 0.0
        self._counted_until_s = 0.0

    def compute(self, ready_s: float, length_s: float) -> float:
        """Have a slot compute; when it will have ended."""
        slots = self._slots_free_at_s
        slot = slots.index(min(slots))
        self.slot_waits += slots[slot] > ready_s
        slots[slot] = max(ready_s, slots[slot]) + length_s
        self.busy_s += length_s
        return slots[slot]

    def hold(self, size_bytes: int, now_s: float) -> None:
        """Take memory, or give it back with a negative size.

        Raises SimulationError where it is more than there is: the first promise of the scheduler.
        """
        self._held_byte_s += self.held_bytes * (now_s - self._counted_until_s)
        self._counted_until_s = now_s
        self.held_bytes += size_bytes
        if not 0 <= self.held_bytes <= self.group.capacity_bytes:
            raise SimulationError(
                f"{self.name} holds {self.held_bytes} bytes of {self.group.capacity_bytes} at {now_s:.6f} s"
            )

    def mean_held_bytes(self, end_s: float) -> float:
        """Averaged over all the time until then."""
        held_byte_s = self._held_byte_s + self.held_bytes * (end_s - self._counted_until_s)
        return held_byte_s / end_s if end_s else 0.0


@dataclass(slots=True, eq=False)
class Process:
    """A worker process in one life of its own: a restarted one is another object, so nothing of an old one is heard.

    weights: of models on the device. offloaded: models in host memory. runs: by their workspace. states, suspended: of
    stepped requests on the device and in host memory. All of them in bytes.
    """

    worker: str
    device: Device
    alive: bool = True
    weights: dict[ModelKey, int] = field(default_factory=dict)
    offloaded: set[ModelKey] = field(default_factory=set)
    runs: dict[Run, int] = field(default_factory=dict)
    states: dict[int, int] = field(default_factory=dict)
    suspended: dict[int, int] = field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        return (
            self.device.group.context_bytes
            + sum(self.weights.values())
            + sum(self.runs.values())
            + sum(self.states.values())
        )


def number_devices(devices: Iterable[tuple[str, DeviceGroup]]) -> dict[str, Device]:
    return {name: Device(name, group, index) for index, (name, group) in enumerate(devices)}
