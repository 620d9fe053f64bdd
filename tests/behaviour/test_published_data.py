"""Published data arrives as it was, or the call to publish refuses it by the name of its field."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from headway import ConfigurationError, Event, Service, Work, connect
from headway.errors import MalformedEventError, UnsendableError
from headway.testing.trial import Trial
from tests.behaviour.scenes import only_letter, ran

ENDLESS: dict[str, Any] = {"inner": []}
ENDLESS["inner"].append(ENDLESS)
DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]


@dataclass
class Parcel:
    grams: float


class Price(msgspec.Struct):
    amount: Decimal
    seal: bytes = b""
    tax: float = 0.0
    stock: dict[int, int] = msgspec.field(default_factory=dict)
    rest: Any = None


REFUSED = {
    "not a number": ({"items": [{}, {"price": nan}]}, "items[1].price", "nan"),
    "infinity": ({"x": -inf}, "x", "-inf"),
    "bytes": ({"x": (b"abc",)}, "x[0]", "bytes"),
    "bytearray": ({"x": bytearray(b"abc")}, "x", "bytes"),
    "Decimal": ({"x": {"y": Decimal("1.10")}}, "x.y", "a Decimal"),
    "a set": ({"tags": [{"a", "b"}]}, "tags[0]", "a set"),
    "a frozenset": ({"tags": frozenset({"a"})}, "tags", "a set"),
    "a number as key": ({"x": {1: 2}}, "x.1", "the key 1"),
    "keys that collide": ({1: 2, "1": 3}, "1", "the key 1"),
    "bytes as key": ({"x": {b"k": 1}}, "x.b'k'", "the key b'k'"),
    "a long number": ({"x": 1 << 63}, "x", "a whole number"),
    "half a character": ({"x": ["a", "\ud800"]}, "x[1]", "half a character"),
    "half a character as key": ({"\udfff": 1}, "\udfff", "half a character"),
    "a cycle": (ENDLESS, "inner[0]", "itself"),
    "too deep": ({"x": DEEP}, "", "nested too deeply"),
    "no JSON": ({"x": {"y": object()}}, "x.y", "a value of type object"),
    "not a number in a dataclass": ({"p": Parcel(nan)}, "p.grams", "nan"),
    "not a number in a Struct": (Price(Decimal(1), tax=inf), "tax", "inf"),
    "keys of a Struct that collide": (Price(Decimal(1), rest={1: 2, "1": 3}), "rest.1", "the key"),
    "bytes beside a Struct": ({"price": Price(Decimal(1)), "x": b"a"}, "x", "bytes"),
}
ACCEPTED = {
    "json": {"a": [1, 2.5, None, True, "é\u2028"], "b": {"c": {}}, "n": (1 << 63) - 1},
    "texts of JSON": {"at": datetime(2024, 1, 1, tzinfo=UTC), "id": UUID(int=1), "pair": (1, 2)},
    "a Struct": Price(Decimal("1.10"), b"\x00\xff", 0.5, {1: 2}, [None]),
    "a Struct in a list": {"prices": [Price(Decimal("1.10"), b"a")]},
    "a dataclass": {"parcel": Parcel(1.5)},
    "a JSON text": msgspec.Raw(b'{"a": [1, null]}'),
}


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
@pytest.mark.parametrize(("data", "field", "what"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_handler_that_publishes_it_fails_at_that_call(
    data: Any, field: str, what: str, kind: str
) -> None:
    caught: list[UnsendableError] = []

    def plain(_event: Event, work: Any) -> None:
        try:
            work.publish("OrderShipped", data)
        except UnsendableError as error:
            caught.append(error)
            raise

    async def coroutine(event: Event, work: Work) -> None:
        plain(event, work)

    handler: Callable[..., Any] = plain if kind == "plain" else coroutine
    letter = await only_letter(await ran(handler))
    assert [error.field for error in caught] == [field]
    assert what in str(caught[0])
    assert (letter.abandoned_reason, len(letter.attempts)) == ("non_retryable", 1)


async def test_a_program_that_publishes_it_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    async with connect(f"sqlite:///{tmp_path}/headway.db") as headway:
        for data, field, _ in REFUSED.values():
            with pytest.raises(UnsendableError) as caught:
                await headway.publish("OrderPlaced", data)
            assert caught.value.field == field
            with pytest.raises(UnsendableError):
                await headway.publish_all([("OrderPlaced", {"fine": 1}), ("OrderPlaced", data)])
        for data in (5, [1], "text"):
            with pytest.raises(MalformedEventError):
                await headway.publish("OrderPlaced", data)
        with pytest.raises(ConfigurationError, match=r"^Invalid event_id=''"):
            await headway.publish("OrderPlaced", {}, event_id="")
        with pytest.raises(ConfigurationError, match="'a' is there twice"):
            await headway.publish_all([("A", {}), ("A", {"b": 1})], event_ids=["a", "a"])
        assert (await headway.balance()).accepted == 0
        assert await headway.unrouted.list() == []


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_other_data_is_published(data: Any) -> None:
    async def placed(_event: Event, work: Work) -> None:
        work.publish("OrderShipped", data)

    trial = await ran(placed, data)
    assert [each.event_type for each in await trial.unrouted()] == ["OrderShipped"]


async def test_fields_of_a_struct_come_back_through_the_type_of_the_consumer() -> None:
    price = Price(Decimal("1.10"), b"\x00\xff", 0.5, {1: 2}, [None])
    seen: list[Price] = []

    async def placed(event: Event, work: Work) -> None:
        seen.append(event.data)

    await ran(placed, price, data=Price)
    assert seen == [price]


async def test_data_of_a_failed_event_is_checked_too(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    service = Service("shop")

    @service.on("OrderPlaced", failed="OrderFailed", failed_data=lambda *_: {"ratio": nan})
    async def placed(event: Event, work: Work) -> None:
        raise ValueError("no")

    @service.on("OrderFailed")
    async def failed(event: Event, work: Work) -> None:
        seen.append(event.data)

    trial = Trial(service)
    await trial.publish("OrderPlaced", {})
    await trial.run()
    assert seen[0]["error_message"] == "no"  # the usual data, because the other was refused
    assert "'ratio'" in caplog.text
