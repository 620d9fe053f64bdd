"""What is declared wrongly is refused before any event comes, by its name, place and value."""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from headway import (
    BlockingWork,
    ConfigurationError,
    Event,
    Lifecycle,
    RetryConfig,
    RetryPolicy,
    Service,
    Work,
    run_services,
)
from headway.retrying import (
    DEFAULT_CLASSIFIER,
    Classifier,
    Stepped,
    Verdict,
    rules_for,
)
from headway.settings import WorkerSettings
from headway.testing.trial import Trial
from tests.behaviour.scenes import MINUTE
from tests.behaviour.test_mistakes import Order, OrderDict, OrderModel


@dataclass
class Payment:
    payment_id: str


async def on_placed(event: Event, work: Work) -> None: ...


def on_plain(event: Event, work: BlockingWork) -> None: ...


async def awaited(event: Event) -> str:
    return ""


def of_event(event: Event) -> str:
    return ""


def of_nothing() -> str:
    return ""


def refused(handler: Any = on_placed, **arguments: Any) -> str:
    """Declare a handler, and give the message by which that is refused."""
    with pytest.raises(ConfigurationError) as error:
        Service("orders").on("OrderPlaced", **arguments)(handler)
    assert " at 0x" not in str(error.value)
    return str(error.value)


PAIR = ("orders", "order_id")
LEASED = Lifecycle("orders")
# Name and value of the argument, what is given besides, and what the message has to say.
WRONG: list[tuple[str, Any, dict[str, Any], str]] = [
    ("documents", "orders", {}, '=("orders", "order_id")'),
    ("documents", ("orders", ""), {}, "('orders', '')"),
    ("documents", (LEASED, "order_id"), {}, "Lifecycle"),
    ("documents", ("orders", 3), {}, "documents=3"),
    ("documents", ("orders", "oder_id"), {"data": Order}, "Did you mean 'order_id'?"),
    ("documents", ("orders", "customer"), {"data": OrderDict}, "order_id, total"),
    ("documents", ("orders", awaited), {"rebuild": of_event}, "awaited>"),
    ("documents", ("orders", of_event), {}, "rebuild="),
    ("rebuild", of_event, {}, "documents="),
    ("rebuild", {"a": 1}, {"documents": PAIR}, "{'a': 1}"),
    ("rebuild", awaited, {"documents": PAIR}, "awaited>"),
    ("dedup", "", {}, "dedup=''"),
    ("dedup", awaited, {}, "awaited>"),
    ("dedup", of_nothing, {}, "it takes ()"),
    ("dedup", "totl", {"data": OrderModel}, "Did you mean 'total'?"),
    ("failed", Order("7"), {}, "failed="),
    ("failed", "Order failed", {}, "'Order failed'"),
    ("failed", "OrderPlaced", {}, "again"),
    ("failed_data", of_event, {}, "failed="),
    ("failed_data", awaited, {"failed": "OrderFailed"}, "(event, facts)"),
    ("failed_data", of_event, {"failed": "OrderFailed"}, "it takes (event"),
    ("timeout", 5, {}, "timeout=timedelta(seconds=5)"),
    ("timeout", timedelta(), {}, "timedelta(0)"),
    ("queue", 3, {}, "queue=3"),
    ("queue", "orders.failed", {}, "'orders.failed'"),
    ("data", int, {}, "data=int"),
    ("data", dict, {}, "TypedDict"),
    ("data", of_event, {}, "of_event>"),
    ("data", Order("a"), {}, "Use data=Order"),
    ("data", OrderModel(order_id="a"), {}, "Use data=OrderModel"),
    ("data", Order | Payment, {}, "Order | "),
    ("data", NamedTuple("Pair", [("a", int)]), {}, "data=Pair"),
]


@pytest.mark.parametrize(("name", "value", "others", "decisive"), WRONG)
def test_a_wrong_argument_is_refused_with_its_name_its_place_and_the_cure(
    name: str, value: Any, others: dict[str, Any], decisive: str
) -> None:
    message = refused(**{name: value}, **others)
    assert message.startswith(f"Invalid {name}=")
    assert re.search(r"\(test_declarations\.py:\d+ on_placed\)", message)
    assert decisive in message


def test_an_argument_that_does_not_suit_the_handler_is_refused() -> None:
    message = refused(on_plain, timeout=timedelta(seconds=5))  # a thread cannot be stopped
    assert re.search(r"Invalid timeout=.*test_declarations\.py:\d+ on_plain", message)
    message = refused(typed, data=Payment)
    assert re.search(r"Invalid data=Payment.*Event\[Order\]", message)


def swapped(work: Any, event: Any) -> None: ...


class Shop:
    async def on_placed(self, event: Event, work: Work) -> None: ...


def yields(event: Event, work: Work) -> Iterator[None]:
    yield


async def yields_asynchronously(event: Event, work: Work) -> Any:
    yield


async def typed(event: Event[Order], work: Work) -> None: ...


@pytest.mark.parametrize(
    ("handler", "decisive"),
    [
        (of_nothing, r"<test_declarations\.py:\d+ of_nothing>"),
        (of_event, r"<test_declarations\.py:\d+ of_event>"),
        (lambda a, b, c: None, r"<test_declarations\.py:\d+ .*<lambda>"),
        (swapped, r"<test_declarations\.py:\d+ swapped>"),
        (Shop.on_placed, r"<test_declarations\.py:\d+ Shop.on_placed>"),
        (yields, r"<test_declarations\.py:\d+ yields>"),
        (yields_asynchronously, r"<test_declarations\.py:\d+ yields_asynchronously>"),
        (Order, "Invalid handler Order "),
        (None, "Invalid handler None "),
        (typed, "Use data=Order."),
    ],
)
def test_what_cannot_be_a_handler_is_refused_by_its_place(handler: Any, decisive: str) -> None:
    message = refused(handler)
    assert re.search(decisive, message)
    assert "OrderPlaced" in message


def test_the_decorator_without_an_event_type_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r'on_placed\): .*@orders\.on\("OrderPlaced"\)'):
        Service("orders").on(on_placed)  # type: ignore[arg-type]


@pytest.mark.parametrize("queue", [None, "orders.second"])
def test_a_second_handler_for_one_type_is_refused_and_the_first_is_named(queue: str | None) -> None:
    orders = Service("orders")
    first, second = orders.on("OrderPlaced"), orders.on("OrderPlaced", queue=queue)
    first(on_placed)
    for decorate in (second, orders.on("OrderPlaced", queue=queue)):
        with pytest.raises(ConfigurationError) as error:
            decorate(on_plain)
        assert re.search(r"test_declarations\.py:\d+ on_placed", str(error.value))


def test_two_types_cannot_share_a_queue() -> None:
    # Two events of one id, one of each type, would be taken for one.
    orders = Service("orders")
    orders.on("OrderPlaced", queue="orders.all")(on_placed)
    with pytest.raises(ConfigurationError, match=r"'orders\.all'"):
        orders.on("OrderCancelled", queue="orders.all")(on_placed)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retry", 5),
        ("lifecycles", ["orders"]),
        ("slow_after", 5),
        ("version", 2),
        ("version", "x" * 65),
        ("version", "a\nb"),
        ("version_grace", timedelta()),
        ("version_grace", timedelta(days=8)),
        ("announces", "OrderShipped"),
        ("announces", ["no type!"]),
    ],
)
def test_a_wrong_setting_of_a_service_is_refused(setting: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^Invalid {setting}="):
        Service("orders", **{setting: value})


@pytest.mark.parametrize(
    ("make", "decisive"),
    [
        (lambda: Lifecycle(None), r"Lifecycle\("),  # type: ignore[arg-type]
        (lambda: WorkerSettings(concurrency=0), "concurrency"),
        (lambda: WorkerSettings(prefetch=0), "prefetch"),
        (lambda: asyncio.run(run_services()), "service"),
    ],
)
def test_other_settings_that_cannot_work_are_refused(
    make: Callable[[], object], decisive: str
) -> None:
    with pytest.raises(ConfigurationError, match=decisive):
        make()


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "ä", "a/b", "a" * 101, "a\n"])
def test_names_that_no_engine_would_take_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^Invalid service="):
        Service(name)
    with pytest.raises(ConfigurationError, match=r"^Invalid event_type="):
        Service("orders").on(name)


def service(name: str, event_type: str = "OrderPlaced", **options: Any) -> Service:
    made = Service(name)
    made.on(event_type, **options)(on_placed)
    return made


@pytest.mark.parametrize(
    ("services", "decisive"),
    [
        ([Service("orders")], "orders"),
        ([service("orders"), service("orders", "OrderCancelled")], "'orders'"),
        (
            [service("orders"), service("billing", queue="orders.order.placed")],
            "'orders.order.placed'",
        ),
        ([service("orders"), service("billing", queue="orders.failed")], "orders.failed"),
    ],
    ids=["without a handler", "one name", "one queue", "the failed queue of another"],
)
async def test_services_that_cannot_run_are_refused(services: list[Service], decisive: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(decisive)):
        await Trial(*services).run()


TWO_DAYS = RetryPolicy(max_attempts=2, backoff=Stepped(steps=(MINUTE,)), ttl=timedelta(days=2))


@pytest.mark.parametrize(
    ("settings", "ttl"),
    [
        ({"retry": RetryConfig(ttl=timedelta(hours=2))}, "2:00:00"),
        ({"transient": TWO_DAYS}, "2 days"),
        ({}, "3:00:00"),  # it is reloaded
    ],
)
async def test_done_work_is_not_forgotten_while_a_copy_of_its_event_may_be_retried(
    settings: dict[str, Any], ttl: str
) -> None:
    orders = Service("orders", **settings)
    orders.on("OrderPlaced")(on_placed)
    trial = Trial(orders, settings=WorkerSettings(retention=timedelta(hours=1)))
    with pytest.raises(ConfigurationError, match=rf"retention=1:00:00.*{ttl}"):
        async with trial.running() as worker:
            worker.reload(RetryConfig(ttl=timedelta(hours=3)))


def test_a_classifier_without_the_default_rules_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = rules_for([LookupError], Verdict.PERMANENT)
    Service("orders", classifier=DEFAULT_CLASSIFIER.before([own]))
    assert caplog.messages == []
    Service("orders", classifier=Classifier(rules=(own,)))
    (line,) = caplog.messages
    assert "service orders" in line
    assert "DEFAULT_CLASSIFIER.before([...])" in line
