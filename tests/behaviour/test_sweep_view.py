"""What sweeps show, on the memory engine and a clock that stands still."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from headway import Lifecycle, Service
from headway.core.sweep_totals import GROUP, RUNS, key
from headway.facts import CollectionSwept, Status, SweepEnded
from headway.runtime.sweep_view import PUSHING, SweepView
from headway.testing.ports import SweepFigures, Sweeping, SweepRule, Tally, instant
from headway.testing.trial import Trial

RULES = [SweepRule(lifecycle=Lifecycle(name)) for name in ("messages", "chunks")]
HOUR = timedelta(hours=1)
RUN = key(RUNS, status=Status.SUCCESS)


class Board:
    """A gateway that keeps what it gets, some time after it was sent."""

    def __init__(self, trial: Trial, takes: timedelta = timedelta()) -> None:
        self._clock = trial.clock
        self._takes = takes
        self.shown: list[SweepFigures] = []
        self.is_away = False

    def __str__(self) -> str:
        return "the board"

    async def push(self, figures: SweepFigures) -> None:
        await self._clock.wait(self._takes)
        if self.is_away:
            raise ConnectionRefusedError("nobody at home, token=s3cret")
        self.shown.append(figures)

    @property
    def runs(self) -> list[float | None]:
        return [None if one.totals is None else one.totals.get(RUN) for one in self.shown]


class Bench:
    def __init__(self) -> None:
        self.trial = Trial(Service("any"))
        assert self.trial.engine.sweeping is not None
        self.sweeping = self.trial.engine.sweeping
        self.board = Board(self.trial)

    def view(self, sweeping: Sweeping | None = None) -> SweepView:
        trial = self.trial
        return SweepView(sweeping or self.sweeping, RULES, trial.clock, trial.chance)

    def ended(self) -> SweepEnded:
        return SweepEnded(
            status=Status.SUCCESS,
            ended=self.trial.clock.now(),
            elapsed=HOUR,
            collections=(
                CollectionSwept(
                    collection="messages", held_back=3, tally=Tally(stuck=3, given_up=0)
                ),
            ),
        )

    async def count_a_run(self) -> None:
        await self.sweeping.totals.add(GROUP, {RUN: 1})


@pytest.fixture
def bench() -> Bench:
    return Bench()


class Away:
    """A store of which nothing can be had."""

    async def add(self, *_: object) -> Mapping[str, float]:
        raise ConnectionError("password=s3cret is not accepted")

    async def tally(self, *_: object) -> Tally:
        raise ConnectionError("lost")

    async def hold(self, *_: object) -> bool:
        raise ConnectionError("lost")

    async def let_go(self, *_: object) -> None:
        raise ConnectionError("lost")

    async def held(self, *_: object) -> Sequence[str]:
        raise ConnectionError("lost")


def without(sweeping: Sweeping, **parts: Any) -> Sweeping:
    """Give a store of which some parts are others."""
    return replace(sweeping, **parts)


async def test_it_counts_what_is_stuck_now_and_what_was_ever_added_up(bench: Bench) -> None:
    made = instant(bench.trial.clock.now() - 30 * HOUR)
    stuck = {"status": "pending", "attemptCount": 1, "lastAttemptTime": made}
    await bench.trial.put("messages", {"_id": "m1", **stuck}, {"_id": "m2", **stuck})
    await bench.trial.put("chunks", {"_id": "c1", "status": "failed_max_retries"})
    await bench.count_a_run()
    found = await bench.view().look()
    assert found.tallies["messages"] == Tally(
        stuck=2, given_up=0, oldest=bench.trial.clock.now() - 30 * HOUR
    )
    assert found.tallies["chunks"] == Tally(stuck=0, given_up=1)
    assert found.totals is not None
    assert found.totals[RUN] == 1
    assert found.database_up
    assert (found.last_run, found.held_back) == (None, {})


async def test_a_run_of_this_process_is_remembered_for_three_intervals(bench: Bench) -> None:
    view, now = bench.view(), bench.trial.clock.now()
    view.tell(bench.ended())
    found = await view.look()
    assert found.last_run == view.last_run == now
    assert found.held_back == {"messages": 3, "chunks": None}
    bench.trial.clock.advance(timedelta(minutes=46))
    found = await view.look()
    assert found.last_run == now  # how old it is can be seen
    assert found.held_back == {}  # others may lead by now


async def test_one_collection_that_cannot_be_counted_hides_no_other(bench: Bench) -> None:
    real = bench.sweeping.candidates

    class Half:
        async def tally(self, rule: SweepRule, now: datetime) -> Tally:
            if rule.collection == "messages":
                raise RuntimeError("broken index")
            return await real.tally(rule, now)

    found = await bench.view(without(bench.sweeping, candidates=Half())).look()
    assert found.tallies["messages"] is None
    assert found.tallies["chunks"] == Tally(stuck=0, given_up=0)
    assert found.totals is not None
    assert not found.database_up


async def test_a_store_that_is_away_is_said_once_for_each_outage_and_without_secrets(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Away()
    sweeping = without(bench.sweeping, totals=gone)
    view = bench.view(sweeping)
    with caplog.at_level(logging.WARNING, "headway"):
        for _ in range(2):
            found = await view.look()
            assert not found.database_up
            assert found.totals is None
            assert set(found.tallies.values()) == {None}
    (line,) = caplog.messages
    assert line.startswith("The store could not be asked what is stuck (ConnectionError: ")
    assert "s3cret" not in line


async def test_what_was_scraped_stays_while_the_store_is_away_and_is_not_pushed(
    bench: Bench,
) -> None:
    class Moody:
        is_away = False

        async def add(self, *given: Any) -> Mapping[str, float]:
            if self.is_away:
                raise ConnectionError("lost")
            return await bench.sweeping.totals.add(*given)

    moody = Moody()
    view = bench.view(without(bench.sweeping, totals=moody))
    moody.is_away = True
    assert (await view.answer(HOUR)).last_totals is None, "nobody knows, and nobody guesses"
    view.tell(replace(bench.ended(), totals={RUN: 1}))
    assert (await view.answer(HOUR)).last_totals == {RUN: 1}, "a run was told"
    moody.is_away = False
    for _ in range(3):
        await bench.count_a_run()
    found = await view.answer(HOUR)
    assert (found.totals, found.last_totals) == ({RUN: 3}, None)
    moody.is_away = True
    for found in (await view.answer(HOUR), view.answer_at_once()):
        assert (found.totals, found.last_totals) == (None, {RUN: 3})
        assert not found.database_up
        assert set(found.tallies.values()) == {None}
    await view.push(bench.board)
    (pushed,) = bench.board.shown
    assert (pushed.totals, pushed.last_totals) == (None, None), "others may have pushed more"


async def test_a_store_that_does_not_answer_is_not_waited_for(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    class Silent:
        async def add(self, *_: object) -> Mapping[str, float]:
            await asyncio.Event().wait()
            return {}

    found = await bench.view(without(bench.sweeping, totals=Silent())).look(
        timedelta(milliseconds=20)
    )
    assert not found.database_up
    assert "(TimeoutError: no answer in time)" in caplog.text


async def test_what_other_processes_added_is_pushed_too(bench: Bench) -> None:
    for _ in range(3):
        await bench.count_a_run()
        await bench.view().push(bench.board)  # each time another process
    assert bench.board.runs == [1, 2, 3]


async def test_of_two_that_push_at_once_neither_pushes_less_than_was_seen(bench: Bench) -> None:
    slow, quick = Board(bench.trial, timedelta(seconds=5)), bench.board
    slow.shown = quick.shown
    await bench.count_a_run()

    async def second() -> None:
        await bench.trial.clock.wait(timedelta(seconds=1))
        await bench.count_a_run()
        await bench.view().push(quick)

    await asyncio.gather(bench.view().push(slow), second())
    assert quick.runs == [1, 2]


async def test_whoever_gets_no_turn_says_so_and_pushes_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    assert await bench.sweeping.leases.hold(PUSHING, "somebody", HOUR)
    with caplog.at_level(logging.WARNING, "headway"):
        await bench.view().push(bench.board)
    assert bench.board.shown == []
    assert "the board got nothing after this sweep" in caplog.text


async def test_a_push_leaves_the_turn_to_others_also_if_it_failed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.board.is_away = True
    with caplog.at_level(logging.WARNING, "headway"):
        await bench.view().push(bench.board)
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("the board did not take the metrics of this sweep (nobody")
    assert "s3cret" not in line.getMessage()
    assert await bench.sweeping.leases.hold(PUSHING, "somebody else", HOUR)


async def test_without_a_store_it_is_pushed_that_nothing_is_known(bench: Bench) -> None:
    gone = Away()
    view = bench.view(without(bench.sweeping, candidates=gone, leases=gone, totals=gone))
    view.tell(bench.ended())
    await view.push(bench.board)
    (pushed,) = bench.board.shown
    assert pushed.totals is None
    assert pushed.tallies == {"messages": None, "chunks": None}
    assert not pushed.database_up
    assert pushed.last_run == bench.trial.clock.now()  # a run did end


async def test_the_first_push_brings_totals_and_counts_nothing(bench: Bench) -> None:
    await bench.view(without(bench.sweeping, candidates=Away())).begin(bench.board)
    (pushed,) = bench.board.shown
    assert pushed.totals == {}
    assert pushed.collections == ("messages", "chunks")
    assert (pushed.tallies, pushed.held_back, pushed.last_run) == ({}, {}, None)
    assert pushed.database_up
