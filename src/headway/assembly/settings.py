"""The environment, read here and nowhere else."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from headway.core.engine_url import DEFAULT_URL
from headway.core.errors import ConfigurationError
from headway.core.policy import RetryConfig

SETTINGS_FILE = "HEADWAY_SETTINGS"


def environment() -> Mapping[str, str]:
    """Give the process's environment as it is now.

    If HEADWAY_SETTINGS names a file, what it says goes before the environment. A running process
    keeps its environment, but it reads the file again when it is told to reload.
    """
    settings = dict(os.environ)
    name = settings.get(SETTINGS_FILE)
    return {**settings, **_read(Path(name))} if name else settings


def _read(path: Path) -> Mapping[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{SETTINGS_FILE}={str(path)!r} cannot be read ({error}): "
            "name a file of NAME=VALUE lines"
        ) from None
    settings: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ConfigurationError(
                f"{SETTINGS_FILE}={str(path)!r}, line {number} is not accepted: use NAME=VALUE"
            )
        settings[name.strip()] = value.strip().strip("\"'")
    return settings


def retry_config() -> RetryConfig:
    """Read RETRY_* and EVENT_RETRY_*; a value that cannot be used is refused by name."""
    return RetryConfig.from_mapping(environment())


_OWN = ("HEADWAY_BUS", "HEADWAY_STORE", SETTINGS_FILE)


def _refuse_misspelt(settings: Mapping[str, str]) -> None:
    for name in settings:
        if name.startswith("HEADWAY_") and name not in _OWN:
            meant = get_close_matches(name, _OWN, n=1)
            if meant:
                raise ConfigurationError(f"{name} is no setting: did you mean {meant[0]}?")


def bus_url() -> str:
    """Give the engine that is meant if none is named."""
    settings = environment()
    _refuse_misspelt(settings)
    bus = settings.get("HEADWAY_BUS") or DEFAULT_URL
    store = settings.get("HEADWAY_STORE") or bus
    if store != bus:
        raise ConfigurationError(
            "HEADWAY_STORE names another engine than HEADWAY_BUS: the embedded engine is both in "
            "one file; set one of them only"
        )
    return bus
