"""How events reach handlers; whatever comes or is raised, each event has its end."""

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headway import BlockingWork, Event, Lifecycle, Service, Work
from headway.retrying import Classifier, Diagnosis
from headway.settings import WorkerSettings
from headway.testing.trial import Trial
from tests.behaviour.scenes import (
    MINUTE,
    assert_all_is_accounted_for,
    only_letter,
    ran,
    reasons,
    trial_of,
    until,
)

A = {"order": "a"}


async def must_not_run(event: Event, work: Work) -> None:
    raise AssertionError


# Kinds of handlers


async def coroutine(event: Event, work: Work) -> None:
    assert await work.documents("orders").get(event.data["order"]) is None
    work.documents("orders").insert_new({"_id": event.data["order"]})


def plain(event: Event, work: BlockingWork) -> None:
    assert threading.current_thread() is not threading.main_thread()
    orders = work.documents("orders")
    assert (orders.get(event.data["order"]), orders.find({})) == (None, [])
    work.documents("orders").insert_new({"_id": event.data["order"]})


@functools.wraps(plain)
async def wrapping_plain(event: Event, work: Work) -> None:
    await coroutine(event, work)


class Handler:
    async def __call__(self, event: Event, work: Work) -> None:
        await coroutine(event, work)


def giving_back_a_coroutine(event: Event, work: BlockingWork) -> Any:
    async def inner() -> None:
        work.documents("orders").insert_new({"_id": event.data["order"]})

    return inner()


@pytest.mark.parametrize(
    "handler", [coroutine, plain, wrapping_plain, Handler(), giving_back_a_coroutine]
)
async def test_a_handler_of_any_kind_reads_and_writes(handler: Callable[..., Any]) -> None:
    trial = await ran(handler, A)
    assert await reasons(trial) == []
    assert await trial.documents("orders") == [{"_id": "a"}]


# What cannot be read


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{ "event_type": "OrderCancelled",  "data": {} }', "unroutable"),
        (b"", "malformed"),
        (b"\xff\xfe\x00", "malformed"),
        (b"not json", "malformed"),
        (b"[]", "malformed"),
        (b"{}", "malformed"),
        (b'{"event_type": ""}', "malformed"),
        (b'{"event_type": "OrderPlaced", "data": 3}', "malformed"),
        (b'{"event_type": "OrderPlaced", "data": null}', "malformed"),
        (b'{"event_type": "OrderPlaced"} and more', "malformed"),
        (b'{"event_type": "OrderPlaced", "data": {"a": "\xff"}}', "malformed"),
        (b"[" * 100_000, "malformed"),
    ],
    ids=lambda part: repr(part[:40]),
)
async def test_bytes_that_are_no_event_of_the_handler_become_one_dead_letter_that_keeps_them(
    body: bytes, reason: str
) -> None:
    trial = trial_of(must_not_run)
    await trial.open()
    await trial.publisher.publish_bytes(body, "OrderPlaced", operation="o1")
    trial.state.duplicate("o1")
    await trial.run(at_most=5 * MINUTE)
    letter = await only_letter(trial)
    assert (letter.abandoned_reason, letter.body, letter.attempt_count) == (reason, body, 0)
    await assert_all_is_accounted_for(trial)


@pytest.mark.parametrize("settings", [{"dedup": "order"}, {"documents": ("orders", "order")}])
@pytest.mark.parametrize(
    "data",
    [{"other": "a"}, *({"order": empty} for empty in (None, "", [], ["b", ""], ["b", None]))],
)
async def test_an_event_without_the_ids_that_name_its_work_is_a_letter_at_once(
    settings: dict[str, Any], data: dict[str, Any]
) -> None:
    done: list[str] = []

    async def handle(event: Event, work: Work) -> None:
        done.append(event.event_id)

    trial = await ran(handle, data, data, A, **settings)
    assert await reasons(trial) == ["non_retryable", "non_retryable"]
    assert all("data.order" in each.last_error for each in await trial.letters("orders"))
    assert done == ["e3"]


def raising(error: BaseException) -> Callable[[Event], str]:
    def function(event: Event) -> str:
        raise error

    return function


RAISING = {
    ConnectionError(): "max_attempts_exceeded",
    KeyError("order"): "non_retryable",
    SystemExit(3): "max_attempts_exceeded",  # as in a handler: it may pass
    RecursionError(): "non_retryable",
}


@pytest.mark.parametrize(
    ("setting", "name", "reason"),
    [
        ("dedup", lambda event: None, "non_retryable"),
        ("dedup", lambda event: "", "non_retryable"),
        ("dedup", lambda event: 7, "non_retryable"),
        ("dedup", lambda event: os.fsdecode(b"caf\xe9"), "non_retryable"),
        *(("dedup", raising(error), reason) for error, reason in RAISING.items()),
        *(("documents", raising(error), reason) for error, reason in RAISING.items()),
    ],
)
async def test_a_function_that_names_nothing_or_raises_ends_its_event_and_stops_no_other(
    setting: str, name: Callable[[Event], Any], reason: str
) -> None:
    done: list[str] = []

    async def handle(event: Event, work: Work) -> None:
        done.append(event.data["order"])

    def function(event: Event) -> Any:
        order = event.data.pop("order")  # which the handler does not see
        return order if order == "good" else name(event)

    pair = {"documents": ("orders", function), "rebuild": lambda document: {}}
    settings: dict[str, Any] = {"dedup": function} if setting == "dedup" else pair
    trial = await ran(handle, A, {"order": "good"}, {"order": "b"}, **settings)
    retries = 2 if reason == "max_attempts_exceeded" else 0
    letters = await trial.letters("orders.failed")
    ends = [(letter.abandoned_reason, letter.attempt_count) for letter in letters]
    assert ends == [(reason, retries)] * 2
    assert done == ["good"]


async def test_different_work_is_told_apart_though_its_ids_look_alike_in_a_row() -> None:
    async def handle(event: Event, work: Work) -> None:
        work.documents("orders").add({"ids": event.data["ids"]})

    alike = (["2026-01", "05"], ["2026", "01-05"], ["2026-01-05"], ["2026", "01", "05"])
    trial = await ran(handle, *({"ids": ids} for ids in (*alike, *alike)), dedup="ids")
    assert len(await trial.documents("orders")) == len(alike)


# What handlers raise


class Unreadable(Exception):  # noqa: N818 (it is named for what it is)
    def __str__(self) -> str:
        raise SystemExit


class Causeless(Exception):  # noqa: N818
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise RuntimeError("no cause can be had")


class Abort(BaseException):
    """Not an Exception, as those of some libraries for cancellation."""


STRANGE: list[tuple[BaseException, str]] = [
    (SystemExit(1), "max_attempts_exceeded"),
    (KeyboardInterrupt(), "max_attempts_exceeded"),
    (Abort("stop it"), "max_attempts_exceeded"),
    (asyncio.CancelledError(), "max_attempts_exceeded"),
    (ExceptionGroup("many", [OSError(), ValueError("x")]), "non_retryable"),
    (ExceptionGroup("x", [ConnectionError()]), "max_attempts_exceeded"),
    (BaseExceptionGroup("x", [Abort()]), "max_attempts_exceeded"),
    (Unreadable(), "max_attempts_exceeded"),
    (Causeless(), "max_attempts_exceeded"),
    (SyntaxError("x", ("f", 1, "bad", "text")), "non_retryable"),  # type: ignore[arg-type]
    (RuntimeError("cannot read \udcff.txt"), "max_attempts_exceeded"),
    (RuntimeError("a\0b"), "max_attempts_exceeded"),
    (RuntimeError("x" * 5_000_000), "max_attempts_exceeded"),
    (StopIteration(), "max_attempts_exceeded"),
    (GeneratorExit(), "max_attempts_exceeded"),
    (StopAsyncIteration(), "max_attempts_exceeded"),
]


@pytest.mark.parametrize(
    ("kind", "error", "reason"),
    [
        *(("coroutine", *each) for each in STRANGE),
        *(("plain", *each) for each in STRANGE),
    ],
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
async def test_whatever_a_handler_raises_is_a_failure_of_that_event_alone(
    kind: str, error: BaseException, reason: str
) -> None:
    done: list[str] = []

    def plain(event: Event, work: Work) -> None:
        if event.data["bad"]:
            raise error
        done.append(event.event_id)

    async def coroutine(event: Event, work: Work) -> None:
        plain(event, work)

    handler: Callable[..., Any] = plain if kind == "plain" else coroutine
    letter = await only_letter(await ran(handler, *({"bad": n == 1} for n in range(3))))
    retries = 2 if reason == "max_attempts_exceeded" else 0
    assert (letter.abandoned_reason, letter.attempt_count) == (reason, retries)
    assert letter.error_type
    assert len(letter.last_error) <= 1_000
    assert sorted(done) == ["e1", "e3"]
    assert msgspec.json.decode(msgspec.json.encode(letter), type=type(letter)) == letter


class RaisingClassifier(Classifier):
    def classify(self, error: BaseException) -> Diagnosis:
        raise TypeError("a rule of the user's own")


async def test_an_event_whose_classifier_raises_is_a_dead_letter() -> None:
    orders = Service("orders", classifier=RaisingClassifier(rules=()))

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        if event.event_id == "bad":
            raise ValueError("bad")

    trial = Trial(orders)
    for event_id in ("a", "bad", "b"):
        await trial.publish("OrderPlaced", event_id=event_id)
    await trial.run(at_most=timedelta(hours=1))
    assert (await trial.balance()).done == 2
    assert len(await trial.letters("orders.failed")) == 1


# Handlers beside each other


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_a_context_variable_of_one_handler_does_not_leak_into_the_next(kind: str) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    seen: list[str] = []

    def plain(event: Event, work: Any) -> None:
        seen.append(request.get())
        request.set(event.event_id)

    async def coroutine(event: Event, work: Work) -> None:
        plain(event, work)

    handler: Callable[..., Any] = plain if kind == "plain" else coroutine
    await ran(handler, *[None] * 5, settings=WorkerSettings(concurrency=1))
    assert seen == ["none"] * 5


async def test_handlers_run_beside_each_other_and_no_more_than_was_said() -> None:
    done: list[str] = []
    running, most, go_on = 0, 0, asyncio.Event()

    async def handle(event: Event, work: Work) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if event.event_id == "slow":
            await go_on.wait()
        else:
            await trial.clock.wait(timedelta(seconds=1))
        running -= 1
        done.append(event.event_id)

    trial = trial_of(handle, WorkerSettings(concurrency=3))
    for event_id in ("slow", *"abcdef"):
        await trial.publish("OrderPlaced", event_id=event_id)
    async with trial.running():
        await until(trial, lambda: len(done) == 6, at_most=MINUTE)
        go_on.set()
        await until(trial, lambda: len(done) == 7, at_most=MINUTE)
    assert (done[-1], most) == ("slow", 3)


# Several services


async def test_services_get_the_same_event_each_and_may_share_a_failed_queue() -> None:
    async def handle(event: Event, work: Work) -> None:
        raise ValueError

    services = [Service(name, failed_queue="all.failed") for name in ("billing", "shipping")]
    for service in services:
        service.on("OrderPlaced")(handle)
    trial = Trial(*services)
    assert await trial.publish("OrderPlaced") == 2
    await trial.run()
    letters = await trial.letters("all.failed")
    assert sorted(letter.service_name for letter in letters) == ["billing", "shipping"]
    await assert_all_is_accounted_for(trial)


# Every run gets its event as it was published


class Order(msgspec.Struct):
    """The data of an event, in a type that can be changed."""

    order: str
    items: list[str]


class Shop:
    """A handler that empties its event and loses its condition at commit a number of times."""

    def __init__(self, lost: int, **settings: Any) -> None:
        self.lost = lost
        self.seen: list[Any] = []
        self.service = Service("orders", lifecycles=[Lifecycle("orders", max_attempts=2)])
        self.settings = {
            "failed": "OrderFailed",
            "dedup": "order",
            "documents": ("orders", "order"),
            **settings,
        }

    def with_handler(self, kind: str) -> Service:
        async def coroutine(event: Event, work: Work) -> None:
            self._take(event, work)

        handler: Any = self._take if kind == "plain" else coroutine
        self.service.on("OrderPlaced", **self.settings)(handler)
        return self.service

    def _take(self, event: Event, work: Work | BlockingWork) -> None:
        data = event.data
        self.seen.append(msgspec.to_builtins(data))
        if isinstance(data, Order):
            data.items.pop()
            data.order = "changed"
        else:
            data.pop("order")
            data["items"].clear()
        if len(self.seen) <= self.lost:
            work.documents("stock").update("s", {"left": 0}, expect={"left": "never"})


ORDER = {"order": "a", "items": ["pie"]}


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
@pytest.mark.parametrize("data", [None, Order], ids=["dict", "struct"])
async def test_a_rerun_after_a_lost_commit_gets_the_event_as_it_was_published(
    kind: str, data: type | None
) -> None:
    shop = Shop(2, data=data)
    trial = Trial(shop.with_handler(kind))
    await trial.put("orders", {"_id": "a", "status": "pending"})
    await trial.put("stock", {"_id": "s", "left": 1})
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert await trial.letters("orders.failed") == []
    assert shop.seen == [ORDER] * 3
    (order,) = await trial.documents("orders")
    assert (order["status"], order["attemptCount"]) == ("processed", 1)
    await assert_all_is_accounted_for(trial)


def _all(event: Event, facts: dict[str, Any]) -> dict[str, Any]:
    return {"order_was": event.data["order"], "items_were": event.data["items"], **facts}


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_the_failed_event_and_the_letter_tell_of_the_event_as_it_was_published(
    kind: str,
) -> None:
    told: list[Any] = []
    shop = Shop(100, failed_data=_all)
    watching = Service("watching")

    @watching.on("OrderFailed")
    async def watch(event: Event, work: Work) -> None:
        told.append(event.data)

    trial = Trial(shop.with_handler(kind), watching)
    await trial.put("orders", {"_id": "a", "status": "pending"})
    await trial.put("stock", {"_id": "s", "left": 1})
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    letter = await only_letter(trial)
    assert letter.error_type == "ConditionLostError"
    assert (letter.collection, list(letter.document_ids)) == ("orders", ["a"])
    assert letter.original_event["data"] == ORDER
    (facts,) = told
    assert (facts["order_was"], facts["items_were"], facts["order"]) == ("a", ["pie"], "a")
    assert shop.seen == [ORDER] * len(shop.seen)
    (order,) = await trial.documents("orders")
    assert order["status"] == "failed"
