"""Unrouted events in a file: killed at every statement, and as many as come."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from headway.testing.conformance.balancing import balanced
from headway.testing.conformance.examples import message, opened, operations, take
from headway.testing.conformance.unrouted import SHIPPED, SHIPPING
from headway.testing.ports import Queue
from tests.conformance.test_sqlite import SqliteHarness

MANY = 20_000


def killed_copies(first: Path, deed: str) -> list[Path]:
    """Give copies of a file, each after a process on it was killed one statement later."""
    script = "tests.engines.sqlite.killed_routing"
    done = subprocess.run(
        [sys.executable, "-m", script, str(first), deed],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(first.parent.glob("[0-9]*.db"), key=lambda file: int(file.stem))


@pytest.mark.parametrize("deed", ["publish", "open"])
async def test_killed_at_any_statement_nothing_is_lost_or_there_twice(
    tmp_path: Path, deed: str
) -> None:
    first = SqliteHarness(tmp_path / "first.db")
    engine = await opened(first)
    await engine.bus.publish([message(name, event_type=SHIPPED) for name in "abc"])
    await first.close()
    files = killed_copies(first.path, deed)
    seen = [await _survived(SqliteHarness(file), deed) for file in files]
    whole = {"publish": 6, "open": 0}[deed]
    assert set(seen) == {3, whole}, "some were killed before the commit, and some after it"
    assert seen[-1] == whole  # of the process that came to its end


async def _survived(harness: SqliteHarness, deed: str) -> int:
    """Find each event once in the queue, after one more start; say how many were unrouted."""
    engine = await harness.open_engine()
    unrouted = (await engine.places.depths()).unrouted
    expected = "abcdef" if (deed, unrouted) == ("publish", 6) else "abc"
    await engine.bus.open([SHIPPING])
    assert dict(await engine.unrouted.counts()) == {}
    assert operations(await take(harness, engine, len(expected), SHIPPING.name)) == [*expected]
    await balanced(engine, {"leased": len(expected)})
    await harness.close()
    return unrouted


async def test_services_that_start_while_events_move_share_no_backlog(tmp_path: Path) -> None:
    """More events wait than one commit moves: all go where the first went."""
    harness = SqliteHarness(tmp_path / "headway.db")
    engine = await opened(harness)
    names = [str(number) for number in range(MANY + 5_000)]
    await engine.bus.publish([message(name, event_type=SHIPPED) for name in names])
    other = Queue(name="billing.shipped", event_types=(SHIPPED,), failed="billing.failed")
    second = await harness.open_engine()
    await asyncio.gather(engine.bus.open([SHIPPING]), second.bus.open([other]))
    depths = {each.queue: each.waiting for each in (await engine.places.depths()).queues}
    assert sorted([depths[SHIPPING.name], depths[other.name]]) == [0, len(names)]
    (first,) = [name for name in (SHIPPING.name, other.name) if depths[name]]
    assert operations(await engine.bus.take([first], 100)) == names[:100]
    await harness.close()
