"""The pipeline, each of whose handlers kills its process once, when it could not be worse.

Everything that it has done outside of the store is done by then, and nothing of it is committed.
"""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway import Event
from headway.runtime.service import Subscription
from headway.systems.consensus.pipeline import SERVICES

DEATHS = Path(os.environ["SITE"]) / "deaths"


def deadly(subscription: Subscription) -> Subscription:
    handler = subscription.handler
    mark = DEATHS / f"{subscription.service}-{subscription.event_type}"

    async def wait_and_die(event: Event, work: Any) -> None:
        await handler(event, work)
        die_once(mark)

    def do_and_die(event: Event, work: Any) -> None:
        handler(event, work)
        die_once(mark)

    return replace(subscription, handler=wait_and_die if subscription.is_coroutine else do_and_die)


def die_once(mark: Path) -> None:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


for service in SERVICES:
    for key, each in service.subscriptions.items():
        service.subscriptions[key] = deadly(each)

ingestion, parsing, chunking, embedding, orchestrator, summarization, reporting = SERVICES
