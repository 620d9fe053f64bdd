"""The data of a `*Failed` event, made by a function of the user's own."""

import logging
from typing import Any

import msgspec
import pytest

from headway import ConfigurationError, Event, Service, Work
from headway.testing.trial import Trial

USUAL = {"error_message", "error_type", "retry_count", "failed_at"}


class Order(msgspec.Struct):
    order: str
    price: int


class OrderFailed(msgspec.Struct):
    order: str
    why: str
    tries: int


async def refuse(event: Event, work: Work) -> None:
    raise ValueError("no such thing")


async def told_of(sent: dict[str, Any], **settings: Any) -> list[Event]:
    """Let an order fail; give what others are told."""
    told: list[Event] = []
    orders, desk = Service("orders"), Service("desk")
    orders.on("OrderPlaced", failed="OrderFailed", **settings)(refuse)

    @desk.on("OrderFailed")
    async def tell(event: Event, work: Work) -> None:
        told.append(event)

    trial = Trial(orders, desk)
    await trial.publish("OrderPlaced", sent)
    await trial.run()
    assert len(await trial.letters("orders.failed")) == 1
    return told


async def test_the_function_is_given_the_event_and_the_usual_facts() -> None:
    given: list[tuple[Event, dict[str, Any]]] = []

    def about(event: Event, facts: dict[str, Any]) -> dict[str, Any]:
        given.append((event, facts))
        return {"order": event.data.order, "why": facts["error_message"]}

    told = await told_of({"order": "a", "price": 3}, data=Order, dedup="order", failed_data=about)
    ((event, facts),) = given
    assert (event.event_type, event.data) == ("OrderPlaced", Order("a", 3))
    assert facts == {
        "order": "a",
        "error_message": "no such thing",
        "error_type": "ValueError",
        "retry_count": 1,
        "failed_at": "2000-01-01T00:00:00Z",
    }
    assert [each.data for each in told] == [{"order": "a", "why": "no such thing"}]


async def test_the_data_may_be_a_struct_and_the_event_is_given_as_it_came() -> None:
    def about(event: Event, facts: dict[str, Any]) -> OrderFailed:
        return OrderFailed(event.data["price"], facts["error_type"], facts["retry_count"])

    told = await told_of({"order": "a", "price": "much"}, data=Order, failed_data=about)
    assert [each.data for each in told] == [{"order": "much", "why": "ValidationError", "tries": 1}]


def _raises(event: Event, facts: dict[str, Any]) -> dict[str, Any]:
    facts.clear()
    raise KeyError("order")


@pytest.mark.parametrize(
    "about",
    [
        _raises,
        lambda event, facts: None,
        lambda event, facts: [facts],
        lambda event, facts: {"order": object()},
    ],
    ids=["raises", "nothing", "no object", "no JSON"],
)
async def test_if_it_cannot_make_the_data_the_usual_is_published_and_the_error_is_logged(
    about: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="headway"):
        told = await told_of({"order": "a"}, dedup="order", failed_data=about)
    (event,) = told
    assert set(event.data) == USUAL | {"order"}
    (line,) = [each for each in caplog.records if "failed_data=" in each.getMessage()]
    assert line.exc_info is not None


async def _later(event: Event, facts: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"failed_data": _raises},  # without the event that it is for
        {"failed": "OrderFailed", "failed_data": _later},
        {"failed": "OrderFailed", "failed_data": {"order": "a"}},
    ],
)
def test_only_a_plain_function_for_a_failed_event_is_accepted(options: Any) -> None:
    with pytest.raises(ConfigurationError, match="failed_data="):
        Service("orders").on("OrderPlaced", **options)(refuse)
