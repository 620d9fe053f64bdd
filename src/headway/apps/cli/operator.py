"""Failed queues, documents, orders and unrouted events, changed under the user's name."""

import getpass
import os
import platform
from collections.abc import Sequence

from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.apps.cli.lifecycles import rules_of, swept_by, targets_of
from headway.assembly.settings import environment
from headway.ports.engine import Engine
from headway.ports.sequences import SequenceDesk
from headway.runtime.documents import StoredDocuments
from headway.runtime.failed import FailedQueues
from headway.runtime.order import ResultOrder
from headway.runtime.unrouted import UnroutedEvents


def failed_queues(engine: Engine) -> FailedQueues:
    """Give the failed queues; every change is recorded under the user's name."""
    return FailedQueues(engine, CLOCK, CHANCE, who=_who())


def unrouted_events(engine: Engine) -> UnroutedEvents:
    """Give the unrouted events; every change is recorded under the user's name."""
    return UnroutedEvents(engine, CLOCK, CHANCE, who=_who())


def stored_documents(engine: Engine, services: Sequence[str] = ()) -> StoredDocuments:
    """Give the documents, with lifecycles as services declare them; every change is recorded."""
    rule_of = rules_of(services)  # first: it refuses what is misspelt
    target_of = targets_of(services)
    return StoredDocuments(
        engine,
        CLOCK,
        CHANCE,
        who=_who(),
        rule_of=rule_of,
        target_of=target_of,
        is_swept=swept_by(services, target_of),
    )


def result_order(
    desk: SequenceDesk, *, where: str = "here", are_own_settings: bool = True
) -> ResultOrder:
    """Give the order of results; every change is recorded under the user's name."""
    return ResultOrder(
        desk, CLOCK, CHANCE, who=_who(), where=where, are_own_settings=are_own_settings
    )


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        user = f"user {os.getuid()}"
    behind = environment(with_file=False).get("SUDO_USER", "")
    if behind and behind != user:
        user = f"{behind} as {user}"
    return f"{user}@{platform.node() or 'unknown host'}"
