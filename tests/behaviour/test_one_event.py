"""One event stops no other, and trouble of the engine ends none."""

import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest
from pymongo.errors import OperationFailure

from headway import Event, Lifecycle, Service, Work
from headway.retrying import Reason
from headway.settings import WorkerSettings
from headway.testing.ports import Finish, Outcome
from headway.testing.trial import Trial
from tests.behaviour.scenes import MINUTE, assert_all_is_accounted_for, until
from tests.behaviour.test_engine_trouble import worker_on

OTHERS = [f"o{n}" for n in range(10)]


def shop(
    documents: Callable[[Event], Any] | str = "order", dedup: Callable[[Event], str] | None = None
) -> Trial:
    """Two services: one whose events may be trouble, and one that has nothing to do with it."""
    orders, mails = Service("orders"), Service("mails")

    @orders.on(
        "OrderPlaced",
        documents=("orders", documents),
        dedup=dedup,
        rebuild=lambda document: {"order": document["_id"]},
    )
    async def place(event: Event, work: Work) -> None:
        work.documents("placed").insert_new({"_id": event.data["order"]})

    @mails.on("MailAsked")
    async def mail(event: Event, work: Work) -> None:
        work.documents("mailed").insert_new({"_id": event.data["mail"]})

    return Trial(orders, mails)


async def filled(trial: Trial, *more: dict[str, Any]) -> None:
    """Publish some events of both services, and these orders among them."""
    half = len(OTHERS) // 2
    await trial.put("orders", *({"_id": one} for one in (*OTHERS, "bad")))
    for one in OTHERS[:half]:
        await trial.publish("OrderPlaced", {"order": one})
    for data in more:
        await trial.publish("OrderPlaced", data)
    for one in OTHERS[half:]:
        await trial.publish("OrderPlaced", {"order": one})
    await trial.publish("MailAsked", {"mail": "m"})


async def names(trial: Trial, collection: str) -> list[str]:
    return sorted(each["_id"] for each in await trial.documents(collection))


# Functions of the user's own that name documents and keys.


async def test_a_function_that_changes_the_data_is_called_once_and_changes_only_its_own() -> None:
    calls: list[str] = []

    def documents(event: Event) -> list[str]:
        calls.append(event.event_id)
        return [event.data.pop("order")]

    def dedup(event: Event) -> str:
        return f"k-{event.data.pop('order')}"

    trial = shop(documents, dedup)
    await filled(trial)
    await trial.run(at_most=5 * MINUTE)
    assert await names(trial, "placed") == OTHERS
    assert await names(trial, "mailed") == ["m"]
    assert sorted(calls) == sorted(set(calls))
    assert await trial.letters("orders.failed") == []
    statuses = {each["status"] for each in await trial.documents("orders") if each["_id"] != "bad"}
    assert statuses == {"processed"}
    await assert_all_is_accounted_for(trial)


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (KeyError("order"), Reason.NON_RETRYABLE),
        (SystemExit(3), Reason.MAX_ATTEMPTS_EXCEEDED),  # as in a handler: it may pass
        (RecursionError(), Reason.NON_RETRYABLE),
    ],
)
async def test_a_function_that_raises_ends_its_event_and_stops_no_other(
    raised: BaseException, reason: Reason
) -> None:
    def documents(event: Event) -> list[str]:
        if event.data["order"] == "bad":
            raise raised
        return [event.data["order"]]

    trial = shop(documents)
    await filled(trial, {"order": "bad"})
    await trial.run(at_most=5 * MINUTE)
    assert await names(trial, "placed") == OTHERS
    assert await names(trial, "mailed") == ["m"]
    (letter,) = await trial.letters("orders.failed")
    assert letter.abandoned_reason == reason
    assert letter.error_type == type(raised).__name__
    await assert_all_is_accounted_for(trial)


@pytest.mark.parametrize("function", ["documents", "dedup"])
async def test_a_function_that_raises_a_transient_error_is_retried(function: str) -> None:
    calls: list[str] = []

    def fails_at_first(event: Event) -> str:
        if event.data["order"] == "bad":
            calls.append(event.event_id)
            if len(calls) < 3:
                raise ConnectionError("the directory of orders is away")
        return str(event.data["order"])

    functions: dict[str, Any] = {function: fails_at_first}
    trial = shop(**functions)
    await filled(trial, {"order": "bad"})
    await trial.run(at_most=5 * MINUTE)
    assert await names(trial, "placed") == ["bad", *OTHERS]
    assert len(calls) == 3
    assert await trial.letters("orders.failed") == []
    await assert_all_is_accounted_for(trial)


async def test_a_function_that_raises_transient_errors_for_ever_ends_by_the_policy() -> None:
    def documents(event: Event) -> str:
        if event.data["order"] == "bad":
            raise ConnectionError("the directory of orders is away")
        return str(event.data["order"])

    trial = shop(documents)
    await filled(trial, {"order": "bad"})
    await trial.run(at_most=60 * MINUTE)
    (letter,) = await trial.letters("orders.failed")
    assert letter.abandoned_reason == Reason.MAX_ATTEMPTS_EXCEEDED
    assert await names(trial, "placed") == OTHERS


# Errors of the store about one document.


class Choosy:
    """A port of which some methods raise where an item is among those that are given."""

    def __init__(
        self, port: Any, methods: Sequence[str], about: str, error: Callable[[], Exception]
    ) -> None:
        self._port = port
        self._methods = methods
        self._about = about
        self._error = error

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(self._port, name)):
            return getattr(self._port, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if name in self._methods and self._about in repr(args):
                raise self._error()
            return await getattr(self._port, name)(*args, **kwargs)

        return call


ABOUT_ONE = [
    lambda: KeyError("ids"),
    lambda: RuntimeError("nobody knows this error"),
    lambda: UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    lambda: OperationFailure("Internal error", 1),
    lambda: asyncpg.InternalServerError("cache lookup failed"),
    lambda: sqlite3.OperationalError("malformed JSON"),
]


@pytest.mark.parametrize("error", ABOUT_ONE, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize(
    ("port", "method", "about"),
    [
        ("records", "find", "bad-event"),
        ("documents", "begin", "'bad'"),
        ("finisher", "finish", "'_id': 'bad'"),
    ],
)
async def test_an_error_about_one_event_ends_that_one_and_stops_no_other(
    port: str, method: str, about: str, error: Callable[[], Exception]
) -> None:
    trial = shop()
    await filled(trial)
    await trial.publish("OrderPlaced", {"order": "bad"}, event_id="bad-event")
    choosy = {port: lambda whole: Choosy(whole, [method], about, error)}
    async with worker_on(trial, **choosy):
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
    assert await names(trial, "placed") == OTHERS
    assert await names(trial, "mailed") == ["m"]
    (letter,) = await trial.letters("orders.failed")
    assert letter.error_type == type(error()).__name__
    await assert_all_is_accounted_for(trial)


async def test_an_event_that_is_alone_ends_only_when_the_engine_takes_a_probe() -> None:
    """Without another event, nothing but a probe says that the engine itself is well."""
    trial = shop()
    await trial.publish("OrderPlaced", {"order": "bad"}, event_id="bad-event")
    back = trial.clock.now() + 2 * MINUTE

    class Unwell:
        def __init__(self, leases: Any) -> None:
            self._leases = leases

        def __getattr__(self, name: str) -> Any:
            return getattr(self._leases, name)

        async def hold(self, *args: Any) -> bool:
            if trial.clock.now() < back:
                raise RuntimeError("nobody knows this error")
            return bool(await self._leases.hold(*args))

    def sweeping(whole: Any) -> Any:
        return replace(whole, leases=Unwell(whole.leases))

    def choosy(whole: Any) -> Any:
        return Choosy(whole, ["find"], "bad-event", lambda: RuntimeError("nobody knows this error"))

    async with worker_on(trial, records=choosy, sweeping=sweeping):
        await trial.clock.wait(MINUTE)
        assert await trial.letters("orders.failed") == []
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
    (letter,) = await trial.letters("orders.failed")
    assert letter.error_type == "RuntimeError"


# Errors that name the engine.


def denied(code: str) -> Exception:
    error: Exception = asyncpg.PostgresError.new({"C": code, "M": "refused"})
    return error


def full_disk() -> Exception:
    return denied("53100")


def of_sqlite(name: str) -> Exception:
    error = sqlite3.OperationalError("refused")
    error.sqlite_errorname = name
    return error


OF_THE_ENGINE = [
    *(("postgres-" + code, lambda code=code: denied(code)) for code in (
        "28P01", "42501", "25006", "53100", "53200", "53300", "57P01", "08006", "3D000", "58030",
    )),
    *(("mongodb-" + str(code), lambda code=code: OperationFailure("refused", code)) for code in (
        13, 18, 11, 14031, 10107, 13435, 189, 91, 50, 146,
    )),
    *((name, lambda name=name: of_sqlite(name)) for name in (
        "SQLITE_FULL", "SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY", "SQLITE_IOERR_WRITE",
        "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_NOMEM", "SQLITE_CORRUPT",
    )),
    ("ENOSPC", lambda: OSError(28, "No space left on device")),
    ("EACCES", lambda: PermissionError(13, "Permission denied")),
]  # fmt: skip


class Refusing:
    """A port that refuses everything for a while."""

    def __init__(self, port: Any, until: datetime, trial: Trial, error: Callable[[], Any]) -> None:
        self._port = port
        self._until = until
        self._trial = trial
        self._error = error

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(self._port, name)):
            return getattr(self._port, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if name != "close" and self._trial.clock.now() < self._until:
                raise self._error()
            return await getattr(self._port, name)(*args, **kwargs)

        return call


@pytest.mark.parametrize(("name", "error"), OF_THE_ENGINE, ids=[name for name, _ in OF_THE_ENGINE])
@pytest.mark.parametrize("port", ["records", "documents", "finisher"])
async def test_an_engine_that_refuses_for_minutes_ends_no_event(
    port: str, name: str, error: Callable[[], Exception]
) -> None:
    orders = Service("orders", lifecycles=[Lifecycle("orders", lease=MINUTE)])

    @orders.on("OrderPlaced", documents=("orders", "order"))
    async def place(event: Event, work: Work) -> None:
        await work.documents("orders").require(event.data["order"])
        work.documents("placed").insert_new({"_id": event.data["order"]})

    trial = Trial(orders)
    await trial.put("orders", *({"_id": one} for one in OTHERS))
    for one in OTHERS:
        await trial.publish("OrderPlaced", {"order": one})
    back = trial.clock.now() + 2 * MINUTE
    async with worker_on(trial, **{port: lambda whole: Refusing(whole, back, trial, error)}):
        await until(trial, lambda: not trial.state.items, at_most=10 * MINUTE)
    assert trial.clock.now() > back
    assert await trial.letters("orders.failed") == []
    assert await names(trial, "placed") == OTHERS
    assert {each["status"] for each in await trial.documents("orders")} == {"processed"}
    await assert_all_is_accounted_for(trial)


class ReadsFail:
    """Documents that nobody can read for a while; all else of them works."""

    def __init__(self, documents: Any, until: datetime, trial: Trial) -> None:
        self._documents = documents
        self._until = until
        self._trial = trial

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents, name)

    async def fetch(self, collection: str, ids: Sequence[str]) -> Any:
        if self._trial.clock.now() < self._until:
            raise denied("42501")
        return await self._documents.fetch(collection, ids)


@pytest.mark.parametrize(
    ("kind", "at_most"),
    [("coroutine", None), ("coroutine", timedelta(seconds=5)), ("plain", None)],
)
async def test_a_handler_waits_for_a_store_that_cannot_be_read_and_nothing_is_counted(
    kind: str, at_most: timedelta | None
) -> None:
    orders = Service("orders")
    attempts: list[int] = []

    async def place(event: Event, work: Work) -> None:
        attempts.append(work.attempt)
        assert await work.documents("orders").get("a") == {"_id": "a"}

    def place_plainly(event: Event, work: Any) -> None:
        attempts.append(work.attempt)
        assert work.documents("orders").get("a") == {"_id": "a"}

    handler: Callable[..., Any] = place_plainly if kind == "plain" else place
    orders.on("OrderPlaced", timeout=at_most)(handler)
    trial = Trial(orders)
    await trial.put("orders", {"_id": "a"})
    await trial.publish("OrderPlaced")
    back = trial.clock.now() + 2 * MINUTE
    async with worker_on(trial, documents=lambda whole: ReadsFail(whole, back, trial)):
        await until(trial, lambda: not trial.state.items, at_most=10 * MINUTE)
    assert await trial.letters("orders.failed") == []
    assert set(attempts) == {1}
    if at_most is None:
        assert len(attempts) == 1


async def test_an_event_over_which_only_the_engine_fails_stops_no_other() -> None:
    """It may be too large for what is left on the disk: it waits, and the others go on."""
    trial = shop()
    await filled(trial, {"order": "bad"})
    port = {"finisher": lambda whole: Choosy(whole, ["finish"], "'_id': 'bad'", full_disk)}
    async with worker_on(trial, **port):
        await until(trial, lambda: len(trial.state.items) == 1, at_most=MINUTE)
        await trial.clock.wait(10 * MINUTE)
    assert await names(trial, "placed") == OTHERS
    assert await names(trial, "mailed") == ["m"]
    assert await trial.letters("orders.failed") == []
    await trial.run(at_most=5 * MINUTE)
    assert await names(trial, "placed") == ["bad", *OTHERS]


async def test_an_event_that_waits_for_the_engine_does_not_stop_a_suspect() -> None:
    trial = shop()
    await filled(trial, {"order": "bad"})
    port = {"finisher": lambda whole: Choosy(whole, ["finish"], "'_id': 'bad'", full_disk)}
    async with worker_on(trial, **port):
        await until(trial, lambda: len(trial.state.items) == 1, at_most=MINUTE)
        await trial.publish("OrderPlaced", {"order": "suspect"})
        (suspect,) = (each for each in trial.state.items.values() if b"suspect" in each.body)
        suspect.returns = 2
        await trial.clock.wait(timedelta(seconds=10))
        await trial.publish("OrderPlaced", {"order": "later"})
        await trial.publish("MailAsked", {"mail": "later"})
        await trial.clock.wait(10 * MINUTE)
    assert await names(trial, "placed") == ["later", *OTHERS, "suspect"]
    assert await names(trial, "mailed") == ["later", "m"]
    assert await trial.letters("orders.failed") == []
    await trial.run(at_most=5 * MINUTE)
    assert "bad" in await names(trial, "placed")


@pytest.mark.parametrize("number", [1, 100])
async def test_events_that_wait_for_the_engine_leave_room_for_others_and_are_told(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    trial = shop()
    bad = [f"bad{n:03}" for n in range(number)]
    for one in bad:
        await trial.publish("OrderPlaced", {"order": one})
    port = {"finisher": lambda whole: Choosy(whole, ["finish"], "'_id': 'bad", full_disk)}
    small = WorkerSettings(concurrency=2, prefetch=4)
    with caplog.at_level(logging.ERROR, logger="headway"):
        async with worker_on(trial, small, **port):
            await trial.clock.wait(MINUTE)
            for one in OTHERS:
                await trial.publish("OrderPlaced", {"order": one})
            await trial.publish("MailAsked", {"mail": "later"})
            await trial.clock.wait(10 * MINUTE)
            assert await names(trial, "mailed") == ["later"]
            assert await names(trial, "placed") == OTHERS
    assert await trial.letters("orders.failed") == []
    said = [each.getMessage() for each in caplog.records]
    assert all(one.startswith("Committing failed for events of orders (") for one in said), said
    assert said[0].endswith(" waiting): DiskFullError refused. Retrying in 5 s.")
    assert 20 <= len(said) <= 24  # every 30 s
    await trial.run(at_most=5 * MINUTE)
    assert await names(trial, "placed") == [*bad, *OTHERS]
    await assert_all_is_accounted_for(trial)


async def test_the_handler_of_an_event_that_waits_for_the_engine_does_not_run_again() -> None:
    orders, runs = Service("orders"), []

    @orders.on("OrderPlaced")
    async def place(event: Event, work: Work) -> None:
        runs.append(event.event_id)
        work.documents("placed").insert_new({"_id": "bad"})

    trial = Trial(orders)
    await trial.publish("OrderPlaced")
    back = trial.clock.now() + 2 * MINUTE

    class UntilThen(Choosy):
        def __getattr__(self, name: str) -> Any:
            if trial.clock.now() >= back:
                return getattr(self._port, name)
            return super().__getattr__(name)

    port = {"finisher": lambda whole: UntilThen(whole, ["finish"], "'_id': 'bad'", full_disk)}
    async with worker_on(trial, **port):
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
    assert len(runs) == 1
    assert await names(trial, "placed") == ["bad"]


async def test_an_error_of_the_engine_beside_a_callback_ends_no_event() -> None:
    """Only errors that the callback itself raised may be failures of the handler."""
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def place(event: Event, work: Work) -> None:
        work.transaction(lambda _: None)
        work.documents("placed").insert_new({"_id": event.data["order"]})

    trial = Trial(orders)
    await trial.publish("OrderPlaced", {"order": "bad"})

    class Denies(Choosy):
        def __getattr__(self, name: str) -> Any:
            if name != "finish":
                return super().__getattr__(name)

            async def finish(units: Sequence[Any]) -> Any:
                refused = Finish(Outcome.REFUSED, error=denied("42501"))
                return [
                    refused if unit.bodies else (await self._port.finish([unit]))[0]
                    for unit in units
                ]

            return finish

    async with worker_on(trial, finisher=lambda whole: Denies(whole, [], "", full_disk)):
        await trial.clock.wait(10 * MINUTE)
    assert await trial.letters("orders.failed") == []
    await trial.run(at_most=5 * MINUTE)
    assert await names(trial, "placed") == ["bad"]


async def test_the_log_says_what_the_worker_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    trial = shop()
    await filled(trial)
    back = trial.clock.now() + MINUTE
    with caplog.at_level(logging.WARNING, logger="headway"):
        async with worker_on(
            trial, records=lambda whole: Refusing(whole, back, trial, lambda: denied("42501"))
        ):
            await until(trial, lambda: not trial.state.items, at_most=10 * MINUTE)
    said = [each.getMessage() for each in caplog.records]
    assert any(
        one.startswith("Looking up done records failed (attempt 1): ")
        and one.endswith("refused. Retrying in 0.1 s.")
        for one in said
    ), said
    assert any(one.startswith("Looking up done records works again after ") for one in said), said
