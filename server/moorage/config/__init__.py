"""Settings of the server: moorage.toml, the environment and the command line, checked once, before anything starts."""

from moorage.config.address import Address
from moorage.config.loading import ConfigError, load_settings
from moorage.config.settings import DeviceSettings, RepositorySettings, ServerSettings, Settings
from moorage.repository.quantities import parse_bytes

__all__ = [
    "Address",
    "ConfigError",
    "DeviceSettings",
    "RepositorySettings",
    "ServerSettings",
    "Settings",
    "load_settings",
    "parse_bytes",
]
