"""Results out of order, while workers, Celery and Redis are killed: the same after retractions."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.testing.servers import Redis
from tests.chaos.order_record import assert_exact, figures_of, seen_in
from tests.chaos.ordering import (
    FULL,
    REDUCED,
    Crew,
    DurableRedis,
    Load,
    Victim,
    kafka_cluster,
    run,
)
from tests.systems.uptime.crowds import settings_in

Record = Callable[[str, object], None]

EVERYBODY: list[Victim] = ["worker", "consumer", "celery", "redis"]
# A consumer that is killed keeps its partitions from the next one for six seconds.
OFTEN = [4.0, 1.0, 2.0, 2.0]

pytestmark = [pytest.mark.chaos, pytest.mark.server("redis"), pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("load", "kills"),
    [
        pytest.param(REDUCED, 6, id="reduced"),
        pytest.param(FULL, 15, id="full", marks=pytest.mark.timeout(1500)),
    ],
)
async def test_the_same_after_retractions_when_workers_celery_and_redis_are_killed(
    load: Load, kills: int, tmp_path: Path, record_property: Record
) -> None:
    with kafka_cluster() as servers, DurableRedis() as redis:
        settings = settings_in(
            tmp_path,
            sequences=redis.create_database(),
            celery_broker=redis.create_database(),
            kafka_servers=servers,
            time_scale=load.time_scale,
        )
        crew = await run(
            load,
            settings,
            tmp_path,
            hardship=lambda crew: kill_at_random(crew, redis, kills),
            patience=240,
        )
    seen = seen_in(tmp_path)
    assert_exact(load, seen)
    assert set(crew.killed) == set(EVERYBODY)
    # A process that is lost ends no consumer: it begins anew by itself. Celery ends now and then
    # when its broker is away, and is started again as by any supervisor.
    assert "consumer" not in crew.replaced
    killed = ", ".join(f"{name} {number} times" for name, number in sorted(crew.killed.items()))
    record_property(
        "shown",
        f"{load.results} results of {load.subscriptions} subscriptions, killed at random: "
        f"{killed}: every key in order, none applied twice; all {len(seen.standing)} true misses "
        f"found, 0 false ones left, {len(seen.retracted)} made up and taken back; "
        f"{figures_of(tmp_path, load, seen)}",
    )


async def kill_at_random(crew: Crew, redis: Redis, kills: int) -> None:
    """Kill each of them at least once, over the time in which results come."""
    chance = random.Random(kills)
    rest = chance.choices(EVERYBODY, weights=OFTEN, k=kills - len(EVERYBODY))
    victims = chance.sample(EVERYBODY + rest, k=kills)
    pause = crew.load.interval * crew.load.minutes / (kills + 1)
    for victim in victims:
        await asyncio.sleep(pause * chance.uniform(0.5, 1.5))
        async with asyncio.timeout(60):
            while not crew.kill(victim, redis, chance):  # noqa: ASYNC110 (of another process)
                await asyncio.sleep(0.2)
