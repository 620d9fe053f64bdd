"""Every run of a handler gets its event as it was published, whatever earlier runs did to it."""

from typing import Any

import msgspec
import pytest

from headway import BlockingWork, Event, Lifecycle, Service, Work
from headway.testing.trial import Trial
from tests.behaviour.scenes import assert_all_is_accounted_for, only_letter


class Order(msgspec.Struct):
    """The data of an event, in a type that can be changed."""

    order: str
    items: list[str]


class Shop:
    """A handler that empties its event and loses its condition at commit a number of times."""

    def __init__(self, lost: int, **settings: Any) -> None:
        self.lost = lost
        self.seen: list[Any] = []
        self.service = Service("orders", lifecycles=[Lifecycle("orders", max_attempts=2)])
        self.settings = {
            "failed": "OrderFailed",
            "dedup": "order",
            "documents": ("orders", "order"),
            **settings,
        }

    def with_handler(self, kind: str) -> Service:
        async def coroutine(event: Event, work: Work) -> None:
            self._take(event, work)

        handler: Any = self._take if kind == "plain" else coroutine
        self.service.on("OrderPlaced", **self.settings)(handler)
        return self.service

    def _take(self, event: Event, work: Work | BlockingWork) -> None:
        data = event.data
        self.seen.append(msgspec.to_builtins(data))
        if isinstance(data, Order):
            data.items.pop()
            data.order = "changed"
        else:
            data.pop("order")
            data["items"].clear()
        if len(self.seen) <= self.lost:
            work.documents("stock").update("s", {"left": 0}, expect={"left": "never"})


ORDER = {"order": "a", "items": ["pie"]}


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
@pytest.mark.parametrize("data", [None, Order], ids=["dict", "struct"])
async def test_a_rerun_after_a_lost_commit_gets_the_event_as_it_was_published(
    kind: str, data: type | None
) -> None:
    shop = Shop(2, data=data)
    trial = Trial(shop.with_handler(kind))
    await trial.put("orders", {"_id": "a", "status": "pending"})
    await trial.put("stock", {"_id": "s", "left": 1})
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert await trial.letters("orders.failed") == []
    assert shop.seen == [ORDER] * 3
    (order,) = await trial.documents("orders")
    assert (order["status"], order["attemptCount"]) == ("processed", 1)
    await assert_all_is_accounted_for(trial)


def _all(event: Event, facts: dict[str, Any]) -> dict[str, Any]:
    return {"order_was": event.data["order"], "items_were": event.data["items"], **facts}


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_the_failed_event_and_the_letter_tell_of_the_event_as_it_was_published(
    kind: str,
) -> None:
    told: list[Any] = []
    shop = Shop(100, failed_data=_all)
    watching = Service("watching")

    @watching.on("OrderFailed")
    async def watch(event: Event, work: Work) -> None:
        told.append(event.data)

    trial = Trial(shop.with_handler(kind), watching)
    await trial.put("orders", {"_id": "a", "status": "pending"})
    await trial.put("stock", {"_id": "s", "left": 1})
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    letter = await only_letter(trial)
    assert letter.error_type == "ConditionLostError"
    assert (letter.collection, list(letter.document_ids)) == ("orders", ["a"])
    assert letter.original_event["data"] == ORDER
    (facts,) = told
    assert (facts["order_was"], facts["items_were"], facts["order"]) == ("a", ["pie"], "a")
    assert shop.seen == [ORDER] * len(shop.seen)
    (order,) = await trial.documents("orders")
    assert order["status"] == "failed"


class Unsteady(msgspec.Struct):
    """A type that reads its data once, and refuses the same data the second time."""

    order: str

    def __post_init__(self) -> None:
        _READ.append(self.order)
        if len(_READ) > 1:
            raise ValueError("read before")


_READ: list[str] = []


async def test_a_type_that_refuses_the_same_data_later_ends_the_event_and_nothing_else() -> None:
    _READ.clear()
    service, done = Service("orders"), list[str]()

    @service.on("OrderPlaced", data=Unsteady, failed="OrderFailed", dedup="order")
    async def take(event: Event, work: Work) -> None:
        work.documents("stock").update("s", {"left": 0}, expect={"left": "never"})

    @service.on("OrderPaid")
    async def paid(event: Event, work: Work) -> None:
        done.append(event.event_id)

    trial = Trial(service)
    await trial.put("stock", {"_id": "s", "left": 1})
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.publish("OrderPaid", event_id="p")
    await trial.run()
    letter = await only_letter(trial)
    assert "read before" in letter.last_error
    assert done == ["p"]
