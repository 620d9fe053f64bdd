"""The type of an event's data names the event, wherever an event is published or handled."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from headway import BlockingWork, ConfigurationError, Event, Service, Work
from headway.testing import Trial


class OrderPlaced(msgspec.Struct):
    order: str


@dataclass
class OrderShipped:
    order: str


class OrderFailed(msgspec.Struct):
    order: str


async def test_a_type_of_data_names_what_is_handled_published_and_announced_as_failed() -> None:
    orders, seen = Service("orders"), list[Any]()

    @orders.on(OrderPlaced, failed=OrderFailed, failed_data=lambda event, _: event.data)
    async def place(event: Event[OrderPlaced], work: Work) -> None:
        if event.data.order == "bad":
            raise ValueError(event.data.order)
        work.publish(OrderShipped(event.data.order))

    @orders.on(OrderShipped)
    def ship(event: Event[OrderShipped], work: Any) -> None:
        seen.append(event.data)

    @orders.on(OrderFailed)
    async def failed(event: Event[OrderFailed], work: Work) -> None:
        seen.append(event.data)

    trial = Trial(orders)
    for order in ("good", "bad"):
        assert await trial.publish(OrderPlaced(order)) == 1
    await trial.run()
    assert sorted(seen, key=lambda each: str(each.order)) == [
        OrderFailed("bad"),
        OrderShipped("good"),
    ]
    assert {queue.name for queue in orders.queues()} == {
        "orders.order.placed",
        "orders.order.shipped",
        "orders.order.failed",
    }


async def test_what_is_no_type_of_data_is_no_event_type() -> None:
    orders = Service("orders")
    with pytest.raises(ConfigurationError, match="data="):
        orders.on(OrderPlaced, data=OrderShipped)
    trial = Trial(orders)
    for given, data in ((7, None), ({"order": "7"}, None), (OrderPlaced("7"), {"order": "7"})):
        with pytest.raises(ConfigurationError, match="event_type"):
            await trial.publish(given, data)


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_documents_are_counted_with_own_writes(is_blocking: bool) -> None:  # noqa: FBT001
    orders, seen = Service("orders"), list[int]()
    asked: list[dict[str, Any]] = [{}, {"status": "new"}, {"status": "old"}, {"n": 1}]

    def write(documents: Any) -> None:
        documents.update("a", {"status": "old"})
        documents.insert_new({"_id": "d", "status": "new", "n": 1})

    async def place(event: Event, work: Work) -> None:
        documents = work.documents("orders")
        write(documents)
        seen.extend([await documents.count(where) for where in asked])

    def place_blocking(event: Event, work: BlockingWork) -> None:
        documents = work.documents("orders")
        write(documents)
        seen.extend(documents.count(where) for where in asked)

    orders.on("OrderPlaced")(place_blocking if is_blocking else place)
    trial = Trial(orders)
    await trial.put("orders", *({"_id": one, "status": "new", "n": 1} for one in "abc"))
    await trial.publish("OrderPlaced")
    await trial.run()
    assert seen == [4, 3, 1, 4]


async def test_many_documents_are_read_by_id_with_own_writes() -> None:
    orders, seen = Service("orders"), dict[str, Any]()

    @orders.on("OrderPlaced")
    async def place(event: Event, work: Work) -> None:
        documents = work.documents("orders")
        documents.update("a", {"total": 2})
        seen.update(await documents.get_many(["a", "b", "a"]))

    trial = Trial(orders)
    await trial.put("orders", {"_id": "a", "total": 1}, {"_id": "c"})
    await trial.publish("OrderPlaced")
    await trial.run()
    assert seen == {"a": {"_id": "a", "total": 2}}
