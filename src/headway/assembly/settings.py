"""The environment, read here and nowhere else."""

import os
from collections.abc import Mapping

from headway.core.policy import RetryConfig


def environment() -> Mapping[str, str]:
    """Give the process's environment as it is now."""
    return dict(os.environ)


def retry_config() -> RetryConfig:
    """Read RETRY_* and EVENT_RETRY_*; a value that cannot be used is refused by name."""
    return RetryConfig.from_mapping(environment())
