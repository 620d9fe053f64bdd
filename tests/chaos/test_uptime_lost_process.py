"""A consumer whose pool lost a process notices that, and begins anew at the last commit."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos.order_record import assert_exact, seen_in
from tests.chaos.ordering import Crew, Load, kafka_cluster, run
from tests.systems.uptime.crowds import settings_in

pytestmark = pytest.mark.timeout(120)

ONE_PROCESS = Load(subscriptions=5, minutes=5, time_scale=0.02, processes=1)


async def test_a_process_that_is_killed_while_it_waits_for_a_batch_stops_nothing(
    tmp_path: Path,
) -> None:
    with kafka_cluster() as servers:
        settings = settings_in(tmp_path, kafka_servers=servers, time_scale=ONE_PROCESS.time_scale)
        crew = await run(ONE_PROCESS, settings, tmp_path, hardship=kill_one, patience=60)
    said = (tmp_path / "consumer.log").read_text()
    assert_exact(ONE_PROCESS, seen_in(tmp_path))
    assert "of the pool ended by itself (exit code -9)" in said
    assert "it begins anew" in said
    assert not crew.replaced


async def kill_one(crew: Crew) -> None:
    # Time to come back from its first batch; the next one is cut after twice as long.
    await asyncio.sleep(ONE_PROCESS.interval / ONE_PROCESS.batches_in_interval / 2)
    assert crew.kill("worker", None, random.Random(1))
