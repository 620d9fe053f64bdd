"""What a living worker holds is renewed; what could not be renewed is said, and tried again."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from headway import Lifecycle, RetryPolicy, Service
from headway.adapters.memory.store import MemoryDocuments
from headway.clock import Clock
from headway.retrying import Exponential
from headway.testing.engines import Worker
from headway.testing.ports import Finish, Finisher, Unit
from headway.testing.trial import Trial, at_rest

LEASE = timedelta(seconds=30)


class Locking(MemoryDocuments):
    """Documents of which others keep one locked for a while."""

    locked: str = ""
    renewals: list[list[str]]

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        free = {one: token for one, token in tokens.items() if one != self.locked}
        self.renewals.append(sorted(free))
        return await super().renew(collection, free, until)


async def test_what_was_not_renewed_is_said_and_renewed_at_the_next_beat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=LEASE)])

    @service.on("Made", documents=("docs", "ids"))
    async def handle(_event: Any, _work: Any) -> None:
        await trial.clock.wait(LEASE * 0.4)
        documents.locked = ""
        await trial.clock.wait(LEASE * 0.4)

    trial = Trial(service)
    documents = Locking(trial.state)
    documents.locked, documents.renewals = "b", []
    await trial.put("docs", {"_id": "a", "status": "pending"}, {"_id": "b", "status": "pending"})
    for one in "ab":
        await trial.publish("Made", {"ids": [one]})
    worker = Worker(
        [service],
        replace(trial.engine, documents=documents),
        clock=trial.clock,
        chance=trial.chance,
        observer=trial.facts,
    )
    with caplog.at_level(logging.WARNING, "headway"):
        task = asyncio.create_task(worker.run())
        while not at_rest(await trial.count()):
            await trial.clock.wait(timedelta(seconds=1))
        worker.stop()
        await task
    assert documents.renewals == [["a"], ["a", "b"]]
    said = [record.getMessage() for record in caplog.records if "Leases on" in record.getMessage()]
    assert len(said) == 1
    assert "Leases on docs: 1 of 2 were not renewed, because another program keeps" in said[0]
    assert {each["status"] for each in await trial.documents("docs")} == {"processed"}


class Refusing(MemoryDocuments):
    """Documents of a store that tells its password when it refuses."""

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        raise ConnectionError("postgresql://bob:s3cret@db: no answer")

    async def leave(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        raise ConnectionError("postgresql://bob:s3cret@db: no answer")


async def test_errors_of_the_store_are_logged_without_passwords(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=LEASE)])

    @service.on("Made", documents=("docs", "ids"))
    async def handle(_event: Any, _work: Any) -> None:
        await trial.clock.wait(LEASE)
        raise ConnectionError

    trial = Trial(service)
    await trial.put("docs", {"_id": "a", "status": "pending"})
    await trial.publish("Made", {"ids": ["a"]})
    worker = Worker(
        [service],
        replace(trial.engine, documents=Refusing(trial.state)),
        clock=trial.clock,
        chance=trial.chance,
        observer=trial.facts,
    )
    with caplog.at_level(logging.WARNING, "headway"):
        task = asyncio.create_task(worker.run())
        await trial.clock.wait(2 * LEASE)
        worker.stop()
        await task
    said = {record.getMessage() for record in caplog.records}
    why = "on docs: ConnectionError: postgresql://bob:***@db: no answer"
    assert {f"Could not renew leases {why}", f"Could not release leases {why}"} <= said
    assert "s3cret" not in caplog.text


async def test_a_worker_says_which_versions_run_and_on_what(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop, mail = Service("shop", version="2.1"), Service("mail")
    for service in (shop, mail):
        service.on("Made")(lambda _event, _work: None)
    trial = Trial(shop, mail)
    worker = Worker(
        [shop, mail],
        trial.engine,
        clock=trial.clock,
        chance=trial.chance,
        observer=trial.facts,
        place="amqp://bob:***@broker",
    )
    with caplog.at_level(logging.INFO, "headway"):
        task = asyncio.create_task(worker.run())
        await trial.clock.wait(timedelta(seconds=1))
        worker.stop()
        await task
    (said,) = (one for one in caplog.messages if one.startswith("Running"))
    assert said == f"Running shop 2.1, mail on amqp://bob:***@broker (process {os.getpid()})"


class Slow:
    """A finisher that has committed long before it says so: what follows takes its time."""

    at_once = 1

    def __init__(self, inner: Finisher, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        finishes = await self._inner.finish(units)
        await self._clock.wait(LEASE)
        return finishes


async def test_what_is_being_committed_is_not_missed_by_whoever_renews(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=LEASE)])

    @service.on("Made", documents=("docs", "ids"))
    async def handle(_event: Any, _work: Any) -> None: ...

    trial = Trial(service)
    await trial.put("docs", {"_id": "a", "status": "pending"})
    await trial.publish("Made", {"ids": ["a"]})
    worker = Worker(
        [service],
        replace(trial.engine, finisher=Slow(trial.engine.finisher, trial.clock)),
        clock=trial.clock,
        chance=trial.chance,
        observer=trial.facts,
    )
    with caplog.at_level(logging.WARNING, "headway"):
        task = asyncio.create_task(worker.run())
        await trial.clock.wait(2 * LEASE)
        worker.stop()
        await task
    assert [each["status"] for each in await trial.documents("docs")] == ["processed"]
    assert not [each for each in caplog.records if "Leases on" in each.getMessage()]


class Leaving(MemoryDocuments):
    """Documents that are let go slowly: a beat comes in between."""

    clock: Clock

    async def leave(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        left = await super().leave(collection, tokens, until)
        await self.clock.wait(LEASE)
        return left


async def test_what_was_let_go_is_not_missed_by_whoever_renews(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = RetryPolicy(max_attempts=2, backoff=Exponential(base=LEASE, cap=LEASE))
    service = Service("s", transient=policy, lifecycles=[Lifecycle("docs", lease=LEASE)])

    @service.on("Made", documents=("docs", "ids"))
    async def handle(_event: Any, work: Any) -> None:
        if work.attempt == 1:
            raise OSError("no space left")

    trial = Trial(service)
    documents = Leaving(trial.state)
    documents.clock = trial.clock
    await trial.put("docs", {"_id": "a", "status": "pending"})
    await trial.publish("Made", {"ids": ["a"]})
    worker = Worker(
        [service],
        replace(trial.engine, documents=documents),
        clock=trial.clock,
        chance=trial.chance,
        observer=trial.facts,
    )
    with caplog.at_level(logging.WARNING, "headway"):
        task = asyncio.create_task(worker.run())
        while not at_rest(await trial.count()):
            await trial.clock.wait(timedelta(seconds=1))
        worker.stop()
        await task
    assert [each["status"] for each in await trial.documents("docs")] == ["processed"]
    assert not [each for each in caplog.records if "Leases on" in each.getMessage()]
