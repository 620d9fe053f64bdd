"""A service that takes events of one shape only."""

import msgspec

from headway import Event, Service, Work


class Order(msgspec.Struct):
    """What an order has to hold."""

    number: int
    items: list[str] = []


strict = Service("strict")


@strict.on("Order", data=Order)
async def handle(event: Event, work: Work) -> None:
    order: Order = event.data
    work.documents("orders").add({"number": order.number})
