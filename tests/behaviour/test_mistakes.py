"""Typical mistakes inside handlers: none passes silently, each is named by its place."""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from headway import (
    BlockingWork,
    DocumentNotFoundError,
    Event,
    Lifecycle,
    Service,
    Work,
)
from headway.errors import WorkOverError
from headway.testing.trial import Trial
from tests.behaviour.scenes import (
    MINUTE,
    assert_all_is_accounted_for,
    only_letter,
    ran,
    trial_of,
    until,
)

A = {"order_id": "a"}


class Order(msgspec.Struct):
    order_id: str
    total: int = 0


@dataclass
class OrderData:
    order_id: str
    total: int = 0


class OrderDict(TypedDict):
    order_id: str
    total: int


class OrderModel(pydantic.BaseModel):
    order_id: str
    total: int = 0


class Aliased(pydantic.BaseModel):
    order_id: str = pydantic.Field(alias="orderId")
    password: pydantic.SecretStr = pydantic.SecretStr("none")
    total: int = 0

    @pydantic.field_validator("total")
    @classmethod
    def positive(cls, total: int) -> int:
        if total < 0:
            raise ValueError("a total is not negative")
        return total


@pydantic.dataclasses.dataclass
class PydanticData:
    order_id: str
    total: int = pydantic.Field(default=0, ge=0)


# data=


@pytest.mark.parametrize("kind", [Order, OrderData, OrderDict, OrderModel, PydanticData], ids=str)
async def test_data_is_read_into_each_kind_of_type_or_is_a_dead_letter(kind: Any) -> None:
    seen: list[Any] = []

    async def placed(event: Event, work: Work) -> None:
        seen.append(event.data)

    wrong = {"order_id": 5, "total": 3}
    events = {"order_id": "a", "total": 3}, wrong
    settings = {"dedup": "order_id", "documents": ("orders", "order_id")}
    letter = await only_letter(await ran(placed, *events, data=kind, **settings))
    (data,) = seen
    assert isinstance(data, dict if kind is OrderDict else kind)
    assert (data["order_id"] if isinstance(data, dict) else data.order_id) == "a"
    assert (letter.error_type, letter.abandoned_reason) == ("ValidationError", "non_retryable")
    assert letter.original_event["data"] == wrong
    assert "order_id" in letter.last_error


async def test_a_pydantic_model_refuses_by_the_field_and_shows_no_value() -> None:
    async def placed(event: Event, work: Work) -> None: ...

    wrong = {"orderId": ["hunter2"], "password": 5, "total": -1}
    good = Aliased(orderId="a", total=4)  # published by its aliases, as its consumer reads it
    letter = await only_letter(await ran(placed, wrong, good, data=Aliased))
    assert letter.error_type == "ValidationError"
    assert re.findall(r"`\$\.(\w+)`", letter.last_error) == ["orderId", "password", "total"]
    assert not any("hunter2" in str(each) for each in letter.attempts)


# Reads that are not awaited

READS: dict[str, Callable[[Work], Any]] = {
    "get": lambda work: work.documents("orders").get("a"),
    "require": lambda work: work.documents("orders").require(["a"]),
    "find": lambda work: work.documents("orders").find({"a": 1}),
}


@pytest.mark.parametrize("name", READS)
async def test_a_read_that_was_never_awaited_refuses_the_commit_and_names_the_line(
    name: str,
) -> None:
    async def placed(event: Event, work: Work) -> None:
        work.documents("orders").insert_new({"_id": "a"})
        await work.documents("orders").get("a")
        READS[name](work)
        READS["get"](work)
        work.publish("OrderPaid", {})

    trial = await ran(placed)
    letter = await only_letter(trial)
    assert (letter.abandoned_reason, letter.error_type) == ("non_retryable", "NotAwaitedError")
    assert f"work.documents('orders').{name}()" in letter.last_error
    for read in (name, "get"):
        assert f"test_mistakes.py:{READS[read].__code__.co_firstlineno}" in letter.last_error
    assert await trial.documents("orders") == []
    assert (await trial.balance()).accepted == 1


async def test_reads_may_be_awaited_in_any_way() -> None:
    async def placed(event: Event, work: Work) -> None:
        orders = work.documents("orders")
        await asyncio.gather(orders.get("a"), orders.find({}))
        await asyncio.create_task(orders.get("a"))
        late = orders.get("a")
        await asyncio.wait_for(late, 5)

    assert (await (await ran(placed)).balance()).done == 1


# What handlers do


async def returns_coroutine(event: Event, work: Work) -> Any:
    return asyncio.sleep(0)


async def returns_a_read(event: Event, work: Work) -> Any:
    return work.documents("orders").get("a")


async def awaits_deeper(event: Event, work: Work) -> None:
    await _awaits_update(work)


async def _awaits_update(work: Work) -> None:
    await work.documents("orders").update("a", {})  # type: ignore[func-returns-value,misc]


async def changes_the_event(event: Event, work: Work) -> None:
    event.data = {}  # type: ignore[misc]


async def awaits_in_another_loop(event: Event, work: Work) -> None:
    def read() -> None:
        asyncio.run(_get(work))

    await asyncio.to_thread(read)


async def _get(work: Work) -> None:
    await work.documents("orders").get("a")


def returns_a_blocking_read(event: Event, work: BlockingWork) -> Any:
    async def inner() -> None:
        work.documents("orders").get("a")

    return inner()


def runs_a_plain_read(event: Event, work: BlockingWork) -> None:
    asyncio.run(work.documents("orders").find({}))  # type: ignore[arg-type]


def awaits_a_plain_read(event: Event, work: BlockingWork) -> None:
    async def read() -> None:
        await work.documents("orders").find({})  # type: ignore[misc]

    asyncio.run(read())


def gives_back_a_generator(event: Event, work: BlockingWork) -> Any:
    return (each for each in "ab")


class Unreadable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def raises_what_cannot_be_read(event: Event, work: Work) -> None:
    raise TypeError(Unreadable())


def calling(use: Callable[[Any], object]) -> Callable[..., Any]:
    """Give a handler that makes this call, and awaits what has to be."""

    async def placed(event: Event, work: Work) -> None:
        answer = use(work)
        if asyncio.iscoroutine(answer):
            await answer

    return placed


LINE = r"test_mistakes\.py:\d+"
DEEDS: list[tuple[Any, str]] = [
    (runs_a_plain_read, rf"{LINE} awaits.*without await and asyncio\.run"),
    (awaits_a_plain_read, rf"{LINE} awaits.*without await and asyncio\.run"),
    (returns_coroutine, rf"^TypeError: Invalid handler {LINE} returns_coroutine: "),
    (returns_a_read, rf"^NotAwaitedError: {LINE} returns_a_read never awaited work"),
    (
        awaits_deeper,
        rf"^TypeError.*test_mistakes\.py:{_awaits_update.__code__.co_firstlineno + 1} awaits",
    ),
    (changes_the_event, rf"^AttributeError: .*'Event': {LINE} sets a field of the event"),
    (awaits_in_another_loop, rf"work\.documents\('orders'\)\.get\(\) at {LINE} is awaited"),
    (returns_a_blocking_read, "async def"),
    (gives_back_a_generator, "^TypeError"),
    (raises_what_cannot_be_read, "^TypeError"),
    (calling(lambda work: work.publish("OrderPaid", 3)), "data of OrderPaid.*int"),
    (calling(lambda work: work.publish("OrderPaid", object())), "^UnsendableError: OrderPaid"),
    (calling(lambda work: work.publish("OrderPaid", Order)), "^UnsendableError: OrderPaid"),
    (calling(lambda work: work.publish("OrderPaid", [1])), "data of OrderPaid.*list"),
    (calling(lambda work: work.publish("OrderPaid", {}, event_id=5)), "event_id=5"),
    (calling(lambda work: work.publish({"order": "a"})), r"Invalid event_type=\{"),
    (calling(lambda work: work.transaction("update orders")), r"transaction\('update orders'\)"),
    (calling(lambda work: work.documents(None).add({})), r"work\.documents\(None\)"),
    (calling(lambda work: work.documents("orders").get(5)), "^ValueError: orders: 5"),
    (calling(lambda work: work.documents("orders").require([5])), "^ValueError: orders: 5"),
    (calling(lambda work: work.documents("orders").find("status")), r"find\('status'\)"),
    (calling(lambda work: work.documents("orders").insert_new({"n": 1})), "'_id'"),
    (calling(lambda work: work.documents("orders").add({"_id": "a"})), "^ValueError"),
    (calling(lambda work: work.documents("orders").update("a", {"_id": "b"})), "^ValueError"),
    (calling(lambda work: work.documents("orders").increment("a", "n", "1")), "^ValueError"),
    (
        calling(lambda work: work.documents("orders").increment("a", "n", float("inf"))),
        "^ValueError",
    ),
]


@pytest.mark.parametrize(("handler", "message"), DEEDS)
async def test_a_mistake_inside_a_handler_ends_its_event_at_once_and_says_what_it_is(
    handler: Any, message: str
) -> None:
    trial = await ran(handler, A)
    letter = await only_letter(trial)
    assert letter.abandoned_reason == "non_retryable"
    assert re.search(message, letter.last_error), letter.last_error
    assert (await trial.balance()).accepted == 1


async def test_a_value_that_a_handler_returns_is_ignored_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def placed(event: Event, work: Work) -> bool:
        return False

    trial = await ran(placed, None, None, None)
    (line,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert re.search(rf"{LINE} .*placed of OrderPlaced .* bool", line.getMessage())
    assert (await trial.balance()).done == 3


# What the commit of an event sets itself

LEASED = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("lifecycle", "changes", "fact"),
    [
        (Lifecycle("orders"), {"status": "shipped"}, "sets status='processed'"),
        (Lifecycle("orders"), {"status": "failed"}, "sets status='processed'"),
        (Lifecycle("orders", lease=LEASED), {"status": "pending"}, "work.put_off"),
        (Lifecycle("orders"), Lifecycle("orders").anew(), "status='pending'"),
        (Lifecycle("orders", processed="completed"), {"status": "processed"}, "'completed'"),
        (Lifecycle("orders", flag="sent"), {"sent": False}, "sets sent=True"),
        (Lifecycle("orders", lease=LEASED), {"leaseUntil": None}, "leaseUntil"),
        (Lifecycle("orders"), {"leaseToken": "mine"}, "leaseToken"),
        (Lifecycle("orders"), {"lastOperation": "x"}, "lastOperation"),
    ],
)
async def test_a_field_that_the_commit_sets_itself_is_refused_in_a_document_of_the_event(
    lifecycle: Lifecycle, changes: dict[str, Any], fact: str
) -> None:
    service, after = Service("orders", lifecycles=[lifecycle]), list[str]()

    @service.on("OrderPlaced", documents=("orders", "ids"))
    async def ship(event: Event, work: Work) -> None:
        work.documents("orders").update("a", {"carrier": "post", **changes})
        after.append("the write")

    trial = Trial(service)
    await trial.put("orders", {"_id": "a"})
    await trial.publish("OrderPlaced", {"ids": "a"})
    await trial.run()
    letter = await only_letter(trial)
    assert (letter.abandoned_reason, letter.error_type) == ("non_retryable", "ValueError")
    assert re.search(rf"orders/a by {LINE} \S*ship: ", letter.last_error)
    assert fact in letter.last_error
    (order,) = await trial.documents("orders")
    assert (order["status"], order.get("carrier"), after) == ("failed", None, [])


async def test_what_the_commit_does_not_overwrite_can_be_written() -> None:
    flagged = Lifecycle("chunks", flag="embedded", lease=LEASED)
    service = Service("orders", lifecycles=[flagged, Lifecycle("orders", lease=LEASED)])

    @service.on("OrderPlaced", documents=("orders", "ids"))
    def ship(event: Event, work: BlockingWork) -> None:
        orders = work.documents("orders")
        orders.update("same", {"status": "processed", "lastError": None, "carrier": "post"})
        work.put_off("later")
        orders.update("later", {**Lifecycle("orders").anew(), "carrier": "none yet"})
        orders.update("foreign", {"status": "closed"})
        orders.update("of another event", {"status": "pending"})
        orders.insert_new({"_id": "new"})
        orders.update("new", {"status": "archived"})

    @service.on("Chunked", documents=("chunks", "ids"))
    async def embed(event: Event, work: Work) -> None:
        work.documents("chunks").update("c", {"embedded": True, "vector": [1]})

    trial = Trial(service)
    await trial.put("chunks", {"_id": "c"})
    foreign = {"_id": "foreign", "status": "open"}
    processed = {"_id": "of another event", "status": "processed"}
    await trial.put("orders", {"_id": "same"}, {"_id": "later"}, foreign, processed)
    await trial.publish("OrderPlaced", {"ids": ["same", "later", "foreign", "new"]})
    await trial.publish("Chunked", {"ids": "c"})
    await trial.run()
    assert await trial.letters("orders.failed") == []
    orders = {each["_id"]: each for each in await trial.documents("orders")}
    assert {name: each["status"] for name, each in orders.items()} == {
        "same": "processed",
        "later": "pending",
        "foreign": "closed",
        "of another event": "pending",
        "new": "archived",
    }
    assert (orders["same"]["carrier"], orders["later"]["carrier"]) == ("post", "none yet")
    assert [each["vector"] for each in await trial.documents("chunks")] == [[1]]


# A collection whose name is mistyped


async def requires(event: Event, work: Work) -> None:
    await work.documents("mesages").require(event.data["ids"])


def requires_in_a_thread(event: Event, work: BlockingWork) -> None:
    work.documents("mesages").require(event.data["ids"])


async def raises_itself(event: Event, work: Work) -> None:
    raise DocumentNotFoundError("mesages", event.data["ids"])


@pytest.mark.parametrize("there", [["messages"], ["letters"], ["messages", "mesages"]])
@pytest.mark.parametrize("handler", [requires, requires_in_a_thread, raises_itself])
async def test_a_mistyped_collection_is_named_when_a_document_is_not_found(
    handler: Callable[..., Any], there: list[str]
) -> None:
    trial = trial_of(handler, documents=("mesages", "ids"))
    for collection in there:
        await trial.put(collection, {"_id": "another"})
    await trial.publish("OrderPlaced", {"ids": ["m1"]})
    await trial.run()
    letter = await only_letter(trial)
    assert letter.last_error.startswith("DocumentNotFoundError: not found in mesages: m1")
    assert ("did you mean messages?" in letter.last_error) == (there == ["messages"])


# Work that outlives its handler

USES: list[Callable[[Any], Any]] = [
    lambda work: work.publish("OrderPaid", {}),
    lambda work: work.transaction(lambda _: None),
    lambda work: work.documents("orders").insert_new({"_id": "b"}),
    lambda work: work.documents("orders").add({}),
    lambda work: work.documents("orders").update("a", {}),
    lambda work: work.documents("orders").increment("a", "n"),
    lambda work: work.documents("orders").get("a"),
    lambda work: work.documents("orders").find({}),
]


@pytest.mark.parametrize("error", [None, ValueError()], ids=["success", "failure"])
@pytest.mark.parametrize("kind", ["task", "thread"])
async def test_what_outlives_its_handler_cannot_use_its_work(
    kind: str, error: Exception | None
) -> None:
    works: list[Any] = []

    def plain(event: Event, work: Any) -> None:
        works.append(work)
        if error is not None:
            raise error

    async def coroutine(event: Event, work: Work) -> None:
        plain(event, work)

    handler: Callable[..., Any] = coroutine if kind == "task" else plain
    trial = await ran(handler)
    for use in USES:
        late = calling(use)(None, works[0]) if kind == "task" else asyncio.to_thread(use, works[0])
        with pytest.raises(WorkOverError):
            await late
    assert await trial.documents("orders") == []


async def test_a_handler_that_catches_its_timeout_does_not_commit() -> None:
    async def placed(event: Event, work: Work) -> None:
        work.documents("orders").add({})
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    trial = await ran(placed, timeout=timedelta(milliseconds=5))
    letter = await only_letter(trial)
    assert (letter.error_type, letter.attempt_count) == ("HandlerTimeoutError", 2)
    assert await trial.documents("orders") == []


@pytest.mark.parametrize("ends", [True, False], ids=["once", "for ever"])
async def test_a_handler_that_catches_the_stop_of_its_worker_does_not_commit(
    *, ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    started, enough, caught = asyncio.Event(), asyncio.Event(), list[bool]()

    async def placed(event: Event, work: Work) -> None:
        work.documents("orders").add({})
        started.set()
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                caught.append(True)
                if ends:
                    return

    trial = trial_of(placed)
    await trial.publish("OrderPlaced", event_id="e1")
    async with asyncio.timeout(30):
        async with trial.running() as worker:
            await until(trial, started.is_set, at_most=MINUTE)
    assert caught
    assert await trial.documents("orders") == []
    assert worker.handlers_left == (0 if ends else 1)
    stuck = [line for line in caplog.messages if re.search(rf"placed .*{LINE}.*'e1'", line)]
    assert len(stuck) == (0 if ends else 1)
    enough.set()
    await asyncio.sleep(0)
    await trial.run()
    assert len(await trial.documents("orders")) == 1
    await assert_all_is_accounted_for(trial)


# Handlers that take long


def slow_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if " has run for " in each.getMessage()]


@pytest.mark.parametrize("limit", [timedelta(minutes=1), None])
async def test_a_slow_handler_is_named_in_each_attempt_at_growing_intervals(
    limit: timedelta | None, caplog: pytest.LogCaptureFixture
) -> None:
    orders = Service("orders", slow_after=limit)

    @orders.on("OrderPlaced")
    async def placed(event: Event, work: Work) -> None:
        await trial.clock.wait(timedelta(seconds=50 if event.event_id == "quick" else 300))
        if event.event_id == "slow" and work.attempt == 1:
            raise ConnectionError

    trial = Trial(orders)
    for event_id in ("quick", "slow"):
        await trial.publish("OrderPlaced", event_id=event_id)
    await trial.run()
    lines = slow_lines(caplog)
    found = [re.findall(r"run for (\d+) s .*'slow' .*attempt (\d)", each) for each in lines]
    told = [[(seconds, attempt)] for attempt in "12" for seconds in ("60", "120", "240")]
    assert found == ([] if limit is None else told)
    assert all(re.search(rf"{LINE} \S*placed .*{LINE}", line) for line in lines)


# Transactions


@pytest.mark.parametrize("suspends", [True, False])
async def test_a_transaction_callback_that_suspends_is_refused_and_the_line_is_named(
    *, suspends: bool
) -> None:
    async def write(tables: dict[str, Any]) -> None:
        tables["a"] = 1

    async def charge(tables: dict[str, Any]) -> None:
        await write(tables)
        if suspends:
            await asyncio.sleep(0)

    trial = await ran(calling(lambda work: work.transaction(charge)))
    assert trial.state.tables == ({} if suspends else {"a": 1})
    for letter in await trial.letters("orders.failed"):
        assert letter.abandoned_reason == "non_retryable"
        assert f"test_mistakes.py:{charge.__code__.co_firstlineno + 3}" in letter.last_error


# An exception that no rule knows


class CardDeclined(Exception):  # noqa: N818 (as people name theirs)
    pass


def charge() -> None:
    raise CardDeclined("insufficient funds")


@pytest.mark.parametrize(
    ("raises", "named"),
    [
        (charge, 1),
        (lambda: (_ for _ in ()).throw(ConnectionError()), 0),
        (lambda: dict[str, int]()["a"], 0),
    ],
    ids=["unknown", "ConnectionError", "KeyError"],
)
async def test_an_exception_that_no_rule_knows_is_named_once_with_the_cure(
    raises: Callable[[], Any], named: int, caplog: pytest.LogCaptureFixture
) -> None:
    await ran(calling(lambda _: raises()), None, None)
    lines = [line for line in caplog.messages if line.startswith("No rule matches")]
    assert len(lines) == named
    for line in lines:
        assert re.search(rf"test_mistakes\.CardDeclined, .* {LINE} charge", line)
        assert "headway.PermanentError" in line
