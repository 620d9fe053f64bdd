"""The document's nine scenarios through the front door, in real time.

On Redis all looks are a real Celery worker's; on SQLite there is no server, and workers look by
themselves. Waits and intervals are a thirtieth of the document's: it gives up after six seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headway.order import Disposition
from headway.systems.uptime import metrics
from headway.systems.uptime.processor import ResultProcessor
from headway.systems.uptime.store import MonitorChange
from headway.systems.uptime.validation import Drop
from headway.testing.servers import Redis
from tests.systems.uptime.crowds import settings_in
from tests.systems.uptime.stages import Door, Stage, celery_worker, until

pytestmark = pytest.mark.timeout(120)

SCALE = 1 / 30
HOUR_IN_FIVE_SECONDS = 1 / 720


@pytest.fixture(scope="module", params=["redis and celery", "sqlite"])
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("uptime")
    if request.param == "sqlite":
        yield Stage(settings_in(folder, time_scale=SCALE))
        return
    broker = request.getfixturevalue("redis_server").create_database()
    with Redis() as server:  # of its own: it is killed
        settings = settings_in(
            folder,
            sequences=server.create_database(),
            celery_broker=broker,
            time_scale=SCALE,
            patience=timedelta(seconds=10) * SCALE,
        )
        log = folder / "celery.log"
        with celery_worker(settings, log):
            yield Stage(settings, server, log)


@pytest.fixture
async def door(stage: Stage, request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    door = Door(stage, request.node.originalname)
    await door.open()
    yield door
    await door.close()


async def test_normal(door: Door) -> None:
    consumer = await door.consumer()
    assert await door.send(consumer, 0, 1, 2) == [Disposition.APPLIED] * 3
    assert await door.applied() == [0, 1, 2]
    assert await door.missed() == []
    said = await door.explained()
    assert (said["mode"], said["applied"], said["held"]) == ("idle", door.stage.at(2), [])
    await door.has_counted()


async def test_4_01_before_4_00(door: Door) -> None:
    fast, slow = await door.consumer(), await door.consumer()
    done = door.stage.tasks_done()
    assert await door.send(fast, 1) == [Disposition.HELD]
    assert await door.applied() == []
    said = await door.explained()
    assert (said["mode"], said["expected"], said["held"]) == ("waiting", door.stage.at(0), [1])
    assert await door.send(slow, 0) == [Disposition.APPLIED]
    assert await door.applied() == [0, 1]
    assert await door.missed() == []
    assert (await door.explained())["mode"] == "idle"
    await door.has_counted(added=1, removed=1, task_scheduled=1, cleared=1)
    await a_task_was_run(door.stage, done)


async def test_breaker(door: Door) -> None:
    consumer = await door.consumer()
    assert await door.send(consumer, 0, *range(2, 11)) == [
        Disposition.APPLIED,
        *[Disposition.HELD] * 9,
    ]
    said = await door.explained()
    assert said["held"] == [*range(2, 11)]
    assert await door.missed() == []
    await door.send(consumer, 11)
    assert await door.applied() == [0, *range(2, 12)]
    assert await door.missed() == [1]
    await door.has_counted(added=10, removed=10, task_scheduled=1, cleared=1, circuit_breaker=1)
    assert await door.made_up() == 1


async def test_timeout(door: Door) -> None:
    consumer = await door.consumer()
    done = door.stage.tasks_done()
    assert await door.send(consumer, 0, 3) == [Disposition.APPLIED, Disposition.HELD]
    said = await door.explained()
    assert [(gap["first"], gap["count"]) for gap in said["missing"]] == [(door.stage.at(1), 2)]
    await until(door.applied, [0, 3])
    assert await door.missed() == [1, 2]
    await door.has_counted(added=1, removed=1, task_scheduled=1, cleared=1, timeout=1)
    assert await door.made_up() == 2
    assert await door.counted(metrics.RESCHEDULING) > 1
    if door.stage.log is not None:
        assert door.tally.get(metrics.TIMEOUT) == door.tally.get(metrics.RESCHEDULING) == 0
        await a_task_was_run(door.stage, done + 1)
    assert await door.send(consumer, 1) == [Disposition.APPLIED]  # it was only very late
    assert await door.missed() == [2]
    assert await door.counted(metrics.RETRACTED) == 1


async def test_buffering_mode(door: Door) -> None:
    one, other = await door.consumer(), await door.consumer()
    assert await door.send(one, 0, 2) == [Disposition.APPLIED, Disposition.HELD]
    assert await door.send(other, 3) == [Disposition.HELD]
    assert await door.send(one, 4) == [Disposition.HELD]
    assert (await door.explained())["held"] == [2, 3, 4]
    assert await door.applied() == [0]
    assert await door.send(other, 1) == [Disposition.APPLIED]
    assert await door.applied() == [0, 1, 2, 3, 4]
    assert await door.missed() == []
    await door.has_counted(added=3, removed=3, task_scheduled=1, cleared=1)


async def test_deleted_subscription(door: Door) -> None:
    consumer = await door.consumer()
    await door.send(consumer, 0, 2, 3)
    assert await door.holders() == [door.key]
    await consumer.store.change(door.key, MonitorChange(delete=True))
    await until(door.holders, [])
    assert await door.send(consumer, 1) == [Drop.SUBSCRIPTION_NOT_FOUND]
    assert await door.applied() == [0]
    assert await door.missed() == []
    await door.has_counted(added=2, removed=2, task_scheduled=1)
    dropped = {"reason": Drop.SUBSCRIPTION_NOT_FOUND.value}
    assert door.tally.get(metrics.DROPPED, dropped) == 1


@pytest.mark.parametrize("stage", ["redis and celery"], indirect=True)
async def test_redis_failure(door: Door) -> None:
    consumer, server = await door.consumer(), door.stage.redis
    assert server is not None
    assert await door.send(consumer, 0, 2) == [Disposition.APPLIED, Disposition.HELD]
    server.kill()
    try:
        assert await door.send(consumer, 3) == [Disposition.PASSED]
        assert await door.missed() == [1, 2]  # as if the order was not kept
    finally:
        server.start()
    await until(lambda: door.is_back(consumer), expected=True)
    assert await door.send(consumer, 1, 4) == [Disposition.APPLIED] * 2
    assert await door.counted(metrics.PASSED) == 1
    await until(lambda: door.counted(metrics.RETRACTED), 2)
    assert await door.missed() == []
    # The worker of Celery has found its way back too.
    before = await door.applied()
    await door.send(consumer, 6)
    await until(door.applied, [*before, 6])
    assert await door.missed() == [5]
    assert sorted(before) == [*range(5)]
    # If Redis was away for long, the wait for 4:01 was over too.
    given_up = door.stage.said(f" {door.key}: the wait for a missing result is over")
    await until(lambda: door.counted(metrics.TIMEOUT), given_up)


async def test_scheduling_race(door: Door) -> None:
    """Results are held at the very moment at which another worker clears the backlog."""
    one, other = await door.consumer(), await door.consumer()
    keys = [f"{door.key}-{number}" for number in range(20)]
    for key in keys:
        await door.subscribe(key)
    await one.handle_results([door.check(0, key) for key in keys])
    await asyncio.gather(*(_held_by_both(door, one, other, key) for key in keys))
    assert await door.counted(metrics.TASK_SCHEDULED) == len(keys)  # one of two workers each
    await asyncio.gather(
        *(one.handle_result(door.check(1, key)) for key in keys),
        *(other.handle_result(door.check(5, key)) for key in keys),
    )
    await asyncio.gather(one.backlog.scheduled(), other.backlog.scheduled())
    # One that was forgotten would wait for ever.
    await until(door.holders, [])
    for key in keys:
        assert await door.applied(key) == [0, 1, 2, 3, 5]
        assert await door.missed(key) == [4]
    scheduled = await door.counted(metrics.TASK_SCHEDULED)
    assert len(keys) <= scheduled <= 2 * len(keys)
    await until(lambda: door.counted(metrics.TIMEOUT), len(keys))
    assert await door.counted(metrics.ADDED) == await door.counted(metrics.REMOVED)


async def _held_by_both(door: Door, one: ResultProcessor, other: ResultProcessor, key: str) -> None:
    await asyncio.gather(
        one.handle_result(door.check(2, key)), other.handle_result(door.check(3, key))
    )
    await asyncio.gather(one.backlog.scheduled(), other.backlog.scheduled())


async def a_task_was_run(stage: Stage, before: int) -> None:
    """Wait for the task that was scheduled, where there is a worker for it."""
    if stage.log is None:
        return

    async def is_done() -> bool:
        return stage.tasks_done() > before

    await until(is_done, expected=True)


async def test_ttl_on_redis_with_celery_on_rabbitmq(
    tmp_path: Path, redis_database: str, rabbitmq_vhost: str
) -> None:
    settings = settings_in(
        tmp_path,
        sequences=redis_database,
        celery_broker=rabbitmq_vhost,
        time_scale=HOUR_IN_FIVE_SECONDS,
    )
    door = Door(Stage(settings, interval=timedelta(minutes=12)), "s1")
    await door.open()
    consumer = await door.consumer(looks=False)
    assert await door.send(consumer, 0, 2, 4) == [Disposition.APPLIED, *[Disposition.HELD] * 2]
    # No worker runs for as long as they may be held.
    await asyncio.sleep(settings.order().hold_at_most.total_seconds())
    assert (await door.explained())["held"] == [2, 4]
    with celery_worker(settings, tmp_path / "celery.log"):
        # Both gaps at once: a wait of its own for the second would be another timeout.
        await until(door.applied, [0, 2, 4])
        assert await door.missed() == [1, 3]
        await door.has_counted(added=2, removed=2, task_scheduled=1, cleared=1, timeout=1)
        await door.close()
    assert "Traceback" not in (tmp_path / "celery.log").read_text()
