"""Failed queues in the hands of whoever typed the command."""

import getpass
import os

from headway.assembly.retrying import CLOCK
from headway.ports.engine import Engine
from headway.runtime.failed import FailedQueues


def failed_queues(engine: Engine) -> FailedQueues:
    """Give the failed queues; every change is recorded under the user's name."""
    return FailedQueues(engine, CLOCK, who=_who())


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        return f"user {os.getuid()}"
