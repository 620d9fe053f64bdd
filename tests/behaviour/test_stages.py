"""Handlers whose documents, queues or ids do not fit each other: no work is lost unseen."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from headway import Event, Service, Work
from headway.facts import DocumentsMissing
from headway.testing import Trial


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


async def nothing(event: Event, work: Work) -> None: ...


# One status is one stage


def two_stages(second: str) -> tuple[Service, Service]:
    """Orders are checked and shipped; the stage of shipping is about another collection or not."""
    orders, shipping = Service("orders"), Service("shipping", announces=["Shipped"])

    @orders.on("OrderStored", documents=("orders", "order_id"))
    async def check(event: Event, work: Work) -> None:
        work.documents("shipments").insert_new([{"_id": event.data["order_id"]}])
        work.publish("OrderReady", {"order_id": event.data["order_id"]})

    @shipping.on(
        "OrderReady",
        documents=(second, "order_id"),
        rebuild=lambda document: {"order_id": document["_id"]},
    )
    async def ship(event: Event, work: Work) -> None:
        work.documents("parcels").add({"of": event.data["order_id"]})

    return orders, shipping


@pytest.mark.parametrize("start", [Trial.run, Trial.sweep])
async def test_two_handlers_of_one_collection_are_named_at_the_start(
    start: Callable[[Trial], Awaitable[object]], caplog: pytest.LogCaptureFixture
) -> None:
    await start(Trial(*two_stages("orders")))
    (line,) = warnings(caplog)
    for name in ("two_stages.check of OrderStored", "two_stages.ship of OrderReady"):
        assert name in line


async def test_two_stages_with_a_collection_each_both_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trial = Trial(*two_stages("shipments"))
    await trial.put("orders", {"_id": "o-1", "status": "pending"})
    await trial.sweep()  # its event was lost
    await trial.run()
    assert [each["of"] for each in await trial.documents("parcels")] == ["o-1"]
    orders = Service("orders")
    for event_type in ("OrderStored", "OrderRequestedAgain"):  # one function is one stage
        orders.on(event_type, documents=("orders", "order_id"))(nothing)
    await Trial(orders).run()
    assert warnings(caplog) == []


# Queues that no handler takes any more


def taking(name: str, event_type: str) -> Service:
    service = Service(name)
    service.on(event_type)(nothing)
    return service


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ("orders", "OrderPlacd", ["orders.order.placed", "2 events", "OrderPlacd"]),
        ("orders", "Sale", ["orders.order.placed", "2 events"]),
        ("orders.eu", "OrderPaid", []),  # queues of other services are theirs
        ("order", "OrderPaid", []),
    ],
)
async def test_events_in_a_queue_that_lost_its_handler_are_named(
    before: str, now: str, named: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    trial = Trial(taking(before, "OrderPlaced"))
    for _ in range(2):
        await trial.publish("OrderPlaced")
    trial.services = (taking("orders", now),)  # deployed anew, with another type
    await trial.run(at_most=timedelta(minutes=1))
    *lines, left = warnings(caplog)
    assert left.startswith("Trial.run(at_most=0:01:00) ended with events left: 2 ready")
    assert len(lines) == bool(named)
    assert all(name in line for line in lines for name in named)


# Ids of documents that are not there


@pytest.mark.parametrize("inserted", [[], [{"_id": "o-2"}]])
async def test_documents_that_are_not_there_after_the_handler_are_named(
    inserted: list[dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    orders = Service("orders")

    @orders.on("OrderStored", documents=("orders", "order_ids"))
    async def check(event: Event, work: Work) -> None:
        work.documents("orders").insert_new(inserted)

    trial = Trial(orders)
    await trial.put("orders", {"_id": "o-1", "status": "pending"})
    await trial.publish("OrderStored", {"order_ids": ["o-1", "o-2"]})
    await trial.run()
    told = [] if inserted else [("orders", ("o-2",))]
    assert [(each.collection, each.ids) for each in trial.facts.of(DocumentsMissing)] == told
    assert len([each for each in warnings(caplog) if "o-2" in each]) == len(told)


@pytest.mark.parametrize("given", ["", [""], ["o-1", ""], [None], None])
async def test_an_empty_id_is_refused(given: object) -> None:
    orders = Service("orders")
    orders.on("OrderStored", documents=("orders", "order_ids"))(nothing)
    trial = Trial(orders)
    await trial.publish("OrderStored", {"order_ids": given})
    await trial.run()
    (letter,) = await trial.letters("orders")
    assert letter.error_type == "ValueError"
    assert "data.order_ids" in letter.last_error
