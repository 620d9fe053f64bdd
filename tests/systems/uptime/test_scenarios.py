"""The scenarios of the document, through the front door, on every engine."""

import asyncio
from collections.abc import Sequence

from headway.order import Disposition
from headway.systems.uptime import metrics
from headway.systems.uptime.effects import Change, Effect
from headway.systems.uptime.metrics import rates
from tests.systems.uptime.sites import FOUR, Site, check, send


async def test_the_wait_follows_the_schedule_and_is_given_up_after_three_minutes(
    site: Site,
) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 3)
    await site.pass_time(consumer, 179)
    assert [delay for _, delay in site.scheduler.asked] == [10, 20, 30, 60, 60]
    assert site.counted(metrics.RESCHEDULING) == 4
    assert await site.applied() == [FOUR]
    await site.pass_time(consumer, 6)
    assert await site.applied() == [FOUR, FOUR + 3]
    assert await site.missed() == [FOUR + 1, FOUR + 2]
    assert site.counted(metrics.TIMEOUT) == site.counted(metrics.TIMEOUT_RESULTS) == 1
    assert site.counts.taken()["uptime_result_processer_num_missing_check_sum"] == 2


async def test_progress_begins_a_new_wait_for_the_next_gap(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 2, FOUR + 4)
    await site.pass_time(consumer, 170)
    await send(consumer, FOUR + 1)
    assert await site.applied() == [FOUR, FOUR + 1, FOUR + 2]
    await site.pass_time(consumer, 170)  # the wait for 4:03 began when 4:02 was applied
    assert site.counted(metrics.TIMEOUT) == 0
    await site.pass_time(consumer, 15)
    assert site.counted(metrics.TIMEOUT) == 1
    assert await site.missed() == [FOUR + 3]


async def test_a_look_that_could_not_be_scheduled_is_found_by_the_index(site: Site) -> None:
    consumer, other = site.consumer(), site.consumer()
    site.scheduler.is_away = True
    assert await send(consumer, FOUR, FOUR + 2) == [Disposition.APPLIED, Disposition.HELD]
    assert site.counted(metrics.SCHEDULE_FAILED) == 1
    await site.pass_time(other, 185)
    assert await site.applied() == [FOUR, FOUR + 2]
    assert await site.missed() == [FOUR + 1]


async def test_a_gap_is_waited_for_while_the_source_says_that_we_are_behind(site: Site) -> None:
    consumer = site.consumer()
    behind = site.clock.now()
    await consumer.handle_result(check(FOUR), behind)
    await consumer.handle_result(check(FOUR + 2), behind)
    consumer.backlog._progress = lambda: behind
    await site.pass_time(consumer, 20 * 60)
    assert site.counted(metrics.TIMEOUT) == 0
    await site.pass_time(consumer, 11 * 60)
    assert site.counted(metrics.TIMEOUT) == 1  # the hard cap


class SlowStore:
    """Applies nothing before it is told to."""

    def __init__(self, site: Site) -> None:
        self._store = site.store
        self.go_on = asyncio.Event()
        self.begun = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def apply(self, effects: Sequence[Effect]) -> Sequence[Change]:
        self.begun.set()
        await self.go_on.wait()
        return await self._store.apply(effects)


async def test_a_worker_that_wakes_after_its_lease_applies_nothing_twice(site: Site) -> None:
    slow = SlowStore(site)
    stuck, consumer = site.consumer(store=slow), site.consumer()  # type: ignore[arg-type]
    first = asyncio.create_task(stuck.handle_result(check(FOUR)))
    await slow.begun.wait()
    await send(consumer, FOUR + 1)
    assert await send(consumer, FOUR) == [Disposition.HELD]  # Kafka gave it to another worker too
    await site.pass_time(consumer, 31)
    assert await site.applied() == [FOUR, FOUR + 1]
    slow.go_on.set()
    assert await first is Disposition.DUPLICATE
    assert await site.applied() == [FOUR, FOUR + 1]
    assert (await site.store.totals()).applied == 2
    assert site.counted(metrics.LEASES_LOST) == 1


async def test_the_derived_rates_are_those_of_the_document(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 2, FOUR + 3, FOUR + 1, FOUR + 5)
    assert rates(site.counts.taken()) == {
        "size": 1,
        "success_rate": 0.5,
        "timeout_rate": 0,
        "circuit_breaker_rate": 0,
    }
