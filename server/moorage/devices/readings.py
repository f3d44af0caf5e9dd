"""What a source says about a device, and what follows from it for the memory that others hold."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One look at a device: a card, or the slice of one that this server was given.

    used_bytes: all that is not free, so with what the driver keeps for itself.
    processes: bytes by process id, of those that compute; None where the driver does not tell, or not reliably.
    utilization: the share of the last moments, 0 to 1, in which the device computed; None where it is not told.
    """

    device: str
    total_bytes: int
    used_bytes: int
    processes: Mapping[int, int] | None
    utilization: float | None


@dataclass(frozen=True, slots=True)
class DeviceLost:
    """The device was there and no longer answers: it fell off the bus, needs a reset, or its slice was removed."""

    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeviceUnknown:
    """Nothing can be told of the device's memory. The device itself may be well."""

    device: str
    reason: str


Reading = DeviceReading | DeviceLost | DeviceUnknown


def others_bytes(reading: DeviceReading, own_pids: Collection[int], own_leased_bytes: int, held_bytes: int) -> int:
    """Bytes of the device that are not this server's: other processes' and the driver's own. Never below zero.

    own_leased_bytes: of the ledger, what its own processes have. held_bytes: what it has leased to others, by holds.

    Where the driver tells what each process holds, ours are taken out of what is used. The rest counts as others'
    even where no listed process explains it: desktops, processes of other containers and the driver take memory
    without being listed. It is never less than what the listed others hold, since used bytes and processes are not
    read at one instant.

    Where it does not tell, what the ledger says that we hold is taken out instead. A lease is given before its memory
    is used, so this can count others too low for a moment, but it never takes our own memory for theirs, which would
    have the server evict its models because of its models.

    Both hold at once where none of our processes is listed: either they hold nothing yet, or the driver does not show
    them. Then the listed others count in full, and what is left is ours as far as the ledger goes.

    Of all that is others', what is held for some of them is charged by the ledger already, and only the rest counts.
    Which process a hold is for is not known. So while a hold is not used yet, as much of what the rest take is
    counted as its use: too low again, and never twice.
    """
    processes = reading.processes or {}
    foreign_bytes = sum(size_bytes for pid, size_bytes in processes.items() if pid not in own_pids)
    own_bytes = sum(size_bytes for pid, size_bytes in processes.items() if pid in own_pids)
    unexplained_bytes = reading.used_bytes - foreign_bytes - (own_bytes or own_leased_bytes)
    return max(foreign_bytes + max(unexplained_bytes, 0) - held_bytes, 0)
