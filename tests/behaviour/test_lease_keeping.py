"""What a living worker holds is renewed; what could not be renewed is told, and tried again."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from headway import Lifecycle, RetryPolicy, Service
from headway.retrying import Exponential
from headway.testing.ports import Finish, Unit
from headway.testing.trial import Trial, at_rest
from tests.behaviour.sweeps import Spied, working

LEASE = timedelta(seconds=30)
Tokens = Mapping[str, str]


class Scene:
    """A service whose handlers take as long as a lease, on documents of which calls go wrong."""

    def __init__(self, handle: Any) -> None:
        policy = RetryPolicy(max_attempts=2, backoff=Exponential(base=LEASE, cap=LEASE))
        lifecycle = Lifecycle("docs", lease=LEASE)
        self.service = Service("s", transient=policy, lifecycles=[lifecycle])
        self.service.on("Made", documents=("docs", "ids"))(handle)
        self.trial = Trial(self.service)

    async def run(self, *ids: str, finish: Any = None, **instead: Any) -> None:
        """Let a worker end an event for each document; some calls do something else."""
        engine = self.trial.engine
        documents: Any = Spied(engine.documents, **instead)
        finisher: Any = Spied(engine.finisher, **({"finish": finish} if finish else {}))
        await self.trial.put("docs", *({"_id": one, "status": "pending"} for one in ids))
        for one in ids:
            await self.trial.publish("Made", {"ids": [one]})
        engine = replace(engine, documents=documents, finisher=finisher)
        async with working(self.trial, self.service, engine=engine):
            while not at_rest(await self.trial.balance()):
                await self.trial.clock.wait(timedelta(seconds=1))
        states = {each["status"] for each in await self.trial.documents("docs")}
        assert states == {"processed"}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


async def test_what_was_not_renewed_is_said_and_renewed_at_the_next_beat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    locked, renewals = "b", list[list[str]]()

    async def handle(_event: Any, _work: Any) -> None:
        nonlocal locked
        await scene.trial.clock.wait(LEASE * 0.4)
        locked = ""
        await scene.trial.clock.wait(LEASE * 0.4)

    async def renew(collection: str, tokens: Tokens, until: datetime) -> int:
        free = {one: token for one, token in tokens.items() if one != locked}
        renewals.append(sorted(free))
        return await scene.trial.engine.documents.renew(collection, free, until)

    scene = Scene(handle)
    await scene.run("a", "b", renew=renew)
    assert renewals == [["a"], ["a", "b"]]
    (line,) = told(caplog)
    assert "docs: 1 of 2" in line


async def test_errors_of_the_store_are_logged_without_passwords(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handle(_event: Any, work: Any) -> None:
        await scene.trial.clock.wait(LEASE)
        if work.attempt == 1:
            raise OSError("no space left")

    async def refuse(collection: str, tokens: Tokens, until: datetime) -> int:
        raise ConnectionError("postgresql://bob:s3cret@db: no answer")

    scene = Scene(handle)
    await scene.run("a", renew=refuse, leave=refuse)
    lines = [line for line in told(caplog) if "postgresql://bob:***@db: no answer" in line]
    assert len(set(lines)) == 2, "it could neither renew nor release"
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("slow", ["commit", "release"])
async def test_what_is_being_committed_or_released_is_not_missed_at_the_next_beat(
    slow: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The store has changed the document long before it answers: a beat comes in between."""

    async def handle(_event: Any, work: Any) -> None:
        if work.attempt == 1 and slow == "release":
            raise OSError("no space left")

    async def leave(collection: str, tokens: Tokens, until: datetime) -> int:
        left = await scene.trial.engine.documents.leave(collection, tokens, until)
        await scene.trial.clock.wait(LEASE)
        return left

    async def finish(units: Sequence[Unit]) -> Sequence[Finish]:
        finishes = await scene.trial.engine.finisher.finish(units)
        await scene.trial.clock.wait(LEASE)
        return finishes

    scene = Scene(handle)
    await scene.run("a", **({"finish": finish} if slow == "commit" else {"leave": leave}))
    assert told(caplog) == []
