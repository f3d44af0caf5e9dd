"""Defaults of devices, which depend on their kind and on the machine."""

import os
from collections.abc import Mapping
from typing import Any

from moorage.devices.host import total_memory_bytes
from moorage.repository.quantities import MAX_BYTES, parse_bytes

MAX_RUN_SLOTS = 1024

_CUDA_CONTEXT_BYTES = 512 * 1024 * 1024


def with_defaults(devices: Mapping[str, object]) -> dict[str, object]:
    """The tables of the devices, as they were given, with what was left out. What is no table stays as it is."""
    cards = sum(name.startswith("cuda:") for name in devices)
    return {name: _with_defaults(name, device, cards) for name, device in devices.items()}


def _with_defaults(name: str, device: object, cards: int) -> object:
    if not isinstance(device, Mapping):
        return device
    if name.startswith("cuda:"):
        return {**_of_a_card(cards), **device}
    return {**_of_the_host(device), **device} if name == "cpu" else device


def _of_a_card(cards: int) -> dict[str, Any]:
    return {
        "context": _CUDA_CONTEXT_BYTES,
        "host_budget": total_memory_bytes() // 4 // cards,
        "run_slots": 1,
    }


def _of_the_host(device: Mapping[str, object]) -> dict[str, Any]:
    budget = device.get("budget", total_memory_bytes() // 2)
    usable_cores = len(os.sched_getaffinity(0))
    return {
        "budget": budget,
        "host_budget": _twice(budget),
        "run_slots": min(max(2, usable_cores), MAX_RUN_SLOTS),
    }


def _twice(budget: object) -> int:
    try:
        return min(2 * parse_bytes(budget), MAX_BYTES)
    except ValueError:
        return 0  # the budget itself is about to be refused
