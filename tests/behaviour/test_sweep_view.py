"""What sweeps show, on the memory engine and a clock that stands still."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from headway import Lifecycle
from headway.facts import CollectionSwept, Status, SweepEnded
from headway.runtime.sweep_view import PUSHING, SweepView
from headway.testing.ports import SweepFigures, SweepRule, Tally
from tests.behaviour.sweeps import HOUR, Spied, Yard, sweeping_of

RULES = [SweepRule(lifecycle=Lifecycle(name)) for name in ("messages", "chunks")]
RUN = "retry_job_runs_total|status=success"


class Gateway:
    """A gateway that keeps what it gets, some time after it was sent."""

    def __init__(self, yard: Yard, takes: timedelta = timedelta()) -> None:
        self._clock = yard.clock
        self._takes = takes
        self.shown: list[SweepFigures] = []
        self.is_away = False

    async def push(self, figures: SweepFigures) -> None:
        await self._clock.wait(self._takes)
        if self.is_away:
            raise ConnectionRefusedError("no answer, token=s3cret")
        self.shown.append(figures)


class Store:
    """The store of a sweeper, of which parts go away."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.away: set[str] = set()
        self.real = sweeping_of(yard.engine)
        self.gateway = Gateway(yard)

    def view(self) -> SweepView:
        """Give the view of one process."""
        parts: dict[str, Any] = {
            "totals": Spied(self.real.totals, add=self._add),
            "candidates": Spied(self.real.candidates, tally=self._tally),
            "leases": Spied(self.real.leases, hold=self._hold),
        }
        return SweepView(replace(self.real, **parts), RULES, self.yard.clock, self.yard.chance)

    def _ask(self, part: str) -> None:
        if part in self.away:
            raise ConnectionError(f"{part}: password=s3cret")

    async def _add(self, *given: Any) -> Mapping[str, float]:
        self._ask("totals")
        if "silent" in self.away:
            await asyncio.Event().wait()
        return await self.real.totals.add(*given)

    async def _tally(self, rule: SweepRule, now: datetime) -> Tally:
        self._ask(rule.collection)
        return await self.real.candidates.tally(rule, now)

    async def _hold(self, *given: Any) -> bool:
        self._ask("leases")
        return await self.real.leases.hold(*given)

    def ended(self) -> SweepEnded:
        swept = CollectionSwept(
            collection="messages", held_back=3, tally=Tally(stuck=3, given_up=0)
        )
        return SweepEnded(
            status=Status.SUCCESS, ended=self.yard.now, elapsed=HOUR, collections=(swept,)
        )

    async def count_a_run(self) -> None:
        await self.real.totals.add("retry_job", {RUN: 1})


@pytest.fixture
def store(quick: Yard) -> Store:
    return Store(quick)


async def test_it_counts_what_is_stuck_and_remembers_a_run_for_three_intervals(
    store: Store,
) -> None:
    yard, view = store.yard, store.view()
    stuck = {"status": "pending", "attemptCount": 1, "lastAttemptTime": yard.ago(30 * HOUR)}
    await yard.put("messages", {"_id": "m1", **stuck}, {"_id": "m2", **stuck})
    await yard.put("chunks", {"_id": "c1", "status": "failed_max_retries"})
    await store.count_a_run()
    found = await view.look()
    oldest = yard.now - 30 * HOUR
    assert found.tallies["messages"] == Tally(stuck=2, given_up=0, oldest=oldest)
    assert found.tallies["chunks"] == Tally(stuck=0, given_up=1)
    assert found.totals is not None
    assert (found.totals[RUN], found.database_up) == (1, True)
    assert (found.last_run, found.held_back) == (None, {})
    view.tell(store.ended())
    found, now = await view.look(), yard.now
    assert found.last_run == view.last_run == now
    assert found.held_back == {"messages": 3, "chunks": None}
    yard.clock.advance(timedelta(minutes=46))
    found = await view.look()
    assert found.last_run == now  # how old it is can be seen
    assert found.held_back == {}  # another sweeper may lead by now


async def test_what_the_store_does_not_say_is_unknown_and_logged_once_without_secrets(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    view = store.view()
    store.away = {"messages"}
    for _ in range(2):
        found = await view.look()
        assert (found.tallies["messages"], found.database_up) == (None, False)
        assert found.tallies["chunks"] == Tally(stuck=0, given_up=0)
        assert found.totals is not None
    store.away = {"silent"}
    found = await view.look(timedelta(milliseconds=20))
    assert (found.totals, set(found.tallies.values())) == (None, {None})
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "s3cret" not in caplog.text


async def test_what_was_scraped_stays_while_the_store_is_away_and_is_not_pushed(
    store: Store,
) -> None:
    view, store.away = store.view(), {"totals"}
    assert (await view.answer(HOUR)).last_totals is None, "it is unknown, and not guessed"
    view.tell(replace(store.ended(), totals={RUN: 1}))
    assert (await view.answer(HOUR)).last_totals == {RUN: 1}, "a run was told"
    store.away = set()
    for _ in range(3):
        await store.count_a_run()
    found = await view.answer(HOUR)
    assert (found.totals, found.last_totals) == ({RUN: 3}, None)
    store.away = {"totals"}
    for found in (await view.answer(HOUR), view.answer_at_once()):
        assert (found.totals, found.last_totals) == (None, {RUN: 3})
        assert (found.database_up, set(found.tallies.values())) == (False, {None})
    await view.push(store.gateway)
    (pushed,) = store.gateway.shown
    assert (pushed.totals, pushed.last_totals) == (None, None), "others may have pushed more"


async def test_of_two_that_push_at_once_neither_pushes_less_than_was_seen(store: Store) -> None:
    slow, quick = Gateway(store.yard, timedelta(seconds=5)), store.gateway
    slow.shown = quick.shown
    await store.view().begin(quick)
    await store.count_a_run()

    async def second() -> None:
        await store.yard.clock.wait(timedelta(seconds=1))
        await store.count_a_run()
        await store.view().push(quick)

    await asyncio.gather(store.view().push(slow), second())
    assert [each.totals for each in quick.shown] == [{}, {RUN: 1}, {RUN: 2}]
    assert (quick.shown[0].tallies, quick.shown[0].last_run) == ({}, None), "nothing was counted"


async def test_a_push_that_fails_leaves_the_turn_to_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.gateway.is_away = True
    await store.view().push(store.gateway)
    assert await store.real.leases.hold(PUSHING, "another", HOUR)
    store.gateway.is_away = False
    await store.view().push(store.gateway)
    assert store.gateway.shown == [], "it got no turn"
    assert [each.levelno for each in caplog.records] == [logging.WARNING] * 2
    assert "s3cret" not in caplog.text


async def test_without_a_store_it_is_pushed_that_nothing_is_known(store: Store) -> None:
    store.away, view = {"totals", "messages", "chunks", "leases"}, store.view()
    view.tell(store.ended())
    await view.push(store.gateway)
    (pushed,) = store.gateway.shown
    assert (pushed.totals, pushed.tallies) == (None, {"messages": None, "chunks": None})
    assert (pushed.database_up, pushed.last_run) == (False, store.yard.now)
