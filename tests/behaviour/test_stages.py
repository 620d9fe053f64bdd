"""Handlers whose documents, queues or ids do not fit each other: no work is lost unseen."""

import logging
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from headway import Event, Service, Work
from headway.facts import DocumentsMissing
from headway.testing import Trial


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


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
    assert re.match(
        r"Handlers test_stages\.py:\d+ two_stages\.check of OrderStored and test_stages\.py:\d+ "
        r"two_stages\.ship of OrderReady are both about documents of orders, and one status is one "
        r"stage: .* give the second a collection of its own",
        line,
    )


async def test_two_stages_with_a_collection_each_both_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trial = Trial(*two_stages("shipments"))
    await trial.put("orders", {"_id": "o-1", "status": "pending"})
    await trial.sweep()  # its event was lost
    await trial.run()
    assert [each["of"] for each in await trial.documents("parcels")] == ["o-1"]
    assert warnings(caplog) == []


async def test_one_function_for_two_types_of_events_is_one_stage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    orders = Service("orders")

    async def check(event: Event, work: Work) -> None: ...

    for event_type in ("OrderStored", "OrderRequestedAgain"):
        orders.on(event_type, documents=("orders", "order_id"))(check)
    await Trial(orders).run()
    assert warnings(caplog) == []


# What a sweep sends looks like what the user sends


@pytest.mark.parametrize(
    ("field", "sent"), [("order_id", "o-1"), ("order_ids", ["o-1"]), ("orders", ["o-1"])]
)
async def test_a_swept_event_holds_one_id_or_a_list_as_the_name_of_its_field_says(
    field: str, sent: object
) -> None:
    orders, seen = Service("orders"), []

    @orders.on("OrderStored", documents=("orders", field))
    async def check(event: Event, work: Work) -> None:
        seen.append(event.data)

    trial = Trial(orders)
    await trial.put("orders", {"_id": "o-1", "status": "pending"})
    await trial.sweep()
    await trial.run()
    assert seen == [{field: sent}]


# Queues that no handler takes any more


def taking(name: str, event_type: str) -> Service:
    service = Service(name)

    @service.on(event_type)
    async def handle(event: Event, work: Work) -> None: ...

    return service


async def redeployed(before: Service, *after: Service) -> None:
    """Publish events to a service that is then deployed anew, with other types of events."""
    trial = Trial(before)
    for _ in range(2):
        for _, event_type in before.subscriptions:
            await trial.publish(event_type)
    trial.services = after
    await trial.run(at_most=timedelta(minutes=1))


@pytest.mark.parametrize(
    ("now", "asked"),
    [("OrderPlacd", "Is OrderPlacd their type, misspelt?"), ("Sale", "Was their type renamed?")],
)
async def test_events_in_a_queue_that_lost_its_handler_are_named(
    now: str, asked: str, caplog: pytest.LogCaptureFixture
) -> None:
    await redeployed(taking("orders", "OrderPlaced"), taking("orders", now))
    (line,) = warnings(caplog)
    assert line == (
        "Queue orders.order.placed holds 2 events, and no handler of orders takes from it. "
        f"{asked} Subscribe a handler to their type again, until the queue is empty at least."
    )


@pytest.mark.parametrize("other", ["orders.eu", "shipping", "order"])
async def test_queues_of_other_services_are_theirs(
    other: str, caplog: pytest.LogCaptureFixture
) -> None:
    await redeployed(taking(other, "OrderPlaced"), taking("orders", "OrderPaid"))
    assert warnings(caplog) == []


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
    lines = [each for each in warnings(caplog) if "o-2 got no status: not found in orders" in each]
    assert len(lines) == len(told)


@pytest.mark.parametrize("given", ["", [""], ["o-1", ""], [None], None])
async def test_an_empty_id_is_refused(given: object) -> None:
    orders = Service("orders")

    @orders.on("OrderStored", documents=("orders", "order_ids"))
    async def check(event: Event, work: Work) -> None: ...

    trial = Trial(orders)
    await trial.publish("OrderStored", {"order_ids": given})
    await trial.run()
    (letter,) = await trial.letters("orders")
    assert letter.last_error.startswith(
        "ValueError: data.order_ids should hold the ids that name the work, not "
    )
