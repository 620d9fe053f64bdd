"""One event stops no other, and trouble of the engine ends none."""

import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import pytest
from pymongo.errors import NotPrimaryError, OperationFailure

from headway import Event, Lifecycle, Service, Work
from headway.facts import Fact
from headway.settings import WorkerSettings
from headway.testing.ports import Finish, Outcome
from headway.testing.trial import Trial
from tests.behaviour.scenes import (
    MINUTE,
    SECOND,
    assert_all_is_accounted_for,
    only_letter,
    trial_of,
    until,
    worker_on,
)

OTHERS = [f"o{n}" for n in range(10)]
Raises = Callable[[], Exception]
Fault = Callable[[str, tuple[Any, ...]], Exception | None]


class Faulty:
    """A port whose calls fail as a function of their name and arguments says."""

    def __init__(self, port: Any, fault: Fault, *, afterwards: bool = False) -> None:
        self._port = port
        self._fault = fault
        self._afterwards = afterwards

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._port, name)
        if not callable(inner):
            return inner

        async def call(*args: Any, **kwargs: Any) -> Any:
            error = self._fault(name, args)
            if error is not None and not self._afterwards:
                raise error
            answer = await inner(*args, **kwargs)
            if error is not None:
                raise error
            return answer

        return call


def faulty(fault: Fault, *, afterwards: bool = False) -> Callable[[Any], Faulty]:
    return lambda port: Faulty(port, fault, afterwards=afterwards)


def a_few_times(method: str, times: int) -> Fault:
    left = iter(range(times))

    def fault(name: str, _args: Any) -> Exception | None:
        fails = name == method and next(left, None) is not None
        return ConnectionError("the engine is away") if fails else None

    return fault


def about(method: str, item: str, error: Raises) -> Fault:
    """Fail where the item is among those that are given."""
    return lambda name, args: error() if name == method and item in repr(args) else None


def before(trial: Trial, end: datetime, error: Raises, method: str = "") -> Fault:
    """Fail in every call of one method, or of all, until then."""

    def fault(name: str, _args: Any) -> Exception | None:
        is_meant = name == method if method else name != "close"
        return error() if is_meant and trial.clock.now() < end else None

    return fault


def shop() -> Trial:
    """Two services: one whose events may be trouble, and one that has nothing to do with it."""
    orders, mails = (
        Service("orders", lifecycles=[Lifecycle("orders", lease=MINUTE)]),
        Service("mails"),
    )

    @orders.on(
        "OrderPlaced",
        documents=("orders", "order"),
    )
    async def place(event: Event, work: Work) -> None:
        work.documents("placed").insert_new({"_id": event.data["order"]})

    @mails.on("MailAsked")
    async def mail(event: Event, work: Work) -> None:
        work.documents("mailed").insert_new({"_id": event.data["mail"]})

    return Trial(orders, mails)


async def filled(trial: Trial, *bad: str) -> None:
    """Publish some events of both services, and these orders among them."""
    half = len(OTHERS) // 2
    await trial.put("orders", *({"_id": one} for one in (*OTHERS, "bad")))
    for one in (*OTHERS[:half], *bad, *OTHERS[half:]):
        await trial.publish("OrderPlaced", {"order": one}, event_id=f"{one}-event")
    await trial.publish("MailAsked", {"mail": "m"})


async def names(trial: Trial, collection: str) -> list[str]:
    return sorted(each["_id"] for each in await trial.documents(collection))


async def assert_others_are_done(trial: Trial, *more: str) -> None:
    assert await names(trial, "placed") == sorted((*OTHERS, *more))
    assert await names(trial, "mailed") == ["m"]


# Errors of the store about one event.


@pytest.mark.parametrize(
    "error",
    [
        lambda: RuntimeError("no rule knows this error"),
        lambda: UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
        lambda: OperationFailure("Internal error", 1),
        lambda: asyncpg.InternalServerError("cache lookup failed"),
        lambda: sqlite3.OperationalError("malformed JSON"),
    ],
    ids=lambda make: type(make()).__name__,
)
@pytest.mark.parametrize(
    ("port", "method", "item"),
    [
        ("records", "find", "bad-event"),
        ("documents", "begin", "'bad'"),
        ("finisher", "finish", "'_id': 'bad'"),
    ],
)
async def test_an_error_about_one_event_ends_that_one_and_stops_no_other(
    port: str, method: str, item: str, error: Raises
) -> None:
    trial = shop()
    await filled(trial, "bad")
    async with worker_on(trial, **{port: faulty(about(method, item, error))}):
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
    await assert_others_are_done(trial)
    assert (await only_letter(trial)).error_type == type(error()).__name__
    await assert_all_is_accounted_for(trial)


async def test_an_event_that_is_alone_ends_only_when_the_engine_takes_a_probe() -> None:
    """Without another event, nothing but a probe says that the engine itself is well."""
    trial = shop()
    await trial.publish("OrderPlaced", {"order": "bad"}, event_id="bad-event")
    unwell = before(trial, trial.clock.now() + 2 * MINUTE, lambda: RuntimeError("unknown"), "hold")

    def sweeping(whole: Any) -> Any:
        return replace(whole, leases=Faulty(whole.leases, unwell))

    refusing = faulty(about("find", "bad-event", lambda: RuntimeError("unknown")))
    async with worker_on(trial, records=refusing, sweeping=sweeping):
        await trial.clock.wait(MINUTE)
        assert await trial.letters("orders.failed") == []
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
    assert (await only_letter(trial)).error_type == "RuntimeError"


# Errors that name the engine.


def denied(code: str = "42501") -> Exception:
    error: Exception = asyncpg.PostgresError.new({"C": code, "M": "refused"})
    return error


def full_disk() -> Exception:
    return denied("53100")


def of_sqlite(name: str) -> Exception:
    error = sqlite3.OperationalError("refused")
    error.sqlite_errorname = name
    return error


OF_THE_ENGINE: dict[str, Raises] = {
    **{f"postgres-{code}": lambda code=code: denied(code) for code in (  # type: ignore[misc]
        "28P01", "42501", "25006", "53100", "53200", "53300", "57P01", "08006", "3D000", "58030",
    )},
    **{f"mongodb-{code}": lambda code=code: OperationFailure("refused", code) for code in (  # type: ignore[misc]
        13, 18, 11, 14031, 10107, 13435, 189, 91, 50, 146,
    )},
    **{name: lambda name=name: of_sqlite(name) for name in (  # type: ignore[misc]
        "SQLITE_FULL", "SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY", "SQLITE_IOERR_WRITE",
        "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_NOMEM", "SQLITE_CORRUPT",
    )},
    "ENOSPC": lambda: OSError(28, "No space left on device"),
    "EACCES": lambda: PermissionError(13, "Permission denied"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("port", "error"),
    [
        ("records", denied),
        ("documents", denied),
        *(("finisher", error) for error in OF_THE_ENGINE.values()),
    ],
    ids=["records", "documents", *OF_THE_ENGINE],
)
async def test_an_engine_that_refuses_for_minutes_ends_no_event(port: str, error: Raises) -> None:
    trial = shop()
    await filled(trial)
    back = trial.clock.now() + 2 * MINUTE
    async with worker_on(trial, **{port: faulty(before(trial, back, error))}):
        await until(trial, lambda: not trial.state.items, at_most=10 * MINUTE)
    assert trial.clock.now() > back
    assert await trial.letters("orders.failed") == []
    await assert_others_are_done(trial)
    await assert_all_is_accounted_for(trial)


@pytest.mark.parametrize(
    ("kind", "at_most"),
    [("coroutine", None), ("coroutine", timedelta(seconds=5)), ("plain", None)],
)
async def test_a_handler_waits_for_a_store_that_cannot_be_read_and_nothing_is_counted(
    kind: str, at_most: timedelta | None
) -> None:
    attempts: list[int] = []

    async def place(event: Event, work: Work) -> None:
        attempts.append(work.attempt)
        assert await work.documents("orders").get("a") == {"_id": "a"}

    def place_plainly(event: Event, work: Any) -> None:
        attempts.append(work.attempt)
        assert work.documents("orders").get("a") == {"_id": "a"}

    handler: Callable[..., Any] = place_plainly if kind == "plain" else place
    trial = trial_of(handler, timeout=at_most)
    await trial.put("orders", {"_id": "a"})
    await trial.publish("OrderPlaced")
    unreadable = before(trial, trial.clock.now() + 2 * MINUTE, denied, "fetch")
    async with worker_on(trial, documents=faulty(unreadable)):
        await until(trial, lambda: not trial.state.items, at_most=10 * MINUTE)
    assert await trial.letters("orders.failed") == []
    assert set(attempts) == {1}
    if at_most is None:
        assert len(attempts) == 1


async def test_an_event_over_which_only_the_engine_fails_stops_no_other_not_even_a_suspect() -> (
    None
):
    """It may be too large for what is left on the disk: it waits, and the others go on."""
    trial = shop()
    await filled(trial, "bad")
    async with worker_on(trial, finisher=faulty(about("finish", "'_id': 'bad'", full_disk))):
        await until(trial, lambda: len(trial.state.items) == 1, at_most=MINUTE)
        await trial.publish("OrderPlaced", {"order": "suspect"})
        (suspect,) = (each for each in trial.state.items.values() if b"suspect" in each.body)
        suspect.returns = 2
        await trial.clock.wait(10 * SECOND)
        await trial.publish("OrderPlaced", {"order": "later"})
        await trial.clock.wait(10 * MINUTE)
    await assert_others_are_done(trial, "later", "suspect")
    assert await trial.letters("orders.failed") == []
    await trial.run(at_most=5 * MINUTE)
    await assert_others_are_done(trial, "later", "suspect", "bad")


@pytest.mark.parametrize("number", [1, 30])
async def test_events_that_wait_for_the_engine_leave_room_for_others_and_are_told(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    trial = shop()
    bad = [f"bad{n:03}" for n in range(number)]
    for one in bad:
        await trial.publish("OrderPlaced", {"order": one})
    refusing = faulty(about("finish", "'_id': 'bad", full_disk))
    small = WorkerSettings(concurrency=2, prefetch=4)
    with caplog.at_level(logging.ERROR, logger="headway"):
        async with worker_on(trial, small, finisher=refusing):
            await trial.clock.wait(MINUTE)
            await filled(trial)
            await trial.clock.wait(10 * MINUTE)
            await assert_others_are_done(trial)
    assert await trial.letters("orders.failed") == []
    assert all("orders" in line and "DiskFullError" in line for line in caplog.messages)
    assert 20 <= len(caplog.messages) <= 24  # every 30 s
    await trial.run(at_most=5 * MINUTE)
    await assert_others_are_done(trial, *bad)
    await assert_all_is_accounted_for(trial)


async def test_the_handler_of_an_event_that_waits_for_the_engine_does_not_run_again() -> None:
    runs: list[str] = []

    async def place(event: Event, work: Work) -> None:
        runs.append(event.event_id)
        work.documents("placed").insert_new({"_id": "bad"})

    trial = trial_of(place)
    await trial.publish("OrderPlaced")
    refused = before(trial, trial.clock.now() + 2 * MINUTE, full_disk, "finish")
    async with worker_on(trial, finisher=faulty(refused)):
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
    assert len(runs) == 1
    assert await names(trial, "placed") == ["bad"]


async def test_an_error_of_the_engine_beside_a_callback_ends_no_event() -> None:
    """Only errors that the callback itself raised may be failures of the handler."""

    async def place(event: Event, work: Work) -> None:
        work.transaction(lambda _: None)
        work.documents("placed").insert_new({"_id": "bad"})

    class Denies:
        at_once = 1

        def __init__(self, finisher: Any) -> None:
            self._finisher = finisher

        async def finish(self, units: Sequence[Any]) -> Any:
            refused = Finish(Outcome.REFUSED, error=denied())
            return [
                refused if unit.bodies else (await self._finisher.finish([unit]))[0]
                for unit in units
            ]

    trial = trial_of(place)
    await trial.publish("OrderPlaced")
    async with worker_on(trial, finisher=Denies):
        await trial.clock.wait(10 * MINUTE)
    assert await trial.letters("orders.failed") == []
    await trial.run(at_most=5 * MINUTE)
    assert await names(trial, "placed") == ["bad"]


# Engines that are away for a while.


@pytest.mark.parametrize(
    ("port", "method"),
    [("finisher", "finish"), ("bus", "take"), ("records", "find"), ("documents", "begin")],
)
@pytest.mark.parametrize("times", [1, 7])
async def test_while_an_engine_is_away_nothing_is_lost_and_nothing_is_done_twice(
    port: str, method: str, times: int
) -> None:
    trial = counting()
    await publish(trial, *OTHERS, "bad")
    async with worker_on(trial, **{port: faulty(a_few_times(method, times))}):
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
    assert await trial.documents("counts") == [{"_id": "all", "n": len(OTHERS)}]
    assert len(await trial.letters("orders.failed")) == 1
    await assert_all_is_accounted_for(trial)


def counting() -> Trial:
    async def handle(event: Event, work: Work) -> None:
        work.documents("counts").increment("all", "n")
        if event.data["order"] == "bad":
            raise ValueError

    return trial_of(handle, documents=("orders", "order"))


async def publish(trial: Trial, *orders: str) -> None:
    for order in orders:
        await trial.publish("OrderPlaced", {"order": order})


@pytest.mark.parametrize(
    ("port", "method", "times"), [("finisher", "finish", 3), ("bus", "take", 1)]
)
async def test_a_call_whose_answer_was_lost_takes_effect_once(
    port: str, method: str, times: int
) -> None:
    trial = counting()
    await publish(trial, *OTHERS)
    async with worker_on(trial, **{port: faulty(a_few_times(method, times), afterwards=True)}):
        await trial.clock.wait(MINUTE)
        await publish(trial, "later")
        await trial.clock.wait(MINUTE)
    await trial.run()  # what was taken comes back at the stop
    assert await trial.documents("counts") == [{"_id": "all", "n": len(OTHERS) + 1}]
    await assert_all_is_accounted_for(trial)


async def test_what_was_being_admitted_at_the_stop_is_free_at_once() -> None:
    class Late:
        """Documents that are begun, of which the answer takes its time."""

        def __init__(self, documents: Any) -> None:
            self._documents = documents

        def __getattr__(self, name: str) -> Any:
            return getattr(self._documents, name)

        async def begin(self, beginnings: Any) -> Any:
            answers = await self._documents.begin(beginnings)
            await trial.clock.wait(2 * SECOND)
            return answers

    orders = Service("orders", lifecycles=[Lifecycle("orders", lease=60 * MINUTE)])

    @orders.on("OrderPlaced", documents=("orders", "order"))
    async def handle(event: Event, work: Work) -> None: ...

    trial = Trial(orders)
    await trial.put("orders", {"_id": "a"})
    await publish(trial, "a")
    async with worker_on(trial, documents=Late):
        await trial.clock.wait(SECOND)
    stopped = trial.clock.now()
    await trial.run()
    assert trial.clock.now() - stopped < MINUTE
    (document,) = await trial.documents("orders")
    assert (document["status"], document["attemptCount"]) == ("processed", 1)


async def test_a_worker_can_be_stopped_while_its_engine_is_away() -> None:
    trial = counting()
    await publish(trial, "a")
    start = trial.clock.now()
    async with worker_on(trial, finisher=faulty(a_few_times("finish", 10_000))):
        await trial.clock.wait(5 * SECOND)
    assert trial.clock.now() - start < MINUTE
    await trial.run()
    assert await trial.documents("counts") == [{"_id": "all", "n": 1}]


# The log and observers.


@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [
        (lambda: ConnectionError("not there"), False),
        (lambda: NotPrimaryError("node is shutting down", {"topologyVersion": b"x"}), False),
        (lambda: KeyError("k"), True),
    ],
    ids=["away", "restarts", "unknown"],
)
async def test_the_loss_is_said_at_once_then_seldom_and_the_engine_is_asked_at_growing_intervals(
    error: Raises, *, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    trial, asked = counting(), list[datetime]()
    refused = before(trial, trial.clock.now() + MINUTE, error)

    def fault(name: str, args: tuple[Any, ...]) -> Exception | None:
        if name == "find":
            asked.append(trial.clock.now())
        return refused(name, args)

    await publish(trial, "a")
    async with worker_on(trial, records=faulty(fault)):
        await until(trial, lambda: not trial.state.items, at_most=10 * MINUTE)
    lines = [each for each in caplog.records if each.getMessage().startswith("Looking up done")]
    first, *again, last = lines
    assert "(attempt 1)" in first.getMessage()
    assert type(error()).__name__ in first.getMessage()
    assert bool(first.exc_info) == has_traceback
    assert len(again) == 1
    assert (first.levelno, last.levelno) == (logging.ERROR, logging.WARNING)
    assert re.search(rf"after {len(asked) - 1} failed attempts", last.getMessage())
    waits = [after - earlier for earlier, after in pairwise(asked)]
    assert waits[:5] == sorted(waits[:5])
    assert max(waits) <= 5 * SECOND


class Raising:
    told = 0

    def tell(self, fact: Fact) -> None:
        self.told += 1
        raise RuntimeError("no ink")


async def test_an_observer_that_raises_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    trial, observer = counting(), Raising()
    trial.facts = observer  # type: ignore[assignment]
    await publish(trial, "a", "bad", "b")
    with caplog.at_level(logging.CRITICAL, logger="headway"):
        await trial.run(at_most=5 * MINUTE)
    assert observer.told >= 2
    assert await trial.documents("counts") == [{"_id": "all", "n": 2}]
    assert len(await trial.letters("orders.failed")) == 1
