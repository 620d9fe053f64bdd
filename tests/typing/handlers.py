"""What a type checker makes of handlers; checked by mypy, never run."""

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic

from headway import BlockingWork, Event, Service, Work

orders = Service("orders")


class OrderPlaced(msgspec.Struct):
    order_id: str
    total: int


@dataclass
class Payment:
    payment_id: str


class Parcel(TypedDict):
    weight: int


class Customer(pydantic.BaseModel):
    name: str


@orders.on("OrderPlaced", data=OrderPlaced, dedup=lambda event: event.data.order_id)
async def placed(event: Event[OrderPlaced], work: Work) -> None:
    assert_type(event.data, OrderPlaced)
    assert_type(event.data.total, int)
    event.data.totl  # type: ignore[attr-defined]  # noqa: B018
    event.data = OrderPlaced("a", 1)  # type: ignore[misc]
    assert_type(await work.documents("orders").get("a"), dict[str, Any] | None)


@orders.on(Payment, failed=Parcel)
async def by_type(event: Event[Payment], work: Work) -> None:
    assert_type(event.data, Payment)
    work.publish(OrderPlaced("a", 1))


@orders.on("PaymentSubmitted", data=Payment)
def paid(event: Event[Payment], work: BlockingWork) -> None:
    assert_type(event.data.payment_id, str)


@orders.on("ParcelSent", data=Parcel)
async def sent(event: Event[Parcel], work: Work) -> None:
    assert_type(event.data["weight"], int)


@orders.on("CustomerMoved", data=Customer)
async def moved(event: Event[Customer], work: Work) -> None:
    assert_type(event.data.name, str)


@orders.on("OrderShipped")
async def shipped(event: Event, work: Work) -> None:
    assert_type(event.data, Any)
    assert_type(event.data["total"], Any)


@orders.on("OrderReturned", data=OrderPlaced)
async def returned(event: Event, work: Work) -> None:
    assert_type(event.data, Any)


@orders.on("OrderLost", data=OrderPlaced)  # type: ignore[arg-type]
async def lost(event: Event[Payment], work: Work) -> None: ...


@orders.on("OrderCounted", data=OrderPlaced, dedup=lambda event: event.data.totl)  # type: ignore[attr-defined]
async def counted(event: Event[OrderPlaced], work: Work) -> None: ...


@orders.on("OrderListed", documents="orders")  # type: ignore[arg-type]
async def listed(event: Event, work: Work) -> None: ...


@orders.on("OrderTimed", timeout=5)  # type: ignore[arg-type]
async def timed(event: Event, work: Work) -> None: ...


@orders.on("OrderUntyped", data=OrderPlaced)
async def untyped(event, work):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    work.publish("Any", event.data)


@orders.on("OrderOne", data=OrderPlaced)  # type: ignore[arg-type]
async def one(event: Event[OrderPlaced]) -> None: ...


async def inside(work: Work) -> None:
    await placed(Event("OrderPlaced", data=OrderPlaced("a", 1)), work)
    assert_type(Event("OrderPlaced", data=OrderPlaced("a", 1)), Event[OrderPlaced])
    work.documents("orders").get("a")  # type: ignore[unused-coroutine]
