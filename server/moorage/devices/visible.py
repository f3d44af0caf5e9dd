"""Which card, or slice of one, CUDA means by a number. NVML must be open; every call here may block."""

from collections.abc import Mapping
from typing import Any

import pynvml

# What NVML says of a card that is gone, or that needs a reset.
LOST = (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_ResetRequired, pynvml.NVMLError_GpuNotFound)


class NotVisible(Exception):
    """No card can be told to be the one that CUDA means. The text says why."""


def cuda_environment() -> dict[str, str]:
    """Variables for processes that use CUDA, so that they number the cards as they are numbered here.

    CUDA's own default puts the fastest card first, in an order that can't be found out without CUDA.
    """
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def find_card(number: int, environment: Mapping[str, str]) -> Any:
    """NVML's handle of what CUDA, with these variables, calls `number`.

    A card that is divided stands for its first slice, as CUDA opens no other unless it is named.
    Raises NotVisible, and NVMLError where NVML refuses.
    """
    names = visible_names(environment)
    if names is None:
        return _first_slice_or_all(_by_number(number, environment))
    if number >= len(names):
        raise NotVisible(f"CUDA_VISIBLE_DEVICES shows {len(names)} device(s)")
    name = names[number]
    if name.isdecimal():
        return _first_slice_or_all(_by_number(int(name), environment))
    return _slice_named(name) if name.startswith("MIG-") else _first_slice_or_all(_card_named(name))


def visible_names(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The entries of CUDA_VISIBLE_DEVICES; None where it is not set. What is no name hides all that follow it."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    names: list[str] = []
    for name in map(str.strip, text.split(",")):
        if not (name.isdecimal() or name.startswith(("GPU-", "MIG-"))):
            break
        names.append(name)
    return tuple(names)


def _by_number(number: int, environment: Mapping[str, str]) -> Any:
    cards, lost = _cards_in_bus_order()
    if lost is not None:
        if not cards:
            raise lost
        raise NotVisible("a card is lost, and which numbers the others have can't be told without it")
    if number >= len(cards):
        raise NotVisible(f"there are {len(cards)} card(s)")
    order = environment.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if order != "PCI_BUS_ID" and len({pynvml.nvmlDeviceGetName(card) for card in cards}) > 1:
        raise NotVisible(f"cards of several kinds, and CUDA_DEVICE_ORDER is {order}: set it to PCI_BUS_ID")
    return cards[number]


def _cards_in_bus_order() -> tuple[list[Any], Exception | None]:
    """The cards that answer; and what was said of one that is lost, if one is."""
    placed: list[tuple[tuple[int, int, int], Any]] = []
    lost: Exception | None = None
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            card = pynvml.nvmlDeviceGetHandleByIndex(index)
            place = pynvml.nvmlDeviceGetPciInfo(card)
        except pynvml.NVMLError_NoPermission:  # counted, but not given to this container: CUDA does not see it either
            continue
        except LOST as error:
            lost = error
            continue
        placed.append(((place.domain, place.bus, place.device), card))
    return [card for _, card in sorted(placed, key=lambda each: each[0])], lost


def _card_named(name: str) -> Any:
    """By the card's UUID, or by a beginning of it that no other card has."""
    cards, lost = _cards_in_bus_order()
    matching = [card for card in cards if str(pynvml.nvmlDeviceGetUUID(card)).startswith(name)]
    if not matching and lost is not None:
        raise lost
    if len(matching) != 1:
        raise NotVisible(f"CUDA_VISIBLE_DEVICES names {name}, which is {len(matching)} cards")
    return matching[0]


def _slice_named(name: str) -> Any:
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(name)
    except pynvml.NVMLError_NotFound:
        raise NotVisible(f"CUDA_VISIBLE_DEVICES names {name}, which is no slice here") from None


def _first_slice_or_all(card: Any) -> Any:
    if not _is_divided(card):
        return card
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index)
        except pynvml.NVMLError_NotFound:
            continue
    raise NotVisible("MIG is on, but the card has no slice")


def _is_divided(card: Any) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(card)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)
