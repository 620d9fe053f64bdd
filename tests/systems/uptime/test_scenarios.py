"""The scenarios of the document, through the front door, on every engine."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from headway.order import Disposition
from headway.systems.uptime import metrics
from headway.systems.uptime.effects import Change, Effect
from headway.systems.uptime.metrics import rates
from headway.systems.uptime.store import MonitorChange
from headway.systems.uptime.validation import Drop
from tests.systems.uptime.sites import FOUR, Site, check, send


async def test_results_in_their_order_are_processed_at_once(site: Site) -> None:
    consumer = site.consumer()
    assert await send(consumer, FOUR, FOUR + 1, FOUR + 2) == [Disposition.APPLIED] * 3
    assert await site.applied() == [FOUR, FOUR + 1, FOUR + 2]
    assert await site.missed() == []
    assert site.counted(metrics.ADDED) == 0
    assert site.scheduler.asked == []


async def test_4_01_before_4_00_is_held_and_follows_it_without_a_miss(site: Site) -> None:
    fast, slow = site.consumer(), site.consumer()
    assert await send(fast, FOUR + 1) == [Disposition.HELD]
    assert await site.applied() == []
    assert site.scheduler.asked == [("s1", 10)]
    assert await send(slow, FOUR) == [Disposition.APPLIED]
    assert await site.applied() == [FOUR, FOUR + 1]
    assert await site.missed() == []
    assert site.counted(metrics.ADDED) == site.counted(metrics.REMOVED) == 1
    assert site.counted(metrics.TASK_SCHEDULED) == site.counted(metrics.CLEARED) == 1
    assert site.counted(metrics.TIMEOUT) == site.counted(metrics.CIRCUIT_BREAKER) == 0


async def test_the_task_that_was_scheduled_finds_nothing_left_and_ends(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR + 1, FOUR)
    site.clock.advance(timedelta(seconds=10))
    assert await consumer.process_uptime_backlog("s1") is None
    assert len(site.scheduler.asked) == 1


async def test_a_batch_of_many_monitors_is_taken_at_once(site: Site) -> None:
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        await site.subscribe(key)
    minutes = [FOUR + 2, FOUR, FOUR + 1, FOUR + 3]
    raws = [check(minute, key) for minute in minutes for key in keys]
    await site.consumer().handle_results(raws)
    for key in keys:
        assert await site.applied(key) == sorted(minutes)
        assert await site.missed(key) == []
    assert site.size() == 0


async def test_ten_results_behind_a_gap_trip_the_breaker(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR)
    held = await send(consumer, *range(FOUR + 2, FOUR + 11))
    assert held == [Disposition.HELD] * 9
    assert site.counted(metrics.CIRCUIT_BREAKER) == 0
    await send(consumer, FOUR + 11)
    assert site.counted(metrics.CIRCUIT_BREAKER) == 1
    assert await site.missed() == [FOUR + 1]
    assert await site.applied() == [FOUR, *range(FOUR + 2, FOUR + 12)]
    assert site.size() == 0


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


async def test_a_result_that_comes_after_its_gap_was_given_up_takes_the_miss_back(
    site: Site,
) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 2)
    await site.pass_time(consumer, 190)
    assert await site.missed() == [FOUR + 1]
    assert await send(consumer, FOUR + 1) == [Disposition.APPLIED]
    assert await site.missed() == []
    assert site.counted(metrics.RETRACTED) == 1
    assert await send(consumer, FOUR + 1) == [Disposition.DUPLICATE]
    assert await site.applied() == [FOUR, FOUR + 2, FOUR + 1]
    assert (await site.store.totals()).applied == 2


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


async def test_whoever_drains_up_to_another_gap_has_that_one_looked_at(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 2, FOUR + 4)
    assert len(site.scheduler.asked) == 1
    site.clock.advance(timedelta(seconds=5))
    await send(consumer, FOUR + 1)
    assert site.scheduler.asked == [("s1", 10), ("s1", 10)]


async def test_while_results_are_held_those_in_order_are_held_too(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 2)
    assert await send(consumer, FOUR + 3) == [Disposition.HELD]
    assert await send(consumer, FOUR + 4) == [Disposition.HELD]
    assert site.counted(metrics.TASK_SCHEDULED) == 1
    await send(consumer, FOUR + 1)
    assert await site.applied() == [*range(FOUR, FOUR + 5)]


async def test_the_backlog_of_a_deleted_subscription_is_cleared(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 2, FOUR + 3)
    await site.store.change("s1", MonitorChange(delete=True))
    site.clock.advance(timedelta(seconds=10))
    assert await consumer.process_uptime_backlog("s1") is None
    assert site.counted(metrics.REMOVED) == 2
    assert (await consumer.sequences.waiting(10))[0] == 0
    assert await send(consumer, FOUR + 1) == [Drop.SUBSCRIPTION_NOT_FOUND]
    await site.pass_time(consumer, 200)
    assert await site.missed() == []


async def test_two_workers_that_hold_at_the_same_time_schedule_one_task(site: Site) -> None:
    first, second = site.consumer(), site.consumer()
    await send(first, FOUR)
    await asyncio.gather(
        first.handle_result(check(FOUR + 3)), second.handle_result(check(FOUR + 2))
    )
    await asyncio.gather(first.backlog.scheduled(), second.backlog.scheduled())
    assert site.scheduler.asked == [("s1", 10)]


async def test_chains_of_tasks_do_not_multiply(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 2, FOUR + 1)  # its task is still to come
    site.clock.advance(timedelta(seconds=5))
    await send(consumer, FOUR + 4)
    assert len(site.scheduler.asked) == 2
    site.clock.advance(timedelta(seconds=5))
    assert await consumer.process_uptime_backlog("s1") is None
    assert len(site.scheduler.asked) == 2
    site.clock.advance(timedelta(seconds=5))
    assert await consumer.process_uptime_backlog("s1") == timedelta(seconds=20)
    assert len(site.scheduler.asked) == 3


async def test_a_result_held_while_a_task_clears_the_queue_is_not_forgotten(site: Site) -> None:
    task, consumer = site.consumer(), site.consumer()
    await send(consumer, FOUR, FOUR + 2)
    site.clock.advance(timedelta(seconds=180))
    await asyncio.gather(
        task.process_uptime_backlog("s1"),
        consumer.handle_result(check(FOUR + 3)),
        consumer.handle_result(check(FOUR + 5)),
    )
    assert await site.applied() == [FOUR, FOUR + 2, FOUR + 3]
    await site.pass_time(consumer, 190)
    assert await site.applied() == [FOUR, FOUR + 2, FOUR + 3, FOUR + 5]
    assert site.size() == 0


async def test_a_look_that_could_not_be_scheduled_is_found_by_the_index(site: Site) -> None:
    consumer, other = site.consumer(), site.consumer()
    site.scheduler.is_away = True
    assert await send(consumer, FOUR, FOUR + 2) == [Disposition.APPLIED, Disposition.HELD]
    assert site.counted(metrics.SCHEDULE_FAILED) == 1
    await site.pass_time(other, 185)
    assert await site.applied() == [FOUR, FOUR + 2]
    assert await site.missed() == [FOUR + 1]


async def test_what_is_held_for_an_hour_is_released_and_counted(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 2, FOUR + 4)
    site.clock.advance(timedelta(minutes=61))  # nobody was there to look
    await consumer.backlog.look_at_due()
    assert await site.applied() == [FOUR, FOUR + 2, FOUR + 4]
    assert await site.missed() == [FOUR + 1, FOUR + 3]
    assert site.counted(metrics.TIMEOUT) == 1
    assert site.size() == 0


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


@pytest.mark.parametrize("again", [FOUR, FOUR + 1])
async def test_a_duplicate_is_never_a_gap(site: Site, again: int) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR, FOUR + 1)
    assert await send(consumer, again) == [Disposition.DUPLICATE]
    assert await send(consumer, FOUR + 2) == [Disposition.APPLIED]
    assert site.counted(metrics.ADDED) == 0
    assert site.counted(metrics.DUPLICATES) == 1


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


async def test_results_in_order_behind_a_slow_one_trip_nothing(site: Site) -> None:
    slow = SlowStore(site)
    stuck, consumer = site.consumer(store=slow), site.consumer()  # type: ignore[arg-type]
    first = asyncio.create_task(stuck.handle_result(check(FOUR)))
    await slow.begun.wait()
    assert await send(consumer, *range(FOUR + 1, FOUR + 13)) == [Disposition.HELD] * 12
    site.clock.advance(timedelta(seconds=29))
    await consumer.backlog.look_at_due()
    assert site.counted(metrics.CIRCUIT_BREAKER) == site.counted(metrics.TIMEOUT) == 0
    slow.go_on.set()
    assert await first is Disposition.APPLIED
    assert await site.applied() == [*range(FOUR, FOUR + 13)]
    assert await site.missed() == []


async def test_a_worker_that_wakes_after_its_lease_applies_nothing_twice(site: Site) -> None:
    slow = SlowStore(site)
    stuck, consumer = site.consumer(store=slow), site.consumer()  # type: ignore[arg-type]
    first = asyncio.create_task(stuck.handle_result(check(FOUR)))
    await slow.begun.wait()
    await send(consumer, FOUR + 1)
    assert await send(consumer, FOUR) == [Disposition.HELD]  # Kafka gave it to somebody else too
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
