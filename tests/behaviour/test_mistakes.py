"""Typical mistakes of people who write handlers: none passes silently, each has its message."""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from headway import (
    BlockingWork,
    ConfigurationError,
    DocumentNotFoundError,
    Event,
    Lifecycle,
    Service,
    Work,
    handle_event_with_retry,
    run_services,
)
from headway.operations import Letter
from headway.retrying import DEFAULT_CLASSIFIER, Classifier, Verdict, rules_for
from headway.testing.trial import Trial
from tests.behaviour.scenes import MINUTE, assert_all_is_accounted_for, until

T = TypeVar("T")
DAY = timedelta(days=1)


class Order(msgspec.Struct):
    order_id: str
    total: int = 0


class Payment(msgspec.Struct):
    payment_id: str


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


class Boxed(msgspec.Struct, Generic[T]):
    order_id: str
    content: T | None = None


async def on_placed(event: Event, work: Work) -> None: ...


def on_plain(event: Event, work: BlockingWork) -> None: ...


HERE = r"\(test_mistakes\.py:\d+ on_placed\)"


def refused(handler: Any = on_placed, **arguments: Any) -> str:
    """Declare a handler, and give the words by which that is refused."""
    with pytest.raises(ConfigurationError) as error:
        Service("orders").on("OrderPlaced", **arguments)(handler)
    assert "is not accepted" not in str(error.value)
    assert " at 0x" not in str(error.value)
    return str(error.value)


# What is declared wrongly


async def awaited(event: Event) -> str:
    return ""


def of_event(event: Event) -> str:
    return ""


def of_nothing() -> str:
    return ""


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "collection alone": (
        {"documents": "orders"},
        (
            rf"^Invalid documents='orders' for OrderPlaced {HERE}: it is no pair of a collection "
            r'and the field that holds the ids\. Use documents=\("orders", "order_id"\)\.$'
        ),
    ),
    "a list": (
        {"documents": ["orders", "order_id"]},
        r"Invalid documents=\['orders', 'order_id'\]",
    ),
    "three": ({"documents": ("orders", "a", "b")}, r"Invalid documents=\('orders', 'a', 'b'\) for"),
    "one": ({"documents": ("orders",)}, r"Invalid documents=\('orders',\) for OrderPlaced"),
    "empty collection": ({"documents": ("", "order_id")}, r"Invalid documents=\('', 'order_id'\)"),
    "empty field": ({"documents": ("orders", "")}, r"the name of the field is empty"),
    "collection of a number": (
        {"documents": (1, "order_id")},
        r"Invalid documents=\(1, 'order_id'\)",
    ),
    "a lifecycle": (
        {"documents": (Lifecycle("orders"), "order_id")},
        "it is no pair of a collection",
    ),
    "field of a number": ({"documents": ("orders", 3)}, r"Invalid documents=3 .*it is no function"),
    "field of another type": (
        {"documents": ("orders", "oder_id"), "data": Order},
        (
            rf"Invalid documents=\('orders', 'oder_id'\) for OrderPlaced {HERE}: Order has no "
            r"field 'oder_id'\. Did you mean 'order_id'\?"
        ),
    ),
    "field of no data": (
        {"documents": ("orders", "customer"), "data": OrderDict},
        r"OrderDict has no field 'customer'\. Use one of order_id, total\.",
    ),
    "a coroutine for ids": (
        {"documents": ("orders", awaited), "rebuild": of_event},
        r"Invalid documents=<test_mistakes\.py:\d+ awaited>.*it is a coroutine function",
    ),
    "ids without rebuild": (
        {"documents": ("orders", of_event)},
        r"Invalid documents=\('orders', <test_mistakes.py:\d+ of_event>\).*Use rebuild= with it",
    ),
    "rebuild alone": (
        {"rebuild": of_event},
        r"Invalid rebuild=<test_mistakes.py:\d+ of_event>.*Use documents=\(",
    ),
    "rebuild is no function": (
        {"documents": ("orders", "order_id"), "rebuild": {"a": 1}},
        r"Invalid rebuild=\{'a': 1\}.*it is no function\. Use a plain function \(document\)",
    ),
    "rebuild awaits": (
        {"documents": ("orders", "order_id"), "rebuild": awaited},
        r"Invalid rebuild=<.* awaited>.*coroutine function",
    ),
    "dedup of a number": (
        {"dedup": 7},
        r"Invalid dedup=7 .*it is no function\. Use a plain function",
    ),
    "dedup of a list": ({"dedup": ["order_id"]}, r"Invalid dedup=\['order_id'\]"),
    "dedup is empty": ({"dedup": ""}, r"Invalid dedup='' .*the name of the field is empty"),
    "dedup awaits": ({"dedup": awaited}, r"Invalid dedup=<.*awaited>.*it is a coroutine function"),
    "dedup takes nothing": ({"dedup": of_nothing}, r"Invalid dedup=<.*of_nothing>.*it takes \(\)"),
    "dedup of another type": (
        {"dedup": "totl", "data": OrderModel},
        r"Invalid dedup='totl'.*OrderModel has no field 'totl'\. Did you mean 'total'\?",
    ),
    "failed is a type": ({"failed": Order}, r"Invalid failed=Order .*Use a text"),
    "failed is no name": ({"failed": "Order failed"}, r"Invalid failed='Order failed' \(test_mist"),
    "failed is empty": ({"failed": ""}, r"Invalid failed=''"),
    "failed is the same": ({"failed": "OrderPlaced"}, r"it would fail again and again"),
    "failed_data alone": ({"failed_data": of_event}, r"Invalid failed_data=.*there is no failed="),
    "failed_data awaits": (
        {"failed": "OrderFailed", "failed_data": awaited},
        r"Invalid failed_data=<.*awaited>.*coroutine.*Use a plain function \(event, facts\)",
    ),
    "failed_data takes one": (
        {"failed": "OrderFailed", "failed_data": of_event},
        r"Invalid failed_data=<.*of_event>.*it takes \(event",
    ),
    "failed_data is data": ({"failed": "F", "failed_data": {}}, r"Invalid failed_data=\{\}"),
    "seconds": (
        {"timeout": 5},
        (
            rf"Invalid timeout=5 for OrderPlaced {HERE}: it is no duration\. Use "
            r"timeout=timedelta\(seconds=5\)\."
        ),
    ),
    "no time": ({"timeout": timedelta()}, r"Invalid timeout=datetime.timedelta\(0\).*positive"),
    "queue of a number": ({"queue": 3}, r"Invalid queue=3 \(test_mistakes.py:\d+ on_placed\): use"),
    "queue is empty": ({"queue": ""}, r"Invalid queue=''"),
    "queue of letters": (
        {"queue": "orders.failed"},
        r"Invalid queue='orders.failed'.*dead letters",
    ),
    "int": ({"data": int}, rf"Invalid data=int for OrderPlaced {HERE}: .*Use a msgspec Struct, a"),
    "str": ({"data": str}, "Invalid data=str"),
    "a list of orders": ({"data": list[Order]}, r"Invalid data=list\["),
    "a dict": ({"data": dict}, r"Invalid data=dict .*Leave data= out, or use a TypedDict"),
    "dict of": ({"data": dict[str, int]}, r"Leave data= out, or use a TypedDict"),
    "a function": ({"data": of_event}, r"Invalid data=<test_mistakes.py:\d+ of_event>"),
    "an instance": (
        {"data": Order("a")},
        r"Invalid data=Order\(.*this is an instance. Use data=Order",
    ),
    "an instance of pydantic": ({"data": OrderModel(order_id="a")}, r"Use data=OrderModel\."),
    "a union": ({"data": Order | Payment}, r"Invalid data="),
    "a tuple": ({"data": NamedTuple("Pair", [("a", int)])}, r"Invalid data=Pair"),
    "a base class": ({"data": msgspec.Struct}, r"Invalid data=Struct"),
    "the base of models": ({"data": pydantic.BaseModel}, r"Invalid data=BaseModel"),
    "a name": ({"data": "Order"}, r"Invalid data='Order'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_with_its_name_its_value_and_the_cure(name: str) -> None:
    arguments, message = WRONG[name]
    assert re.search(message, refused(**arguments))


def test_a_timeout_of_a_plain_function_is_refused() -> None:
    said = refused(on_plain, timeout=timedelta(seconds=5))
    assert re.search(r"Invalid timeout=.*test_mistakes\.py:\d+ on_plain.*Use async def", said)


def without_arguments() -> None: ...


def with_one(event: Event) -> None: ...


def swapped(work: Any, event: Any) -> None: ...


class Shop:
    async def on_placed(self, event: Event, work: Work) -> None: ...


def yields(event: Event, work: Work) -> Iterator[None]:
    yield


async def typed(event: Event[Order], work: Work) -> None: ...


HANDLERS: dict[str, tuple[Any, str]] = {
    "no arguments": (
        without_arguments,
        r"without_arguments>.*it takes \(\).*Use \(event, work\)\.",
    ),
    "one argument": (with_one, r"with_one>.*it does not take two arguments"),
    "swapped": (swapped, r"swapped>.*it is called \(event, work\)\. Swap"),
    "a method": (Shop.on_placed, r"Shop\.on_placed>.*service\.on\(\.\.\.\)\(thing\.method\)"),
    "a yield": (yields, r"yields>.*it has a yield in it, so calling it runs nothing"),
    "a class": (Order, r"Invalid handler Order for OrderPlaced: it is no function"),
    "text": ("on_placed", r"Invalid handler 'on_placed' for OrderPlaced: it is no function"),
    "nothing": (None, r"Invalid handler None for OrderPlaced"),
    "no data=": (typed, r"test_mistakes\.py:\d+ typed.*Event\[Order\].*Use data=Order\."),
}


@pytest.mark.parametrize("name", HANDLERS)
def test_what_cannot_be_a_handler_is_refused_by_its_place(name: str) -> None:
    handler, message = HANDLERS[name]
    assert re.search(message, refused(handler))


def test_a_handler_that_expects_another_type_is_refused() -> None:
    said = refused(typed, data=Payment)
    assert re.search(r"Invalid data=Payment .*typed\).*Event\[Order\]", said)


def test_the_decorator_without_an_event_type_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r'on_placed\): .* Use @orders\.on\("OrderPlaced"\)'
    ):
        Service("orders").on(on_placed)  # type: ignore[arg-type]


def test_a_second_handler_for_one_type_is_refused_and_the_first_is_named() -> None:
    orders = Service("orders")
    orders.on("OrderPlaced")(on_placed)
    with pytest.raises(ConfigurationError) as error:
        orders.on("OrderPlaced")(on_plain)
    message = r"test_mistakes\.py:\d+ on_plain: OrderPlaced has a handler already in orders, "
    assert re.search(message + r"test_mistakes\.py:\d+ on_placed", str(error.value))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retry": 5}, r"Invalid retry=5 of service 'orders'\. Use a RetryConfig"),
        ({"transient": 3}, r"Invalid transient=3 .*Use a RetryPolicy"),
        ({"classifier": dict}, r"Invalid classifier=.*Use a Classifier"),
        ({"lifecycles": Lifecycle("orders")}, r"Invalid lifecycles=Lifecycle.*Use a list"),
        ({"lifecycles": ["orders"]}, r"Invalid lifecycles=\['orders'\].*Lifecycle\(\"orders\"\)"),
        ({"slow_after": 5}, r"Invalid slow_after=5 .*Use a timedelta"),
        ({"slow_after": timedelta()}, r"Invalid slow_after=0:00:00 .*positive"),
    ],
)
def test_a_wrong_setting_of_a_service_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Service("orders", **settings)


@pytest.mark.parametrize("collection", [None, "", 3])
def test_a_lifecycle_without_the_name_of_a_collection_is_refused(collection: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Invalid Lifecycle\(.*Use Lifecycle\("):
        Lifecycle(collection)


async def test_a_service_without_handlers_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match="service 'orders' handles nothing: subscribe a"):
        await Trial(Service("orders")).run()


def test_a_service_is_not_called() -> None:
    with pytest.raises(TypeError, match="'Service' object is not callable"):
        Service("orders")("OrderPlaced")  # type: ignore[operator]


# data=


@pytest.mark.parametrize(
    "kind", [Order, OrderData, OrderDict, OrderModel, PydanticData, Boxed[int]], ids=str
)
async def test_data_is_read_into_each_kind_of_type(kind: Any) -> None:
    seen: list[Any] = []
    orders = Service("orders")

    @orders.on("OrderPlaced", data=kind, dedup="order_id", documents=("orders", "order_id"))
    async def placed(event: Event, work: Work) -> None:
        seen.append(event.data)

    trial = Trial(orders)
    await trial.publish("OrderPlaced", {"order_id": "a", "total": 3})
    await trial.publish("OrderPlaced", {"order_id": 5, "total": 3})
    await trial.run()
    (data,) = seen
    assert isinstance(data, dict if kind is OrderDict else getattr(kind, "__origin__", kind))
    assert (data["order_id"] if isinstance(data, dict) else data.order_id) == "a"
    (letter,) = await trial.letters("orders.failed")
    assert (letter.error_type, letter.abandoned_reason) == ("ValidationError", "non_retryable")
    assert "order_id" in letter.last_error


async def test_a_pydantic_model_refuses_by_the_field_and_shows_no_value() -> None:
    orders = Service("orders")
    orders.on("OrderPlaced", data=Aliased)(on_placed)
    trial = Trial(orders)
    wrong = {"orderId": ["hunter2"], "password": 5, "total": -1}
    await trial.publish("OrderPlaced", wrong)
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert letter.error_type == "ValidationError"
    assert letter.last_error == (
        "ValidationError: Input should be a valid string - at `$.orderId`; Input should be a valid "
        "string - at `$.password`; Value error, a total is not negative - at `$.total`"
    )
    assert not any("hunter2" in str(each) for each in letter.attempts)


async def test_a_pydantic_model_is_published_as_its_consumer_reads_it() -> None:
    seen: list[Aliased] = []
    orders, shipping = Service("orders"), Service("shipping")

    @orders.on("OrderPlaced", data=OrderModel)
    async def placed(event: Event[OrderModel], work: Work) -> None:
        work.publish("OrderPaid", Aliased(orderId=event.data.order_id, total=event.data.total))

    @shipping.on("OrderPaid", data=Aliased)
    async def paid(event: Event[Aliased], work: Work) -> None:
        seen.append(event.data)

    trial = Trial(orders, shipping)
    await trial.publish("OrderPlaced", OrderModel(order_id="a", total=4))
    await trial.run()
    assert [(each.order_id, each.total) for each in seen] == [("a", 4)]


# Reads that are not awaited


async def run_once(handler: Callable[..., Any], **arguments: Any) -> tuple[Trial, Sequence[Letter]]:
    orders = Service("orders")
    orders.on("OrderPlaced", **arguments)(handler)
    trial = Trial(orders)
    await trial.publish("OrderPlaced", {"order_id": "a"}, event_id="e1")
    await trial.run(at_most=DAY)
    await assert_all_is_accounted_for(trial)
    return trial, await trial.letters("orders.failed")


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
        work.publish("OrderPaid", {})

    trial, (letter,) = await run_once(placed)
    assert letter.abandoned_reason == "non_retryable"
    assert letter.error_type == "NotAwaitedError"
    line = READS[name].__code__.co_firstlineno
    assert f".placed never awaited work.documents('orders').{name}() at " in letter.last_error
    assert f"at test_mistakes.py:{line}" in letter.last_error
    assert re.match(r"NotAwaitedError: test_mistakes\.py:\d+ ", letter.last_error)
    assert await trial.documents("orders") == []
    assert (await trial.count()).accepted == 1


async def test_every_read_that_was_never_awaited_is_named() -> None:
    async def placed(event: Event, work: Work) -> None:
        orders = work.documents("orders")
        if orders.get("a"):  # type: ignore[truthy-bool]
            orders.find({})  # type: ignore[unused-coroutine]

    _, (letter,) = await run_once(placed)
    assert letter.last_error.count("test_mistakes.py:") == 3


async def test_reads_may_be_awaited_in_any_way() -> None:
    seen: list[Any] = []

    async def placed(event: Event, work: Work) -> None:
        orders = work.documents("orders")
        seen.append(await asyncio.gather(orders.get("a"), orders.find({})))
        seen.append(await asyncio.create_task(orders.get("a")))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(orders.get("a"))
        seen.append(task.result())
        late = orders.get("a")
        seen.append(await asyncio.wait_for(late, 5))

    _, letters = await run_once(placed)
    assert not letters
    assert len(seen) == 4


async def test_an_error_of_the_handler_says_more_than_its_forgotten_read() -> None:
    async def placed(event: Event, work: Work) -> None:
        forgotten = work.documents("orders").get("a")
        try:
            raise KeyError("total")
        finally:
            forgotten.close()

    _, (letter,) = await run_once(placed)
    assert letter.error_type == "KeyError"


# What handlers do


async def returns_coroutine(event: Event, work: Work) -> Any:
    return asyncio.sleep(0)


async def returns_a_read(event: Event, work: Work) -> Any:
    return work.documents("orders").get("a")


async def awaits_publish(event: Event, work: Work) -> None:
    await work.publish("OrderPaid", {})  # type: ignore[func-returns-value,misc]


async def awaits_deeper(event: Event, work: Work) -> None:
    await _awaits_update(work)


async def _awaits_update(work: Work) -> None:
    await work.documents("orders").update("a", {})  # type: ignore[func-returns-value,misc]


async def publishes_a_number(event: Event, work: Work) -> None:
    work.publish("OrderPaid", 3)


async def publishes_an_object(event: Event, work: Work) -> None:
    work.publish("OrderPaid", object())


async def publishes_a_class(event: Event, work: Work) -> None:
    work.publish("OrderPaid", Order)


async def publishes_without_a_type(event: Event, work: Work) -> None:
    work.publish(Order("a"))  # type: ignore[arg-type]


async def changes_the_event(event: Event, work: Work) -> None:
    event.data = {}  # type: ignore[misc]


async def reads_by_a_number(event: Event, work: Work) -> None:
    await work.documents("orders").get(5)  # type: ignore[arg-type]


async def requires_numbers(event: Event, work: Work) -> None:
    await work.documents("orders").require([5])  # type: ignore[list-item]


async def finds_by_a_text(event: Event, work: Work) -> None:
    await work.documents("orders").find("status")  # type: ignore[arg-type]


async def names_no_collection(event: Event, work: Work) -> None:
    work.documents(None).add({})  # type: ignore[arg-type]


async def no_transaction(event: Event, work: Work) -> None:
    work.transaction("update orders")  # type: ignore[arg-type]


async def awaits_elsewhere(event: Event, work: Work) -> None:
    def read() -> None:
        asyncio.run(_get(work))

    await asyncio.to_thread(read)


async def _get(work: Work) -> None:
    await work.documents("orders").get("a")


async def inner(event: Event, work: BlockingWork) -> None:
    work.documents("orders").get("a")


def returns_a_blocking_read(event: Event, work: BlockingWork) -> Any:
    return inner(event, work)


def runs_a_read(event: Event, work: BlockingWork) -> None:
    asyncio.run(work.documents("orders").find({}))  # type: ignore[arg-type]


def completes_a_read(event: Event, work: BlockingWork) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.run_until_complete(work.documents("orders").get("a"))  # type: ignore[arg-type]


def awaits_a_plain_read(event: Event, work: BlockingWork) -> None:
    async def read() -> None:
        await work.documents("orders").find({})  # type: ignore[misc]

    asyncio.run(read())


PLAIN = (
    r"Error: .*: test_mistakes\.py:\d+ awaits, or runs in an event loop, what is no coroutine\. "
    r"If it is a call of work or work\.documents, write it without await and asyncio\.run: "
    r"in a plain handler such a call returns its result"
)
DEEDS: dict[Callable[..., Any], str] = {
    runs_a_read: PLAIN,
    completes_a_read: PLAIN,
    awaits_a_plain_read: PLAIN,
    returns_coroutine: r"TypeError: Invalid handler test_mistakes\.py:\d+ returns_coroutine: it "
    r"returned a coroutine, of which nothing has run\. Await it",
    returns_a_read: r"NotAwaitedError: test_mistakes\.py:\d+ returns_a_read never awaited work",
    awaits_publish: r"TypeError: .*NoneType.*await.*: test_mistakes\.py:\d+ awaits a call that "
    r"returns nothing\. If it is work\.publish, .*, write it without await",
    awaits_deeper: r"TypeError: .*NoneType.*await.*: test_mistakes\.py:\d+ awaits a call that "
    r"returns nothing\. .* or update .*, write it without await",
    publishes_a_number: r"Invalid data of OrderPaid: data is a JSON object, and this is int\. Use",
    publishes_an_object: r"UnsendableError: OrderPaid cannot be published: .*object",
    publishes_a_class: r"UnsendableError: OrderPaid cannot be published: .*type",
    publishes_without_a_type: r"ConfigurationError: Invalid event_type=Order\(order_id='a'",
    changes_the_event: r"AttributeError: immutable type: 'Event': test_mistakes\.py:\d+ sets a "
    r"field of the event, which stays as it came\. Keep the value in a variable, or publish it",
    reads_by_a_number: r"ValueError: orders: 5 is no id: use a text",
    requires_numbers: r"ValueError: orders: 5 is no id: use a text",
    finds_by_a_text: r"TypeError: orders: find\('status'\) is no dict of fields\. Use find",
    names_no_collection: r"ValueError: Invalid work\.documents\(None\): .*Use a text",
    no_transaction: r"TypeError: Invalid work\.transaction\('update orders'\): it is no function",
    awaits_elsewhere: r"work\.documents\('orders'\)\.get\(\) at test_mistakes\.py:\d+ is awaited "
    r"in another event loop .*plain function",
    returns_a_blocking_read: r"make that one `async def`",
}


# What the commit of an event sets itself

LEASED = timedelta(minutes=1)
LOST: dict[str, tuple[Lifecycle, dict[str, Any], str]] = {
    "own word": (
        Lifecycle("orders"),
        {"status": "shipped"},
        (
            r"ValueError: Invalid update of orders/a by test_mistakes\.py:\d+ \S*ship: "
            r"status='shipped' would be lost, because the commit of this event sets "
            r"status='processed' itself\. Leave status out: .* another field"
        ),
    ),
    "failed": (Lifecycle("orders"), {"status": "failed"}, r"raise an error to fail the event"),
    "pending": (
        Lifecycle("orders", lease=LEASED),
        {"status": "pending"},
        r"call work\.put_off before the update to leave the document pending",
    ),
    "anew": (Lifecycle("orders"), Lifecycle("orders").anew(), r"status='pending' would be lost"),
    "another word for success": (
        Lifecycle("orders", processed="completed"),
        {"status": "processed"},
        r"sets status='completed' itself",
    ),
    "flag": (Lifecycle("orders", flag="sent"), {"sent": False}, r"sets sent=True itself"),
    "lease": (
        Lifecycle("orders", lease=LEASED),
        {"leaseUntil": None},
        (
            r"ValueError: Invalid update of orders/a by \S+ \S*ship: leaseUntil says which attempt "
            r"has the document, and only Headway writes it\. Leave it out"
        ),
    ),
    "token": (Lifecycle("orders"), {"leaseToken": "mine"}, r"leaseToken says which attempt"),
    "operation": (Lifecycle("orders"), {"lastOperation": "x"}, r"lastOperation says which attempt"),
}


@pytest.mark.parametrize("name", LOST)
async def test_a_field_that_the_commit_sets_itself_is_refused_in_a_document_of_the_event(
    name: str,
) -> None:
    lifecycle, changes, message = LOST[name]
    service, after = Service("orders", lifecycles=[lifecycle]), list[str]()

    @service.on("OrderPlaced", documents=("orders", "ids"))
    async def ship(event: Event, work: Work) -> None:
        work.documents("orders").update("a", {"carrier": "post", **changes})
        after.append("the write")

    trial = Trial(service)
    await trial.put("orders", {"_id": "a"})
    await trial.publish("OrderPlaced", {"ids": "a"})
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert letter.abandoned_reason == "non_retryable"
    assert re.search(message, letter.last_error), letter.last_error
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
        work.documents("letters").update("same", {"status": "sent"})

    @service.on("Chunked", documents=("chunks", "ids"))
    async def embed(event: Event, work: Work) -> None:
        work.documents("chunks").update("c", {"embedded": True, "vector": [1]})

    trial = Trial(service)
    await trial.put("chunks", {"_id": "c"})
    await trial.put("letters", {"_id": "same", "status": "new"})
    await trial.put(
        "orders",
        {"_id": "same"},
        {"_id": "later"},
        {"_id": "foreign", "status": "open"},
        {"_id": "of another event", "status": "processed"},
    )
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
    assert orders["same"]["carrier"] == "post"
    assert orders["later"]["carrier"] == "none yet"
    assert [each["status"] for each in await trial.documents("letters")] == ["sent"]
    assert [each["vector"] for each in await trial.documents("chunks")] == [[1]]


@pytest.mark.parametrize("handler", DEEDS, ids=lambda handler: handler.__name__)
async def test_a_mistake_inside_a_handler_ends_its_event_at_once_and_says_what_it_is(
    handler: Callable[..., Any],
) -> None:
    trial, (letter,) = await run_once(handler)
    assert letter.abandoned_reason == "non_retryable"
    assert re.search(DEEDS[handler], letter.last_error)
    assert (await trial.count()).accepted == 1


# A collection whose name is mistyped


async def requires(event: Event, work: Work) -> None:
    await work.documents("mesages").require(event.data["ids"])


def requires_in_a_thread(event: Event, work: BlockingWork) -> None:
    work.documents("mesages").require(event.data["ids"])


async def raises_itself(event: Event, work: Work) -> None:
    raise DocumentNotFoundError("mesages", event.data["ids"])


@pytest.mark.parametrize("there", ["messages", "letters"])
@pytest.mark.parametrize("handler", [requires, requires_in_a_thread, raises_itself])
async def test_a_document_is_not_found_because_its_collection_is_mistyped(
    handler: Callable[..., Any], there: str
) -> None:
    parsing = Service("parsing")
    parsing.on("MailReceived", documents=("mesages", "ids"))(handler)
    trial = Trial(parsing)
    await trial.put(there, {"_id": "m1"})
    await trial.publish("MailReceived", {"ids": ["m1"]})
    await trial.run()
    (letter,) = await trial.letters("parsing.failed")
    assert letter.error_type == "DocumentNotFoundError"
    plain = "DocumentNotFoundError: not found in mesages: m1"
    meant = ". There is no document in mesages at all: did you mean messages?"
    assert letter.last_error == plain + (meant if there == "messages" else "")


async def test_a_collection_that_has_documents_is_not_called_mistyped() -> None:
    parsing = Service("parsing")
    parsing.on("MailReceived", documents=("mesages", "ids"))(requires)
    trial = Trial(parsing)
    await trial.put("messages", {"_id": "m1"})
    await trial.put("mesages", {"_id": "another"})
    await trial.publish("MailReceived", {"ids": ["m1"]})
    await trial.run()
    (letter,) = await trial.letters("parsing.failed")
    assert letter.last_error == "DocumentNotFoundError: not found in mesages: m1"


@pytest.mark.parametrize("there", ["messages", "letters"])
async def test_documents_of_a_mistyped_collection_are_named_though_the_handler_succeeds(
    there: str, caplog: pytest.LogCaptureFixture
) -> None:
    parsing = Service("parsing")

    @parsing.on("MailReceived", documents=("mesages", "ids"))
    async def parse(event: Event, work: Work) -> None:
        await work.documents(there).require(event.data["ids"])

    trial = Trial(parsing)
    await trial.put(there, {"_id": "m1"})
    for _ in range(3):
        await trial.publish("MailReceived", {"ids": ["m1"]})
    await trial.run()
    assert (await trial.count()).done == 3
    said = [each for each in caplog.records if "mesages" in each.getMessage()]
    if there == "letters":
        assert [each.levelname for each in said] == ["WARNING"] * 3
        assert all("m1 got no status: not found in mesages" in each.getMessage() for each in said)
        return
    (line,) = said
    assert line.levelno == logging.WARNING
    assert re.fullmatch(
        r"Handler test_mistakes\.py:\d+ \S*parse of MailReceived succeeded, and no document got "
        r"its status: there is no document in mesages at all, which documents= names\. Did you "
        r"mean messages\?",
        line.getMessage(),
    )


class Unreadable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def raises_what_cannot_be_read(event: Event, work: Work) -> None:
    raise TypeError(Unreadable())


async def test_a_type_error_that_cannot_be_read_ends_its_event() -> None:
    _, (letter,) = await run_once(raises_what_cannot_be_read)
    assert letter.error_type == "TypeError"


async def test_an_await_of_nothing_is_named_by_its_line() -> None:
    _, (letter,) = await run_once(awaits_deeper)
    line = _awaits_update.__code__.co_firstlineno + 1
    assert f": test_mistakes.py:{line} awaits a call" in letter.last_error


async def test_a_value_that_a_handler_returns_is_ignored_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def placed(event: Event, work: Work) -> bool:
        return False

    trial = Trial(orders)
    for _ in range(3):
        await trial.publish("OrderPlaced")
    await trial.run()
    (line,) = [each for each in caplog.records if "returned a value" in each.getMessage()]
    assert line.levelno == logging.WARNING
    assert re.search(r"test_mistakes\.py:\d+ .*placed of OrderPlaced returned a value of type "
                     r"bool, which is ignored", line.getMessage())  # fmt: skip
    assert (await trial.count()).done == 3


@pytest.mark.parametrize("use", [
    lambda work: work.publish("OrderPaid", {}),
    lambda work: work.documents("orders").insert_new({"_id": "b"}),
    lambda work: work.documents("orders").get("a"),
    lambda work: work.documents("orders").find({}),
    lambda work: work.transaction(lambda _: None),
])  # fmt: skip
async def test_a_task_that_outlives_its_handler_cannot_use_its_work(use: Any) -> None:
    errors: list[BaseException] = []
    tasks: list[asyncio.Task[None]] = []

    async def afterwards(work: Work) -> None:
        await asyncio.sleep(0.01)
        try:
            answer = use(work)
            if answer is not None:
                await answer
        except Exception as error:  # noqa: BLE001 (what it is, is the question)
            errors.append(error)

    async def placed(event: Event, work: Work) -> None:
        tasks.append(asyncio.create_task(afterwards(work)))

    _, letters = await run_once(placed)
    await asyncio.gather(*tasks)
    assert not letters
    assert [type(error).__name__ for error in errors] == ["WorkOverError"]
    assert "its handler has returned" in str(errors[0])


async def test_a_thread_that_outlives_its_handler_cannot_use_its_work() -> None:
    errors: list[BaseException] = []
    go_on = threading.Event()

    def afterwards(work: BlockingWork) -> None:
        go_on.wait(5)
        uses: list[Callable[[], object]] = [
            lambda: work.publish("OrderPaid", {}),
            lambda: work.documents("orders").get("a"),
        ]
        for use in uses:
            try:
                use()
            except Exception as error:  # noqa: BLE001 (what it is, is the question)
                errors.append(error)

    threads: list[threading.Thread] = []

    def placed(event: Event, work: BlockingWork) -> None:
        threads.append(threading.Thread(target=afterwards, args=(work,)))
        threads[0].start()

    orders = Service("orders")
    orders.on("OrderPlaced")(placed)
    trial = Trial(orders)
    await trial.publish("OrderPlaced")
    await trial.run()
    go_on.set()
    await asyncio.to_thread(threads[0].join)
    assert [type(error).__name__ for error in errors] == ["WorkOverError"] * 2


async def test_writes_from_a_thread_that_the_handler_waits_for_count() -> None:
    async def placed(event: Event, work: Work) -> None:
        await asyncio.to_thread(work.documents("orders").insert_new, {"_id": "a"})

    trial, letters = await run_once(placed)
    assert not letters
    assert len(await trial.documents("orders")) == 1


async def test_a_handler_that_catches_its_timeout_does_not_commit() -> None:
    async def placed(event: Event, work: Work) -> None:
        work.documents("orders").add({})
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    trial, (letter,) = await run_once(placed, timeout=timedelta(milliseconds=5))
    assert letter.error_type == "HandlerTimeoutError"
    assert await trial.documents("orders") == []


async def test_a_handler_that_catches_the_stop_of_its_worker_does_not_commit() -> None:
    started, stopped = asyncio.Event(), list[bool]()
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def placed(event: Event, work: Work) -> None:
        work.documents("orders").add({})
        started.set()
        if not stopped:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append(True)

    trial = Trial(orders)
    await trial.publish("OrderPlaced")
    async with trial.running():
        await until(trial, started.is_set, at_most=MINUTE)
    assert stopped
    assert await trial.documents("orders") == []
    await trial.run()
    assert len(await trial.documents("orders")) == 1
    await assert_all_is_accounted_for(trial)


async def test_a_handler_that_never_ends_does_not_keep_its_worker_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    started, enough = asyncio.Event(), asyncio.Event()
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def placed(event: Event, work: Work) -> None:
        started.set()
        while not enough.is_set():
            with suppress(asyncio.CancelledError):
                await enough.wait()
        work.documents("orders").add({})

    trial = Trial(orders)
    await trial.publish("OrderPlaced", event_id="e1")
    async with asyncio.timeout(30):
        async with trial.running() as worker:
            await until(trial, started.is_set, at_most=MINUTE)
    assert worker.handlers_left == 1
    (line,) = [each.getMessage() for each in caplog.records if "did not end" in each.getMessage()]
    assert re.search(r"placed did not end when it was cancelled, at test_mistakes\.py:\d+: its "
                     r"event 'e1'", line)  # fmt: skip
    enough.set()
    await asyncio.sleep(0)
    await trial.run()
    assert len(await trial.documents("orders")) == 1
    await assert_all_is_accounted_for(trial)


# Handlers that take long


def slow_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if " has run for " in each.getMessage()]


async def test_a_slow_coroutine_is_named_then_at_growing_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def placed(event: Event, work: Work) -> None:
        await trial.clock.wait(timedelta(minutes=event.data["minutes"]))

    trial = Trial(orders)
    await trial.publish("OrderPlaced", {"minutes": 4}, event_id="quick")
    await trial.publish("OrderPlaced", {"minutes": 25}, event_id="slow")
    await trial.run()
    lines = slow_lines(caplog)
    assert [re.findall(r"run for (\d+) s", each) for each in lines] == [["300"], ["600"], ["1200"]]
    assert re.match(
        r"Handler test_mistakes\.py:\d+ \S*placed \(orders, OrderPlaced\) has run for 300 s with "
        r"event 'slow' \(attempt 1\) and is at test_mistakes\.py:\d+\. If it hangs, set timeout=",
        lines[0],
    )
    assert (await trial.count()).done == 2


@pytest.mark.parametrize("limit", [timedelta(minutes=1), None])
async def test_the_limit_is_the_services_own_and_each_attempt_has_its_own(
    limit: timedelta | None, caplog: pytest.LogCaptureFixture
) -> None:
    orders = Service("orders", slow_after=limit)

    @orders.on("OrderPlaced")
    async def placed(event: Event, work: Work) -> None:
        await trial.clock.wait(timedelta(seconds=90))
        if work.attempt == 1:
            raise ConnectionError

    trial = Trial(orders)
    await trial.publish("OrderPlaced")
    await trial.run()
    found = [re.findall(r"run for (\d+) s .*attempt (\d)", each) for each in slow_lines(caplog)]
    assert found == ([] if limit is None else [[("60", "1")], [("60", "2")]])


async def test_a_slow_plain_function_is_named_with_the_line_at_which_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    go_on, done = threading.Event(), list[bool]()
    orders = Service("orders")

    @orders.on("OrderPlaced")
    def placed(event: Event, work: BlockingWork) -> None:
        go_on.wait(30)
        done.append(True)

    trial = Trial(orders)
    await trial.publish("OrderPlaced", event_id="e1")
    async with trial.running():
        await until(trial, lambda: bool(slow_lines(caplog)))
        go_on.set()
        await until(trial, lambda: bool(done))
    line = placed.__code__.co_firstlineno + 2
    assert (
        f"with event 'e1' (attempt 1) and is at test_mistakes.py:{line}." in slow_lines(caplog)[0]
    )


# Transactions


async def test_a_transaction_callback_may_be_a_coroutine_function_that_never_waits() -> None:
    async def charge(tables: dict[str, Any]) -> None:
        await _write(tables)

    async def placed(event: Event, work: Work) -> None:
        work.transaction(charge)
        work.transaction(partial(_write_plain, "b"))

    trial, letters = await run_once(placed)
    assert not letters
    assert trial.state.tables == {"a": 1, "b": 1}


async def _write(tables: dict[str, Any]) -> None:
    tables["a"] = 1


def _write_plain(name: str, tables: dict[str, Any]) -> None:
    tables[name] = 1


@pytest.mark.parametrize("seconds", [0, 1])
async def test_a_transaction_callback_that_suspends_is_refused_and_the_line_is_named(
    seconds: int,
) -> None:
    async def charge(tables: dict[str, Any]) -> None:
        tables["a"] = 1
        await asyncio.sleep(seconds)

    async def placed(event: Event, work: Work) -> None:
        work.transaction(charge)

    trial, (letter,) = await run_once(placed)
    line = charge.__code__.co_firstlineno + 2
    assert letter.abandoned_reason == "non_retryable"
    assert re.search(r"Invalid work\.transaction callback \(test_mistakes\.py:\d+ \S*charge\): it "
                     rf"suspended at test_mistakes\.py:{line},", letter.last_error)  # fmt: skip
    assert trial.state.tables == {}


async def test_run_services_needs_a_service() -> None:
    with pytest.raises(ConfigurationError, match=r"^There is no service to run"):
        await run_services()


# An exception that no rule knows


def test_a_classifier_without_the_default_rules_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = rules_for([CardDeclined], Verdict.PERMANENT)
    Service("orders", classifier=DEFAULT_CLASSIFIER.before([own]))
    assert caplog.messages == []
    Service("orders", classifier=Classifier(rules=(own,)))
    (said,) = caplog.messages
    assert said == (
        "The classifier of service orders has none of the default rules: what its own rules do "
        "not name is transient, also KeyError and DocumentNotFoundError. Use "
        "DEFAULT_CLASSIFIER.before([...]) of headway.retrying to keep the default rules."
    )


class CardDeclined(Exception):  # noqa: N818 (as people name theirs)
    pass


def charge() -> None:
    raise CardDeclined("insufficient funds")


UNKNOWN = (
    r"No rule matches tests\.services\.test_mistakes\.CardDeclined, raised by "
    r"test_mistakes\.py:\d+ charge: it is retried as transient\. "
    r"Raise headway\.PermanentError \(or a subclass\) if a retry cannot help, or add a Rule\."
)


async def test_an_exception_that_no_rule_knows_is_named_once_with_the_cure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def on_placed(event: Event, work: Work) -> None:
        charge()

    trial = Trial(orders)
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.publish("OrderPlaced", {"order": "b"})
    await trial.run(at_most=DAY)
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    (unknown,) = [line for line in said if line.startswith("No rule matches")]
    assert re.fullmatch(UNKNOWN, unknown)


@pytest.mark.parametrize("error", [ConnectionError(), FileNotFoundError(2, "none"), KeyError("a")])
async def test_exceptions_that_the_built_in_rules_know_are_not_named(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def on_placed(event: Event, work: Work) -> None:
        raise error

    trial = Trial(orders)
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.run(at_most=DAY)
    assert not any("No rule matches" in each.getMessage() for each in caplog.records)


def test_a_consumer_of_ones_own_names_an_unknown_exception_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Late(CardDeclined):
        pass

    def on_placed(event: Any) -> None:
        raise Late

    event = {"event_type": "OrderPlaced", "event_id": "e-1", "data": {}}
    for _ in range(2):
        handle_event_with_retry(on_placed, event, service_name="orders")
    said = [each.getMessage() for each in caplog.records if "No rule" in each.getMessage()]
    assert len(said) == 1
