"""The environment, read here and nowhere else."""

import os
from collections.abc import Mapping

from headway.core.engine_url import DEFAULT_URL
from headway.core.errors import ConfigurationError
from headway.core.policy import RetryConfig


def environment() -> Mapping[str, str]:
    """Give the process's environment as it is now."""
    return dict(os.environ)


def retry_config() -> RetryConfig:
    """Read RETRY_* and EVENT_RETRY_*; a value that cannot be used is refused by name."""
    return RetryConfig.from_mapping(environment())


def bus_url() -> str:
    """Give the engine that is meant if none is named."""
    settings = environment()
    bus = settings.get("HEADWAY_BUS") or DEFAULT_URL
    store = settings.get("HEADWAY_STORE") or bus
    if store != bus:
        raise ConfigurationError(
            "HEADWAY_STORE names another engine than HEADWAY_BUS: the embedded engine is both in "
            "one file; set one of them only"
        )
    return bus
