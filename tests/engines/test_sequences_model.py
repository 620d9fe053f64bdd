"""One random history through memory, SQLite and Redis: all of them answer the same."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headway.order import OnGap, OnLate, SequenceSettings, Turn
from headway.testing.clock import VirtualClock
from headway.testing.engines import MemorySequences, redis_sequences, sqlite_sequences
from headway.testing.ports import Completion, Look, Offer, SequenceEngine
from headway.testing.servers import Redis

SECOND = timedelta(seconds=1)
QUICK = SequenceSettings(
    schedule=(SECOND, 2 * SECOND, 3 * SECOND),
    breaker=3,
    breaker_at_most=6,
    lease=4 * SECOND,
    gap_at_most=20 * SECOND,
    hold_at_most=40 * SECOND,
    remember=60 * SECOND,
)
POLICIES = (
    QUICK,
    QUICK,
    replace(QUICK, on_late=OnLate.DROP),
    replace(QUICK, on_gap=OnGap.SKIP, on_late=OnLate.DROP),
    replace(QUICK, on_gap=OnGap.PARK),
)
KEYS = ("a", "b")
keys = st.sampled_from(KEYS)
near = st.integers(0, 14)
sometimes_behind = st.none() | st.integers(0, 30)
ways = st.fixed_dictionaries(
    {
        "step": st.sampled_from((1, 1, 1, 2)),
        "begins": st.sampled_from((0, 0, 0, 5)),
        "applied": st.sampled_from((None, None, None, None, 2, 7)),
        "behind": sometimes_behind,
        "payload": st.sampled_from((None, b"beat", b"beat")),  # None: one that is like no other
    }
)


class World:
    """Where the engines live; one for all histories."""

    def __init__(self, folder: Path, redis: str) -> None:
        self.folder = folder
        self.redis = redis
        self.loop = asyncio.new_event_loop()
        self.histories = 0

    def run(self, coroutine: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(coroutine)


class History(RuleBasedStateMachine):
    world: World

    @initialize(policy=st.sampled_from(POLICIES))
    def begin(self, policy: SequenceSettings) -> None:
        self.world.histories += 1
        name = f"h{self.world.histories}"
        self.clock = VirtualClock()
        path = self.world.folder / "headway.db"
        self.engines: list[SequenceEngine] = [
            MemorySequences(self.clock, policy),
            sqlite_sequences(path, self.clock, policy, family=name, synchronous="off"),
            redis_sequences(self.world.redis, policy, prefix=name, clock=self.clock),
        ]
        self.tokens = 0
        self.works: list[Offer] = []
        self.offers: list[Offer] = []
        self.looks: list[Look] = []
        self.applied: dict[str, list[int]] = {key: [] for key in KEYS}
        self.given_up: dict[str, set[int]] = {key: set() for key in KEYS}

    def teardown(self) -> None:
        for engine in getattr(self, "engines", ()):
            self.world.run(engine.close())

    # What happens

    @rule(key=keys, position=near, how=ways)
    def offer(self, key: str, position: int, how: dict[str, Any]) -> None:
        behind = how["behind"]
        payload = how["payload"] or f"{key}{position} {self.tokens}".encode()
        more = {name: how[name] for name in ("step", "begins", "applied")}
        caught_up = None if behind is None else self.now - behind * SECOND
        self.offer_it(Offer(key, position, payload, self.token(), caught_up=caught_up, **more))

    @rule(key=keys, ahead=st.integers(1, 3), own=st.booleans())
    def offer_next(self, key: str, ahead: int, *, own: bool) -> None:
        marker = max(self.state(key).marker or 0, 0)  # before a first one at 0 it is below
        payload = b"%d \xff" % (marker + ahead) if own else b""
        self.offer_it(Offer(key, marker + ahead, payload, self.token()))

    @precondition(lambda self: self.offers)
    @rule(which=st.integers(0, 9))
    def offer_again(self, which: int) -> None:
        self.offer_it(self.offers[-1 - which % len(self.offers)])

    def offer_it(self, offer: Offer) -> None:
        self.offers.append(offer)
        (answer,) = self.ask(lambda engine: engine.offer([offer]))
        self.took(answer.work)

    @precondition(lambda self: self.works)
    @rule(which=st.integers(0, 3))
    def complete(self, which: int) -> None:
        work = self.works[-1 - which % len(self.works)]
        before = self.state(work.key)
        done = Completion(work.key, work.position, work.token)
        (answer,) = self.ask(lambda engine: engine.complete([done]))
        self.took(answer.work)
        mine = before.flight and before.flight.position == work.position
        if answer.accepted and mine and not before.is_applied(work.position):
            assert all(earlier < work.position for earlier in self.applied[work.key])
            self.applied[work.key].append(work.position)

    @rule(key=keys, behind=sometimes_behind)
    def look(self, key: str, behind: int | None) -> None:
        caught_up = None if behind is None else self.now - behind * SECOND
        look = Look(key, self.token(), caught_up)
        self.look_it(look)

    @precondition(lambda self: self.looks)
    @rule()
    def look_again(self) -> None:
        self.look_it(self.looks[-1])

    def look_it(self, look: Look) -> None:
        self.looks.append(look)
        before = self.state(look.key)
        (answer,) = self.ask(lambda engine: engine.look([look]))
        if before.flight and before.flight.token != look.token and before.is_live(self.now):
            assert answer.work is None
        self.took(answer.work)

    @rule(limit=st.integers(1, 2))
    def due(self, limit: int) -> None:
        self.ask(lambda engine: engine.due(limit))

    @precondition(lambda self: self.works)
    @rule(which=st.integers(0, 2), delay=st.sampled_from((None, None, timedelta(), SECOND)))
    def give_back(self, which: int, delay: timedelta | None) -> None:
        work = self.works[-1 - which % len(self.works)]
        self.ask(lambda engine: engine.give_back(work, delay))

    @precondition(lambda self: self.works)
    @rule(which=st.integers(0, 2))
    def renew(self, which: int) -> None:
        work = self.works[-1 - which % len(self.works)]
        turn = Turn(work.key, work.position, work.payload, work.token)
        self.ask(lambda engine: engine.renew(turn))

    @rule(key=keys, draw=st.integers(0, 9))
    def operate(self, key: str, draw: int) -> None:
        if draw == 0:
            self.applied[key].clear()
            self.given_up[key].clear()
            self.ask(lambda engine: engine.forget(key))
        elif draw == 1:
            self.ask(lambda engine: engine.drain(key))

    @rule(key=keys, ahead=st.integers(2, 4), back=st.integers(1, 3), soon=st.booleans())
    def vanish_over_a_gap(self, key: str, ahead: int, back: int, *, soon: bool) -> None:
        """A gap is given up, its worker vanishes, and then what was missing comes."""
        ends = max(self.state(key).marker or 0, 0) + ahead
        self.offer_it(Offer(key, ends, b"behind", self.token()))
        self.pass_time(41_000)  # nothing is waited for any longer than that
        self.look_it(Look(key, self.token()))
        missing = Offer(key, max(ends - back, 0), b"missing", self.token())
        if soon:
            self.offer_it(missing)
        self.pass_time(4_000)
        self.offer_it(missing)

    @rule(milliseconds=st.sampled_from((1, 999, 1000, 2000, 3000, 4000, 10_000, 41_000)))
    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(timedelta(milliseconds=milliseconds))

    # What is compared

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def token(self) -> str:
        self.tokens += 1
        return f"t{self.tokens}"

    def state(self, key: str) -> Any:
        return self.world.run(self.engines[0].read(key)).state

    def took(self, work: Turn | None) -> None:
        if work is not None:
            # What was handed out as given up is never an ordinary result any more.
            assert work.late or work.position not in self.given_up[work.key]
            if work.gap is not None:
                self.given_up[work.key].update(work.gap.positions())
            self.works.append(Offer(work.key, work.position, work.payload, work.token))

    def ask(self, call: Callable[[SequenceEngine], Awaitable[Any]]) -> Any:
        """Ask all engines; their answers and what they keep must be the same."""
        answer = self.same(call)
        self.same(lambda engine: engine.waiting(9))
        for key in KEYS:
            self.same(lambda engine: engine.held(key, 99))  # noqa: B023 (called at once)
            states = [self.world.run(engine.read(key)).state for engine in self.engines]
            assert states == states[:1] * len(states)
        return answer

    def same(self, call: Callable[[SequenceEngine], Awaitable[Any]]) -> Any:
        first, *others = [self.world.run(call(engine)) for engine in self.engines]
        if isinstance(first, Sequence) and not isinstance(first, tuple):
            first, others = list(first), [list(each) for each in others]
        for engine, answer in zip(self.engines[1:], others, strict=True):
            assert answer == first, type(engine).__name__
        return first


@pytest.fixture
def world(tmp_path: Path, redis_server: Redis) -> Iterator[World]:
    world = World(tmp_path, redis_server.create_database())
    yield world
    world.loop.close()


@pytest.mark.server("redis")
@pytest.mark.parametrize("few", [0, 2])
def test_all_engines_answer_the_same(
    world: World, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite reads only some of the held results, if there are more than a few."""
    monkeypatch.setattr("headway.adapters.sqlite.sequence_rows.FEW", few)
    machine = type("HistoryHere", (History,), {"world": world})
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=40,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # shrinking would take minutes: the history is short as it is
            suppress_health_check=checks,
        ),
    )
