"""MOORAGE_SECTION__KEY variables. A variable of ours that means nothing is an error, not a silent default."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_settings import EnvSettingsSource

from moorage.config.settings import BatchSettings, DeviceSettings, RepositorySettings, ServerSettings, Settings
from moorage.repository.problems import Location, known_keys, unknown_key

PREFIX = "MOORAGE_"

# Read by the commands that talk to a server; a shell that has it set may start one, too.
_OF_THE_CLIENT = frozenset({"MOORAGE_TARGET"})
# What Kubernetes puts into every pod for a Service whose name begins with "moorage". Not ours, not an error.
_SERVICE_LINK = re.compile(
    r"MOORAGE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
)
_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*", re.DOTALL)
# Shells can't export a name with a colon.
_CUDA_IN_A_NAME = re.compile(r"cuda_([0-9]+)")


def environment_settings() -> dict[str, Any]:
    """What the environment sets, as the tables of moorage.toml, values still text."""
    values: dict[str, Any] = dict(EnvSettingsSource(Settings)())
    devices = values.get("devices")
    if devices:
        values["devices"] = {_CUDA_IN_A_NAME.sub(r"cuda:\1", name): device for name, device in devices.items()}
    return values


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """One line for every variable that looks like ours and isn't."""
    ours = (name for name in environment if name.upper().startswith(PREFIX))
    unknown = (name for name in ours if not _is_known(name.upper()) and not _is_service_link(name, environment[name]))
    return [
        unknown_key(name.upper(), _known_names(_device_in(name.upper()))).replace("key", "environment variable", 1)
        for name in sorted(unknown)
    ]


def variable_name(location: Location) -> str:
    """The variable that sets a key."""
    return PREFIX + "__".join(str(part).replace(":", "_") for part in location).upper()


def _is_known(name: str) -> bool:
    return name in _OF_THE_CLIENT or name in _known_names(_device_in(name))


def _device_in(name: str) -> str:
    # Of MOORAGE_DEVICES__CPU__BUDGET the middle is the user's choice; whether it is a device is settled later.
    parts = name.split("__")
    return parts[1] if len(parts) == 3 and parts[1] else "CPU"


def _known_names(device: str) -> set[str]:
    return {
        *_names(("server",), known_keys(ServerSettings)),
        *_names(("repository",), known_keys(RepositorySettings)),
        *_names(("batches",), known_keys(BatchSettings)),
        *_names(("devices", device), known_keys(DeviceSettings)),
    }


def _names(table: Location, keys: Iterable[str]) -> list[str]:
    return [PREFIX + "__".join(map(str, (*table, key))).upper() for key in keys]


def _is_service_link(name: str, value: str) -> bool:
    if "__" in name or _SERVICE_LINK.fullmatch(name) is None:
        return False
    # MOORAGE_PORT=8001 is a person's mistake; Kubernetes writes an address there.
    return not name.endswith("_PORT") or name.endswith("_SERVICE_PORT") or _LINK_ADDRESS.fullmatch(value) is not None
