"""Failed queues and documents in the hands of whoever typed the command."""

import getpass
import os
import platform
from collections.abc import Sequence

from headway.apps.cli.lifecycles import rules_of, targets_of
from headway.assembly.retrying import CHANCE, CLOCK
from headway.ports.engine import Engine
from headway.runtime.documents import StoredDocuments
from headway.runtime.failed import FailedQueues


def failed_queues(engine: Engine) -> FailedQueues:
    """Give the failed queues; every change is recorded under the user's name."""
    return FailedQueues(engine, CLOCK, who=_who())


def stored_documents(engine: Engine, services: Sequence[str] = ()) -> StoredDocuments:
    """Give the documents, with lifecycles as services declare them; every change is recorded."""
    return StoredDocuments(
        engine,
        CLOCK,
        CHANCE,
        who=_who(),
        rule_of=rules_of(services),
        target_of=targets_of(services),
    )


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        user = f"user {os.getuid()}"
    return f"{user}@{platform.node() or 'unknown host'}"
