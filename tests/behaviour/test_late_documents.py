"""Documents that come between the begin of their event and the end of its handler."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headway import Lifecycle, Service
from headway.testing.engines import Publisher
from tests.behaviour.sweeps import HOUR, Spied, Yard, working


class Scene:
    """An event about two documents, of which one comes while the handler runs."""

    def __init__(self, yard: Yard, lease: timedelta | None = None) -> None:
        self.yard = yard
        self.attempts: list[int] = []
        self.service = Service("s", lifecycles=[Lifecycle("docs", lease=lease)])
        self.service.on("Made", documents=("docs", "ids"))(self.handle)

    async def handle(self, _event: Any, work: Any) -> None:
        self.attempts.append(work.attempt)
        if work.attempt == 1:
            await self.yard.put("docs", {"_id": "late", "status": "pending"})

    async def run(self, *errors: Exception) -> None:
        """Let a worker do it; when the handler has run, the store raises these once each."""
        whole, left = self.yard.new_engine(), list(errors)

        async def begin(beginnings: Sequence[Any]) -> Any:
            if self.attempts and left:
                raise left.pop(0)
            return await whole.documents.begin(beginnings)

        documents: Any = Spied(whole.documents, begin=begin)
        engine = replace(whole, documents=documents)
        await engine.open(self.service.queues())
        await self.yard.put("docs", {"_id": "there", "status": "pending"})
        publisher = Publisher(engine.bus, self.yard.clock, self.yard.chance)
        await publisher.publish("Made", {"ids": ["there", "late"]})
        async with asyncio.timeout(30), working(self.yard, self.service, engine=engine):
            while (await self.yard.engine.places.depths()).waiting:
                await self.yard.clock.wait(timedelta(seconds=1))
        assert not left


@pytest.mark.parametrize("lease", [None, HOUR])
async def test_what_comes_late_is_begun_with_even_if_the_store_is_away_for_a_while(
    yard: Yard, lease: timedelta | None
) -> None:
    scene = Scene(yard, lease)
    await scene.run(ConnectionError("the store is away"), ConnectionError("still"))
    assert scene.attempts == [1], "the handler has done its work, and is not asked again"
    for one in ("there", "late"):
        found = await yard.get("docs", one)
        assert (found["status"], found["attemptCount"]) == ("processed", 1)
        assert found.get("leaseToken") is None


async def test_a_late_document_that_the_store_refuses_is_a_failure_of_its_event(
    quick: Yard,
) -> None:
    scene = Scene(quick)
    await scene.run(ValueError("it cannot be stored"))
    (letter,) = await quick.engine.letters.read("s.failed", 10)
    assert letter.last_error == "ValueError: it cannot be stored"
