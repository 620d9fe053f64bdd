"""What a history of changes promises."""

import asyncio
from datetime import timedelta
from typing import Any

from headway.core.document import moment
from headway.core.travel import instant
from headway.ports.history import KEPT
from headway.testing.conformance.examples import opened
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.stuck import whole_second


class HistoryConformance:
    """Entries stay, in their order, and the newest are found."""

    async def test_entries_come_newest_first(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        history = (await opened(harness)).history
        other = (await opened(harness)).history
        assert list(await history.latest(10)) == []
        for n in range(5):
            at = instant(now + n * timedelta(seconds=1))
            entry = {"at": at, "who": "käse ✓", "what": "reset", "ids": [f"{n}"]}
            await (history if n % 2 else other).append(entry)
        assert [each["ids"][0] for each in await history.latest(10)] == ["4", "3", "2", "1", "0"]
        assert [each["ids"][0] for each in await other.latest(2)] == ["4", "3"]
        (newest,) = await other.latest(1)
        assert moment(newest["at"]) == now + 4 * timedelta(seconds=1)
        assert (newest["who"], newest["what"]) == ("käse ✓", "reset")

    async def test_of_one_instant_the_last_appended_is_the_newest(
        self, harness: EngineHarness
    ) -> None:
        at = instant(whole_second(harness))
        history = (await opened(harness)).history
        for n in range(5):
            await history.append({"at": at, "n": n})
        assert [each["n"] for each in await history.latest(3)] == [4, 3, 2]

    async def test_reading_often_and_at_once_changes_nothing(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        engines = [await opened(harness) for _ in range(3)]
        for n in range(30):
            await engines[0].history.append({"at": instant(now + n * timedelta(seconds=1)), "n": n})

        async def read(engine: Any) -> list[int]:
            return [each["n"] for each in await engine.history.latest(KEPT)]

        for _ in range(10):
            for found in await asyncio.gather(*map(read, engines)):
                assert found == list(range(29, -1, -1))

    async def test_what_is_appended_while_others_read_is_kept(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        writer, reader = (await opened(harness)).history, (await opened(harness)).history

        async def write() -> None:
            for n in range(30):
                await writer.append({"at": instant(now + n * timedelta(seconds=1)), "n": n})

        async def read() -> None:
            for _ in range(10):
                found = [each["n"] for each in await reader.latest(KEPT)]
                assert found == list(range(len(found) - 1, -1, -1))

        await asyncio.gather(write(), read())
        assert [each["n"] for each in await writer.latest(KEPT)] == list(range(29, -1, -1))
