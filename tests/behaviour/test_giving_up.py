"""Given up is what no event will come back for: not what is parked or on its way back."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from headway import Lifecycle, Service
from headway.facts import DocumentGivenUp
from headway.settings import SweepSettings
from headway.testing.ports import instant
from headway.testing.trial import Trial
from tests.behaviour.scenes import crash

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NOTE = "down/s/Made"


async def test_documents_whose_events_are_parked_are_left_to_them() -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=MINUTE)])
    is_away = True

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        if is_away:
            raise ConnectionRefusedError("the model server is away")

    trial = Trial(service)
    ids = [f"d{number:02}" for number in range(20)]
    await trial.put("docs", *({"_id": one} for one in ids))
    for one in ids:
        await trial.publish("Made", {"ids": [one]})
    async with trial.running():
        while (await trial.balance()).queues[0].parked < len(ids):
            await trial.clock.wait(10 * SECOND)
    for _ in range(4):  # no worker lives that notes that it is down
        trial.clock.advance(5 * HOUR)
        (swept,) = (await trial.sweep()).collections
        assert (swept.requeued, swept.given_up) == (0, 0)
    is_away = False
    await trial.run()
    documents = await trial.documents("docs")
    assert [(each["status"], each["attemptCount"]) for each in documents] == [
        ("processed", 1) for _ in ids
    ]


@pytest.mark.parametrize(("status", "given_up"), [("pending", 0), ("failed", 1)])
async def test_what_may_be_parked_is_not_given_up_while_its_service_is_down(
    status: str, given_up: int
) -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", max_attempts=1, lease=MINUTE)])

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None: ...

    trial = Trial(service)
    old = "1990-01-01T00:00:00Z"
    held = {"lastAttemptTime": old, "leaseToken": "waiting", "leaseUntil": old}
    await trial.put("docs", {"_id": "a", "status": status, "attemptCount": 1, **held})
    sweeping = trial.engine.sweeping
    assert sweeping is not None
    await sweeping.leases.hold(NOTE, "w", DAY)
    assert (await trial.sweep()).collections[0].given_up == given_up
    await sweeping.leases.let_go(NOTE, "w")
    await trial.sweep()
    assert len(trial.facts.of(DocumentGivenUp)) == 1


@pytest.mark.parametrize("given_up", [0, 1])
async def test_the_last_attempt_may_come_back_until_it_is_given_up(given_up: int) -> None:
    trial = await _left_behind(after=(7 if given_up else 4) * MINUTE)
    (swept,) = (await trial.sweep()).collections
    assert swept.given_up == given_up
    (before,) = await trial.documents("docs")
    await trial.run(at_most=HOUR)
    (document,) = await trial.documents("docs")
    if given_up:
        assert (document, document["status"]) == (before, "failed_max_retries")
        assert (await trial.sweep(SweepSettings(cap=0))).collections[0].given_up == 0
    else:
        assert (document["status"], document["attemptCount"]) == ("processed", 1)
    assert len(trial.facts.of(DocumentGivenUp)) == given_up


async def _left_behind(*, after: timedelta) -> Trial:
    """Give a document so long after the worker died that had it in hand for the last time."""
    service = Service("s", lifecycles=[Lifecycle("docs", max_attempts=1, lease=5 * SECOND)])
    ran: list[str] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        if len(ran) == 1:
            await asyncio.Event().wait()

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running() as worker:
        while not ran:
            await trial.clock.wait(SECOND)
        crash(trial, worker)
    (document,) = await trial.documents("docs")
    # A process that is killed releases nothing.
    until = instant(trial.clock.now() + 5 * SECOND)
    await trial.put("docs", {**document, "leaseToken": "killed", "leaseUntil": until})
    trial.clock.advance(after)
    return trial
