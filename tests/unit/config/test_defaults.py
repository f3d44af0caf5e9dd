"""Defaults that depend on the device's kind and on the machine."""

import os
from pathlib import Path

import pytest

from moorage.config import DeviceSettings, load_settings
from moorage.config.defaults import MAX_RUN_SLOTS
from moorage.devices.host import total_memory_bytes
from moorage.repository.quantities import MAX_BYTES


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MOORAGE_")]:
        monkeypatch.delenv(name)


def _cpu(table: dict[str, object]) -> DeviceSettings:
    return load_settings(None, {"devices": {"cpu": table}}).devices["cpu"]


def test_the_cpu_may_offload_twice_its_budget_to_disk() -> None:
    assert _cpu({"budget": "2 GiB"}).host_budget_bytes == 4 * 1024**3
    assert _cpu({"budget": MAX_BYTES}).host_budget_bytes == MAX_BYTES
    assert load_settings(None).devices["cpu"].host_budget_bytes == total_memory_bytes() // 2 * 2
    assert _cpu({"budget": "2 GiB", "host_budget": 0}).host_budget_bytes == 0


def test_a_budget_from_the_environment_counts_for_what_may_be_offloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_DEVICES__CPU__BUDGET", "3 GiB")
    monkeypatch.setenv("MOORAGE_DEVICES__CPU__RUN_SLOTS", "5")
    device = load_settings(None).devices["cpu"]
    assert device.host_budget_bytes == 6 * 1024**3
    assert device.run_slots == 5


def test_cards_share_a_quarter_of_the_hosts_memory() -> None:
    cards = {"cuda:0": {"budget": 1024**4}, "cuda:1": {"budget": 1024**4, "host_budget": "1 GiB"}}
    devices = load_settings(None, {"devices": {"cpu": {}, **cards}}).devices
    assert devices["cuda:0"].host_budget_bytes == total_memory_bytes() // 8
    assert devices["cuda:1"].host_budget_bytes == 1024**3
    assert devices["cuda:0"].run_slots == 1


@pytest.mark.parametrize(("cores", "slots"), [(1, 2), (2, 2), (7, 7), (5000, MAX_RUN_SLOTS)])
def test_the_cpu_has_as_many_run_slots_as_usable_cores(monkeypatch: pytest.MonkeyPatch, cores: int, slots: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    assert _cpu({}).run_slots == slots


@pytest.mark.parametrize(
    ("state_home", "expected"),
    [
        ("/var/lib/state", "/var/lib/state/moorage/footprints.sqlite3"),
        ("", "/home/somebody/.local/state/moorage/footprints.sqlite3"),
        ("relative", "/home/somebody/.local/state/moorage/footprints.sqlite3"),
        (None, "/home/somebody/.local/state/moorage/footprints.sqlite3"),
    ],
)
def test_footprints_are_kept_among_the_users_state(
    monkeypatch: pytest.MonkeyPatch, state_home: str | None, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if state_home is not None:
        monkeypatch.setenv("XDG_STATE_HOME", state_home)
    assert load_settings(None).server.footprints == Path(expected)
    assert load_settings(None, {"server": {"grace_s": 1}}).server.footprints == Path(expected)


def test_without_a_home_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)  # nobody's
    assert load_settings(None).server.footprints is None


def test_footprints_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings(None, {"server": {"footprints": "off"}}).server.footprints is None
    monkeypatch.setenv("MOORAGE_SERVER__FOOTPRINTS", "off")
    assert load_settings(None).server.footprints is None
    monkeypatch.setenv("MOORAGE_SERVER__FOOTPRINTS", "/tmp/seen")
    assert load_settings(None).server.footprints == Path("/tmp/seen")
