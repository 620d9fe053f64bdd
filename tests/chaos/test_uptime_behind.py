"""A process that begins while the topic is behind does not take the backlog for results missing."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from headway.systems.uptime.arroyo.progress import NOTHING
from headway.systems.uptime.hosting import host_of, progress_in
from headway.systems.uptime.metrics import Tally
from headway.systems.uptime.opening import open_processor, open_store
from headway.testing.servers import wait_until
from tests.systems.uptime.crowds import settings_in, subscribe
from tests.systems.uptime.sites import check

pytestmark = pytest.mark.timeout(60)


def test_no_wait_is_given_up_before_the_source_says_how_far_it_is_read(tmp_path: Path) -> None:
    # A wait of 1.8 s; the hard limit of one that is behind is 18 s.
    settings = settings_in(tmp_path, time_scale=0.01)

    def misses() -> int:
        async def count() -> int:
            store = open_store(settings)
            try:
                return (await store.totals()).misses
            finally:
                await store.close()

        return asyncio.run(count())

    async def hold() -> None:
        await subscribe(settings, ["s1"])
        consumer = await open_processor(settings, Tally())
        await consumer.handle_results([check(1), check(3)])
        await consumer.close()

    asyncio.run(hold())
    assert not wait_until(lambda: misses() > 0, timedelta(seconds=2))
    progress = progress_in(settings)
    progress.ask = lambda: NOTHING
    host = host_of(settings)
    try:
        assert not wait_until(lambda: misses() > 0, timedelta(seconds=1))
        progress.ask = lambda: None
        assert wait_until(lambda: misses() == 1, timedelta(seconds=10))
    finally:
        host.close()
