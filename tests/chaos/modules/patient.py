"""A service whose engine refuses everything for a while: each order has to be placed once."""

import asyncio
from datetime import timedelta

from headway import Event, Lifecycle, Service, Work

orders = Service("orders", lifecycles=[Lifecycle("orders", lease=timedelta(seconds=30))])


@orders.on("OrderCame", dedup="order")
async def take(event: Event, work: Work) -> None:
    work.documents("orders").insert_new({"_id": event.data["order"]})
    work.publish("OrderPlaced", event.data)


@orders.on("OrderPlaced", documents=("orders", "order"))
async def place(event: Event, work: Work) -> None:
    (order,) = await work.documents("orders").require(event.data["order"])
    # An upsert would hide that it happened twice.
    work.documents("placed").add({"order": order["_id"]})


@orders.on("OrderPaid", documents=("payments", "payment"))
async def pay(event: Event, work: Work) -> None:
    # There is no such document: what an engine refuses here, it refuses before the handler runs.
    # Some are always on their way: a fault meets them between their start and their commit.
    await asyncio.sleep(0.5)
    work.documents("placed").add({"order": event.data["payment"]})
