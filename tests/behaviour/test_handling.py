"""How events reach handlers, and what becomes of those that cannot."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headway import BlockingWork, ConfigurationError, Event, RetryConfig, RetryPolicy, Service, Work
from headway.errors import WorkOverError
from headway.retrying import Exponential
from headway.settings import WorkerSettings
from headway.testing.trial import Trial
from tests.behaviour.scenes import MINUTE, assert_all_is_accounted_for, reasons, until

LONG = timedelta(minutes=5)


class Order(msgspec.Struct):
    order: str
    price: int


def service_with(handler: Callable[..., Any], **settings: Any) -> Service:
    orders = Service("orders")
    orders.on("OrderPlaced", **settings)(handler)
    return orders


# Kinds of handlers


async def test_a_coroutine_is_given_the_event_and_its_work() -> None:
    seen: list[Event] = []

    async def handle(event: Event, work: Work) -> None:
        seen.append(event)
        work.documents("orders").insert_new({"_id": event.data["order"]})

    trial = Trial(service_with(handle))
    await trial.publish("OrderPlaced", {"order": "a"}, event_id="e1")
    await trial.run()
    assert [(e.event_type, e.event_id, e.data) for e in seen] == [
        ("OrderPlaced", "e1", {"order": "a"})
    ]
    assert await trial.documents("orders") == [{"_id": "a"}]


async def test_a_plain_function_runs_in_another_thread_and_its_writes_count_all_the_same() -> None:
    threads: list[int] = []

    def handle(event: Event, work: BlockingWork) -> None:
        threads.append(threading.get_ident())
        work.documents("orders").insert_new({"_id": event.data["order"]})

    trial = Trial(service_with(handle))
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.run()
    assert threads != [threading.get_ident()]
    assert await trial.documents("orders") == [{"_id": "a"}]


async def test_an_object_with_an_async_call_is_a_handler() -> None:
    class Handler:
        async def __call__(self, event: Event, work: Work) -> None:
            work.documents("orders").insert_new({"_id": event.data["order"]})

    trial = Trial(service_with(Handler()))
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.run()
    assert await trial.documents("orders") == [{"_id": "a"}]


async def test_a_coroutine_around_a_plain_function_is_still_a_coroutine() -> None:
    def plain(event: Event, work: Work) -> str:
        return str(event.data["order"])

    @functools.wraps(plain)
    async def handle(event: Event, work: Work) -> None:
        assert await work.documents("orders").get(plain(event, work)) is None
        work.documents("orders").insert_new({"_id": plain(event, work)})

    trial = Trial(service_with(handle))
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.run(at_most=LONG)
    assert await trial.documents("orders") == [{"_id": "a"}]


async def test_a_plain_function_that_gives_back_a_coroutine_is_awaited() -> None:
    async def inner(event: Event, work: BlockingWork) -> None:
        work.documents("orders").insert_new({"_id": event.data["order"]})

    def handle(event: Event, work: BlockingWork) -> Any:
        return inner(event, work)

    trial = Trial(service_with(handle))
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.run()
    assert await trial.documents("orders") == [{"_id": "a"}]


async def test_a_blocking_read_on_the_event_loop_is_refused_instead_of_stopping_everything() -> (
    None
):
    async def inner(event: Event, work: BlockingWork) -> None:
        work.documents("orders").get("a")

    def handle(event: Event, work: BlockingWork) -> Any:
        return inner(event, work)

    trial = Trial(service_with(handle))
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert letter.abandoned_reason == "non_retryable"
    assert "async def" in letter.last_error


# What cannot be read


async def test_data_is_read_into_the_type_that_the_subscription_names() -> None:
    seen: list[Order] = []

    async def handle(event: Event, work: Work) -> None:
        seen.append(event.data)

    trial = Trial(service_with(handle, data=Order))
    await trial.publish("OrderPlaced", {"order": "a", "price": 3})
    await trial.run()
    assert seen == [Order("a", 3)]


async def test_data_that_does_not_fit_is_a_letter_at_once_and_the_handler_never_sees_it() -> None:
    async def handle(event: Event, work: Work) -> None:
        raise AssertionError

    trial = Trial(service_with(handle, data=Order, failed="OrderFailed"))
    await trial.publish("OrderPlaced", {"order": "a", "price": "much"})
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert letter.abandoned_reason == "non_retryable"
    assert letter.error_type == "ValidationError"
    assert letter.original_event["data"] == {"order": "a", "price": "much"}


async def test_an_event_of_an_unknown_type_becomes_a_letter_with_its_bytes() -> None:
    async def handle(event: Event, work: Work) -> None:
        raise AssertionError

    trial = Trial(service_with(handle))
    await trial.open()
    body = b'{ "event_type": "OrderCancelled",  "data": {} }'
    await trial.publisher.publish_bytes(body, "OrderPlaced")
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert (letter.abandoned_reason, letter.body) == ("unroutable", body)
    assert letter.event_type == "OrderCancelled"
    await assert_all_is_accounted_for(trial)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00",
        b"not json",
        b"[]",
        b"{}",
        b'{"event_type": ""}',
        b'{"event_type": "OrderPlaced", "data": 3}',
        b'{"event_type": "OrderPlaced", "data": null}',
        b'{"event_type": "OrderPlaced"} and more',
        b'{"event_type": "OrderPlaced", "data": {"a": "\xff"}}',
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:40]),
)
async def test_bytes_that_are_no_event_become_a_letter_that_keeps_them(body: bytes) -> None:
    async def handle(event: Event, work: Work) -> None:
        raise AssertionError

    trial = Trial(service_with(handle))
    await trial.open()
    await trial.publisher.publish_bytes(body, "OrderPlaced")
    await trial.publish("OrderPlaced")
    await trial.run(at_most=LONG)
    letter = (await trial.letters("orders.failed"))[0]
    assert (letter.abandoned_reason, letter.body, letter.attempt_count) == ("malformed", body, 0)
    await assert_all_is_accounted_for(trial)


async def test_the_same_malformed_delivery_twice_is_one_letter() -> None:
    async def handle(event: Event, work: Work) -> None:
        raise AssertionError

    trial = Trial(service_with(handle))
    await trial.open()
    await trial.publisher.publish_bytes(b"!", "OrderPlaced", operation="o1")
    trial.state.duplicate("o1")
    await trial.run()
    assert await reasons(trial) == ["malformed"]


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

    trial = Trial(service_with(handle, **settings))
    await trial.publish("OrderPlaced", data, event_id="bad")
    await trial.publish("OrderPlaced", data, event_id="bad as well")
    await trial.publish("OrderPlaced", {"order": "a"}, event_id="good")
    await trial.run(at_most=LONG)
    assert await reasons(trial) == ["non_retryable", "non_retryable"]
    letters = await trial.letters("orders")
    assert all("data.order should hold" in each.last_error for each in letters)
    assert done == ["good"]


@pytest.mark.parametrize("key", [None, "", 7])
async def test_a_key_that_names_nothing_is_a_letter_and_not_a_duplicate_of_all_others(
    key: Any,
) -> None:
    async def handle(event: Event, work: Work) -> None:
        raise AssertionError

    trial = Trial(service_with(handle, dedup=lambda event: key))
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.publish("OrderPlaced", {"order": "b"})
    await trial.run(at_most=LONG)
    assert await reasons(trial) == ["non_retryable", "non_retryable"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ConnectionError(), "max_attempts_exceeded"), (KeyError("order"), "non_retryable")],
)
async def test_a_dedup_function_that_raises_ends_as_a_handler_would(
    error: Exception, reason: str
) -> None:
    async def handle(event: Event, work: Work) -> None:
        raise AssertionError

    def broken(event: Event) -> str:
        raise error

    trial = Trial(service_with(handle, dedup=broken))
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.run(at_most=LONG)
    assert await reasons(trial) == [reason]


# What handlers raise


class Unreadable(Exception):  # noqa: N818 (it is named for what it is)
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Abort(BaseException):
    """Not an Exception, as those of some libraries for cancellation."""


STRANGE = {
    "exit": (SystemExit(1), "max_attempts_exceeded", 2),
    "base": (Abort("stop it"), "max_attempts_exceeded", 2),
    "cancelled": (asyncio.CancelledError(), "max_attempts_exceeded", 2),
    "group": (ExceptionGroup("many", [OSError(), ValueError("x")]), "non_retryable", 0),
    "transient group": (ExceptionGroup("x", [ConnectionError()]), "max_attempts_exceeded", 2),
    "base group": (BaseExceptionGroup("x", [Abort()]), "max_attempts_exceeded", 2),
    "without words": (Unreadable(), "max_attempts_exceeded", 2),
    "surrogates": (RuntimeError("cannot read \udcff.txt"), "max_attempts_exceeded", 2),
    "nul": (RuntimeError("a\0b"), "max_attempts_exceeded", 2),
    "long": (RuntimeError("x" * 1_000_000), "max_attempts_exceeded", 2),
    "stop iteration": (StopIteration(), "max_attempts_exceeded", 2),
    "stop async iteration": (StopAsyncIteration(), "max_attempts_exceeded", 2),
}


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
@pytest.mark.parametrize("name", STRANGE)
async def test_whatever_a_handler_raises_is_a_failure_of_that_event_alone(
    name: str, kind: str
) -> None:
    error, reason, retries = STRANGE[name]
    done: list[str] = []

    def plain(event: Event, work: Work) -> None:
        if event.event_id == "bad":
            raise error
        done.append(event.event_id)

    async def coroutine(event: Event, work: Work) -> None:
        plain(event, work)

    trial = Trial(service_with(plain if kind == "plain" else coroutine))
    for event_id in ("one", "bad", "two"):
        await trial.publish("OrderPlaced", event_id=event_id)
    await trial.run(at_most=LONG)
    (letter,) = await trial.letters("orders.failed")
    assert (letter.abandoned_reason, letter.attempt_count) == (reason, retries)
    assert sorted(done) == ["one", "two"]
    assert msgspec.json.decode(msgspec.json.encode(letter), type=type(letter)) == letter


async def test_an_exception_without_words_still_has_its_type_in_the_letter() -> None:
    async def handle(event: Event, work: Work) -> None:
        raise Unreadable

    trial = Trial(service_with(handle))
    await trial.publish("OrderPlaced")
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert (letter.error_type, letter.last_error) == ("Unreadable", "Unreadable: ")


# Handlers beside each other


async def test_a_context_variable_of_one_handler_does_not_leak_into_the_next() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    seen: list[str] = []

    async def handle(event: Event, work: Work) -> None:
        seen.append(request.get())
        request.set(event.event_id)

    trial = Trial(service_with(handle), settings=WorkerSettings(concurrency=1))
    for n in range(5):
        await trial.publish("OrderPlaced", event_id=f"e{n}")
    await trial.run()
    assert seen == ["none"] * 5


async def test_a_context_variable_of_a_plain_function_does_not_leak_either() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    seen: list[str] = []

    def handle(event: Event, work: BlockingWork) -> None:
        seen.append(request.get())
        request.set(event.event_id)

    trial = Trial(service_with(handle), settings=WorkerSettings(concurrency=1))
    for n in range(5):
        await trial.publish("OrderPlaced", event_id=f"e{n}")
    await trial.run()
    assert seen == ["none"] * 5


async def test_a_handler_that_waits_holds_up_its_own_lane_only() -> None:
    done: list[str] = []
    go_on = asyncio.Event()

    async def handle(event: Event, work: Work) -> None:
        if event.event_id == "slow":
            await go_on.wait()
        done.append(event.event_id)

    trial = Trial(service_with(handle), settings=WorkerSettings(concurrency=2))
    for event_id in ("slow", "a", "b", "c", "d", "e", "f"):
        await trial.publish("OrderPlaced", event_id=event_id)
    async with trial.running():
        await until(trial, lambda: len(done) == 6, at_most=MINUTE)
        go_on.set()
        await until(trial, lambda: len(done) == 7, at_most=MINUTE)
    assert done == ["a", "b", "c", "d", "e", "f", "slow"]


async def test_no_more_handlers_run_at_once_than_was_said() -> None:
    running, most = 0, 0

    async def handle(event: Event, work: Work) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trial.clock.wait(timedelta(seconds=1))
        running -= 1

    trial = Trial(service_with(handle), settings=WorkerSettings(concurrency=3))
    for _ in range(12):
        await trial.publish("OrderPlaced")
    await trial.run()
    assert most == 3


async def test_an_attempt_that_takes_too_long_is_ended_and_tried_again() -> None:
    attempts: list[int] = []

    async def handle(event: Event, work: Work) -> None:
        attempts.append(work.attempt)
        if work.attempt == 1:
            await asyncio.Event().wait()

    trial = Trial(service_with(handle, timeout=timedelta(milliseconds=5)))
    await trial.publish("OrderPlaced")
    await trial.run()
    assert attempts == [1, 2]
    assert (await trial.count()).done == 1


async def test_what_a_handler_writes_after_it_has_returned_is_refused() -> None:
    errors: list[Exception] = []
    tasks: list[asyncio.Task[None]] = []

    async def afterwards(work: Work) -> None:
        await trial.clock.wait(timedelta(seconds=1))
        orders = work.documents("orders")
        writes: list[Callable[[], None]] = [
            lambda: work.publish("OrderShipped"),
            lambda: work.transaction(lambda tables: None),
            lambda: orders.insert_new({"_id": "late"}),
            lambda: orders.add({}),
            lambda: orders.update("a", {}),
            lambda: orders.increment("a", "n"),
        ]
        for write in writes:
            try:
                write()
            except WorkOverError as error:
                errors.append(error)

    async def handle(event: Event, work: Work) -> None:
        tasks.append(asyncio.create_task(afterwards(work)))

    trial = Trial(service_with(handle))
    await trial.publish("OrderPlaced")
    await trial.run()
    await asyncio.gather(*tasks)
    assert len(errors) == 6
    assert "await every task" in str(errors[0])
    assert await trial.documents("orders") == []


async def test_an_attempt_that_failed_cannot_be_written_to_either() -> None:
    works: list[Work] = []

    async def handle(event: Event, work: Work) -> None:
        works.append(work)
        raise ValueError

    trial = Trial(service_with(handle))
    await trial.publish("OrderPlaced")
    await trial.run()
    with pytest.raises(WorkOverError):
        works[0].publish("OrderShipped")


# Several handlers


async def test_two_services_get_the_same_event_each() -> None:
    seen: list[str] = []
    services = [Service("billing"), Service("shipping")]
    for service in services:

        @service.on("OrderPlaced")
        async def handle(event: Event, work: Work, name: str = service.name) -> None:
            seen.append(name)

    trial = Trial(*services)
    assert await trial.publish("OrderPlaced") == 2
    await trial.run()
    assert sorted(seen) == ["billing", "shipping"]


def test_a_second_handler_for_a_type_is_refused() -> None:
    async def handle(event: Event, work: Work) -> None: ...

    orders = Service("orders")
    orders.on("OrderPlaced")(handle)
    with pytest.raises(ConfigurationError, match="OrderPlaced has a handler already"):
        orders.on("OrderPlaced", queue="orders.second")(handle)


async def test_services_that_share_a_failed_queue_each_have_their_letter_in_it() -> None:
    async def handle(event: Event, work: Work) -> None:
        raise ValueError

    services = [Service(name, failed_queue="all.failed") for name in ("billing", "shipping")]
    for service in services:
        service.on("OrderPlaced")(handle)
    trial = Trial(*services)
    await trial.publish("OrderPlaced")
    await trial.run()
    letters = await trial.letters("all.failed")
    assert sorted(letter.service_name for letter in letters) == ["billing", "shipping"]
    await assert_all_is_accounted_for(trial)


def test_two_types_cannot_share_a_queue() -> None:
    # Two events of one id, one of each type, would be taken for one.
    async def handle(event: Event, work: Work) -> None: ...

    orders = Service("orders")
    orders.on("OrderPlaced", queue="orders.all")(handle)
    with pytest.raises(ConfigurationError, match="Use a queue for each type"):
        orders.on("OrderCancelled", queue="orders.all")(handle)


# What is refused before anything starts


async def nothing(event: Event, work: Work) -> None: ...


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "ä", "a/b", "a" * 101, "a\n"])
def test_names_that_no_engine_would_take_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="Invalid service="):
        Service(name)
    with pytest.raises(ConfigurationError, match="Invalid event_type="):
        Service("orders").on(name)


def test_a_second_handler_for_the_same_queue_and_type_is_refused() -> None:
    orders = service_with(nothing)
    with pytest.raises(ConfigurationError, match="has a handler already"):
        orders.on("OrderPlaced")(nothing)


def test_a_second_handler_is_refused_however_it_is_subscribed() -> None:
    orders = Service("orders")
    first, second = orders.on("OrderPlaced"), orders.on("OrderPlaced")
    first(nothing)
    with pytest.raises(ConfigurationError, match="has a handler already"):
        second(nothing)


def test_a_queue_cannot_be_the_failed_queue() -> None:
    with pytest.raises(ConfigurationError, match="letters are kept there"):
        Service("orders").on("OrderPlaced", queue="orders.failed")(nothing)


@pytest.mark.parametrize("handler", [lambda event: None, lambda a, b, c: None, "no", None])
def test_what_does_not_take_an_event_and_its_work_is_no_handler(handler: Any) -> None:
    with pytest.raises(ConfigurationError, match="Invalid handler"):
        Service("orders").on("OrderPlaced")(handler)


def test_a_plain_function_cannot_have_a_timeout() -> None:
    with pytest.raises(ConfigurationError, match="a thread, which cannot be stopped"):
        service_with(lambda event, work: None, timeout=timedelta(seconds=1))


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_timeout_must_leave_time(seconds: int) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        service_with(nothing, timeout=timedelta(seconds=seconds))


async def run(*services: Service) -> None:
    async with Trial(*services).running():
        pass


async def test_a_service_without_a_handler_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="handles nothing"):
        await run(Service("orders"))


async def test_two_services_with_one_name_are_refused() -> None:
    other = Service("orders")
    other.on("OrderCancelled")(nothing)
    with pytest.raises(ConfigurationError, match="service 'orders' is there twice"):
        await run(service_with(nothing), other)


async def test_two_services_with_one_queue_are_refused() -> None:
    other = Service("billing")
    other.on("OrderPlaced", queue="orders.order.placed")(nothing)
    with pytest.raises(ConfigurationError, match=r"queue 'orders\.order\.placed' is there twice"):
        await run(service_with(nothing), other)


async def test_a_queue_that_is_the_failed_queue_of_another_service_is_refused() -> None:
    other = Service("billing")
    other.on("OrderPlaced", queue="orders.failed")(nothing)
    with pytest.raises(ConfigurationError, match=r"orders\.failed"):
        await run(service_with(nothing), other)


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"concurrency": -1}, {"prefetch": 0}])
def test_a_worker_that_would_do_nothing_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="whole number from 1"):
        WorkerSettings(**settings)  # type: ignore[arg-type]


TWO_DAYS = RetryPolicy(
    max_attempts=2, backoff=Exponential(base=MINUTE, cap=MINUTE), ttl=timedelta(days=2)
)


@pytest.mark.parametrize(
    ("service", "ttl"),
    [
        ({"retry": RetryConfig(ttl=timedelta(hours=2))}, "2:00:00"),
        ({"transient": TWO_DAYS}, "2 days"),
        ({}, "0:30:00"),
    ],
)
async def test_done_work_is_not_forgotten_while_a_copy_of_its_event_may_be_retried(
    service: dict[str, Any], ttl: str
) -> None:
    orders = Service("orders", **service)
    orders.on("OrderPlaced")(nothing)
    settings = WorkerSettings(retention=timedelta(minutes=30))
    with pytest.raises(ConfigurationError, match=rf"retention=0:30:00 for service 'orders'.*{ttl}"):
        async with Trial(orders, settings=settings).running():
            pass


async def test_reloaded_retries_that_outlast_the_records_of_done_work_are_refused() -> None:
    orders = service_with(nothing)
    async with Trial(orders, settings=WorkerSettings(retention=timedelta(hours=1))).running() as it:
        with pytest.raises(ConfigurationError, match=r"retention=1:00:00.*3:00:00"):
            it.reload(RetryConfig(ttl=timedelta(hours=3)))


async def test_what_has_ended_is_committed_while_handlers_that_never_wait_go_on() -> None:
    committed: list[int] = []

    async def handle(event: Event, work: Work) -> None:
        trial.clock.advance(timedelta(milliseconds=1))
        committed.append(len(trial.state.records))

    trial = Trial(service_with(handle))
    for number in range(20):
        await trial.publish("OrderPlaced", {"order": str(number)})
    await trial.run()
    assert len(committed) == 20
    behind = [number - done for number, done in enumerate(committed)]
    assert max(behind) < 10
