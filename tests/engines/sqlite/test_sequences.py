"""What only SQLite has: rows that other programs wrote."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from headway import Resequencer
from headway.errors import UnreadableKeyError
from headway.order import Disposition, Result, Turn
from headway.testing.clock import VirtualClock
from headway.testing.engines import sqlite_sequences
from headway.testing.ports import Completion, Look, Offer

KEYS = ("6", "7", "8")


def damage(path: Path, row: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"update {row} where key = '7'")
        connection.commit()


@pytest.mark.parametrize(
    "damaged",
    [
        "headway_sequences set state = 'what is this'",
        "headway_sequences set marker = 'what is this'",
        "headway_held set step = 0",
        "headway_held set since = 'what is this'",
    ],
)
async def test_a_key_that_cannot_be_read_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: str
) -> None:
    clock = VirtualClock()
    sequences = sqlite_sequences(tmp_path / "headway.db", clock, synchronous="off")
    await sequences.offer([Offer(key, 1, b"", "a") for key in KEYS])
    await sequences.complete([Completion(key, 1, "a") for key in KEYS])
    await sequences.offer([Offer(key, 3, b"", "b") for key in KEYS])
    damage(tmp_path / "headway.db", damaged)
    clock.advance(timedelta(seconds=10))
    looks = [Look(key, "c") for key in await sequences.due(9)]
    assert [looked.held for looked in await sequences.look(looks)] == [1, 0, 1]
    assert list(await sequences.due(9)) == []
    answers = await sequences.offer([Offer(key, 2, b"", "d") for key in KEYS])
    assert [answer.outcome for answer in answers] == ["process", "unreadable", "process"]
    done = await sequences.complete([Completion(key, 2, "d") for key in KEYS])
    assert [each.accepted for each in done] == [True, False, True]
    assert not await sequences.renew(Turn("7", 2, b"", "d"))
    assert await sequences.give_back(Offer("7", 2, b"", "d")) is None
    assert "'7'" in caplog.text
    with pytest.raises(UnreadableKeyError, match="'7'"):
        await sequences.read("7")
    assert await sequences.forget("7") == 1
    (anew,) = await sequences.offer([Offer("7", 9, b"", "e")])
    assert anew.outcome == "process"
    await sequences.close()


async def test_what_cannot_be_taken_is_left_to_its_source(tmp_path: Path) -> None:
    applied: list[tuple[str, int]] = []

    async def apply(work: Turn) -> None:
        applied.append((work.key, work.position))

    url = f"sqlite:///{tmp_path / 'headway.db'}"
    async with Resequencer(apply, url=url, name="uptime") as order:
        await order.offer_all([Result(key, 1) for key in KEYS])
        damage(tmp_path / "headway.db", "headway_sequences set marker = 'what is this'")
        fates = await order.offer_all([Result(key, 2) for key in KEYS])
    assert fates == [Disposition.APPLIED, Disposition.LEFT, Disposition.APPLIED]
    assert sorted(applied)[-3:] == [("7", 1), ("8", 1), ("8", 2)]
