"""A sweeper that met a store or bus which was away tries again soon, and not at every moment."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest

from headway.facts import Status, SweepEnded
from headway.testing.ports import Engine
from tests.behaviour.sweeps import MINUTE, Yard, chunking, with_bus
from tests.behaviour.test_sweeper_faults import Away, lost


async def runs(yard: Yard, engine: Engine, back: timedelta, away: Any, **settings: Any) -> Any:
    """Let a sweeper run until somebody is back and it has swept; give its runs."""
    sweeper = yard.sweeper(chunking(), engine=engine, interval=15 * MINUTE, **settings)
    began = yard.now
    running = asyncio.create_task(sweeper.run())
    while yard.now - began < back:
        await yard.clock.wait(timedelta(seconds=1))
    away.is_back = True
    while not any(each.status is Status.SUCCESS for each in yard.facts.of(SweepEnded)):
        await yard.clock.wait(timedelta(seconds=1))
    sweeper.stop()
    await running
    return began, yard.facts.of(SweepEnded)


@pytest.mark.parametrize("leader", [True, False])
async def test_a_store_that_restarts_is_swept_when_it_answers(quick: Yard, *, leader: bool) -> None:
    await quick.put("messages", lost())
    away = Away(quick.engine)
    began, ended = await runs(quick, away.engine, 20 * timedelta(seconds=1), away, leader=leader)
    assert [each.status for each in ended] == [Status.FAILURE, Status.SUCCESS]  # no run between
    assert ended[-1].ended - began < timedelta(seconds=25)
    assert ended[-1].collections[0].requeued == 1


async def test_a_store_that_stays_away_is_said_once_in_an_interval(quick: Yard) -> None:
    away = Away(quick.engine)
    _, ended = await runs(quick, away.engine, 40 * MINUTE, away, leader=False)
    assert len(ended) == 4


async def test_a_bus_that_is_away_is_tried_with_growing_pauses(quick: Yard) -> None:
    class Bus:
        is_back = False
        tries: ClassVar[list[datetime]] = []

    async def open_bus(queues: Any, on_routed: Any = None) -> None:
        Bus.tries.append(quick.now)
        if not Bus.is_back:
            raise ConnectionRefusedError("nobody is there")
        await quick.engine.bus.open(queues)

    engine = with_bus(quick.engine, open=open_bus)
    _, ended = await runs(quick, engine, 10 * MINUTE, Bus, leader=False)
    waits = [b - a for a, b in zip(Bus.tries, Bus.tries[1:], strict=False)]
    assert waits[:6] == [timedelta(seconds=n) for n in (1, 2, 4, 8, 16, 32)]
    assert max(waits) == MINUTE
    assert ended[-1].status is Status.SUCCESS
