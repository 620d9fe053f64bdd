"""What sweeps show: counters that never fall, and nothing that the store did not say."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headway import Lifecycle
from headway.runtime.sweep_view import SweepView
from headway.testing.ports import SweepFigures, SweepRule, Tally
from tests.behaviour.sweeps import HOUR, Spied, Yard, sweeping_of

RULES = [SweepRule(lifecycle=Lifecycle(name)) for name in ("messages", "chunks")]
RUN = "retry_job_runs_total|status=success"


class Gateway:
    """A gateway that keeps what it gets, some time after it was sent."""

    def __init__(self, yard: Yard) -> None:
        self._clock = yard.clock
        self.takes: list[timedelta] = []
        self.shown: list[SweepFigures] = []

    async def push(self, figures: SweepFigures) -> None:
        if self.takes:
            await self._clock.wait(self.takes.pop(0))
        self.shown.append(figures)


def view(yard: Yard, **totals: Any) -> SweepView:
    """Give the view of one process."""
    sweeping = sweeping_of(yard.engine)
    spied: Any = Spied(sweeping.totals, **totals)
    return SweepView(replace(sweeping, totals=spied), RULES, yard.clock, yard.chance)


async def count_a_run(yard: Yard) -> None:
    await sweeping_of(yard.engine).totals.add("retry_job", {RUN: 1})


async def test_what_was_shown_stays_while_the_store_is_unavailable_and_is_not_pushed(
    quick: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = True

    async def add(*given: Any) -> Mapping[str, float]:
        if is_away:
            raise ConnectionError("password=s3cret")
        return await sweeping_of(quick.engine).totals.add(*given)

    shown, gateway = view(quick, add=add), Gateway(quick)
    assert (await shown.answer(HOUR)).last_totals is None, "it is unknown, and not guessed"
    is_away = False
    for _ in range(3):
        await count_a_run(quick)
    found = await shown.answer(HOUR)
    assert (found.totals, found.last_totals) == ({RUN: 3}, None)
    assert set(found.tallies.values()) == {Tally(stuck=0, given_up=0)}
    is_away = True
    for found in (await shown.answer(HOUR), shown.answer_at_once()):
        assert (found.totals, found.last_totals) == (None, {RUN: 3})
        assert (found.database_up, set(found.tallies.values())) == (False, {None})
    await shown.push(gateway)
    (pushed,) = gateway.shown
    assert (pushed.totals, pushed.last_totals) == (None, None), "others may have pushed more"
    assert [each.levelno for each in caplog.records] == [logging.WARNING] * 2, "once an outage"
    assert "s3cret" not in caplog.text


async def test_of_two_that_push_at_once_neither_pushes_less_than_was_seen(quick: Yard) -> None:
    gateway = Gateway(quick)
    await view(quick).begin(gateway)
    gateway.takes = [timedelta(seconds=5)]
    await count_a_run(quick)

    async def second() -> None:
        await quick.clock.wait(timedelta(seconds=1))
        await count_a_run(quick)
        await view(quick).push(gateway)

    await asyncio.gather(view(quick).push(gateway), second())
    assert [each.totals for each in gateway.shown] == [{}, {RUN: 1}, {RUN: 2}]
    assert (gateway.shown[0].tallies, gateway.shown[0].last_run) == ({}, None), "nothing counted"
