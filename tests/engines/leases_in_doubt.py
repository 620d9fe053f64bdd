"""A sweep that finds so many leases lapsed at once that it doubts them."""

import itertools
from datetime import datetime, timedelta
from typing import Any

from headway import Lifecycle, Service
from headway.clock import Clock
from headway.facts import LeasesDoubted
from headway.runtime.sweeper import Sweeper
from headway.settings import SweepSettings
from headway.testing.chance import Seeded
from headway.testing.conformance.examples import MAILS, message, unit
from headway.testing.facts import Recorder
from headway.testing.ports import Document, Engine, InsertNew, Outcome, instant

LAPSED, RUNNING = 110, 5
MINUTE = timedelta(minutes=1)
_STORED = itertools.count()


def _service() -> Service:
    service = Service("chunking", lifecycles=[Lifecycle("messages", lease=MINUTE)])

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"))
    async def chunk(event: Any, work: Any) -> None: ...

    return service


def _leased(now: datetime, one: str, until: datetime) -> Document:
    return {
        "_id": one,
        "status": "pending",
        "attemptCount": 1,
        "lastAttemptTime": instant(now - MINUTE),
        "leaseToken": one,
        "leaseUntil": instant(until),
    }


async def leases_lapse(engine: Engine, clock: Clock, *others: Document) -> None:
    """Store documents whose leases have just lapsed, a few whose leases run, and others."""
    now = clock.now()
    lapsed = [_leased(now, f"lapsed {n}", now - MINUTE / 2) for n in range(LAPSED)]
    running = [_leased(now, f"running {n}", now + 60 * MINUTE) for n in range(RUNNING)]
    writes = tuple(InsertNew("messages", each) for each in (*lapsed, *running, *others))
    await engine.bus.publish([message(f"stores {next(_STORED)}", queue=MAILS.name)])
    (delivery,) = await engine.bus.take([MAILS.name], 1)
    (finish,) = await engine.finisher.finish([unit(delivery, now, writes=writes)])
    assert finish.outcome is Outcome.COMMITTED


async def sweep_in_doubt(engine: Engine, clock: Clock) -> LeasesDoubted:
    """Sweep once; give the fact that leases were doubted."""
    facts = Recorder()
    sweeper = Sweeper(
        [_service()],
        engine,
        clock=clock,
        chance=Seeded(),
        observer=facts,
        settings=SweepSettings(cap=0),
    )
    await sweeper.sweep_once()
    (doubted,) = facts.of(LeasesDoubted)
    return doubted
