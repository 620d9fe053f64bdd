"""Slips that would take effect wrongly, and are refused where they are made."""

from typing import Any

import pytest
import tenacity

from headway import ConfigurationError, Event, Lifecycle, Service, Work, retry
from headway.testing import Trial
from tests.behaviour.scenes import ran


@pytest.mark.parametrize("again", [retry(max_attempts=3), tenacity.retry])
@pytest.mark.parametrize("kind", ["coroutine", "plain"])
def test_a_handler_that_a_decorator_retries_is_refused(again: Any, kind: str) -> None:
    """Each try would write and publish once more."""

    async def coroutine(event: Event, work: Work) -> None: ...

    def plain(event: Event, work: Work) -> None: ...

    with pytest.raises(ConfigurationError, match="retried"):
        Service("orders").on("OrderPlaced")(again(coroutine if kind == "coroutine" else plain))


@pytest.mark.parametrize(
    "slip",
    [
        lambda documents: documents.update("a", {"$set": {"n": 5}}),
        lambda documents: documents.update("a", {"n": {"$inc": 1}}),
        lambda documents: documents.find({"n": {"$gt": 0}}),
        lambda documents: documents.insert_new([{"_id": "b", "n": 1}, {"_id": "b", "n": 2}]),
    ],
)
async def test_what_a_store_would_take_for_something_else_is_refused(slip: Any) -> None:
    async def place(event: Event, work: Work) -> None:
        reading = slip(work.documents("orders"))
        if reading is not None:
            await reading

    trial = await ran(place)
    (letter,) = await trial.letters("orders")
    assert (letter.abandoned_reason, letter.error_type) == ("non_retryable", "ValueError")


@pytest.mark.parametrize("flag", ["status", "attemptCount", "_id", "", True])
def test_a_flag_is_a_field_of_the_users_own(flag: Any) -> None:
    with pytest.raises(ConfigurationError, match="flag="):
        Lifecycle("orders", flag=flag)


async def test_two_types_that_announce_each_other_as_failed_come_to_an_end() -> None:
    orders = Service("orders", max_hops=3)

    @orders.on("Ping", failed="Pong")
    async def ping(event: Event, work: Work) -> None:
        raise ValueError("ping")

    @orders.on("Pong", failed="Ping")
    async def pong(event: Event, work: Work) -> None:
        raise ValueError("pong")

    trial = Trial(orders)
    await trial.publish("Ping")
    await trial.run()
    assert len(await trial.letters("orders")) == 4


@pytest.mark.parametrize(
    ("service", "event_type"),
    [("headway", "Versions"), ("headway.starts", "Shop"), ("orders", "OrderPlacedSuspects")],
)
def test_queues_that_headway_names_itself_are_refused(service: str, event_type: str) -> None:
    with pytest.raises(ConfigurationError, match="queues of its own"):
        Service(service).on(event_type)(lambda event, work: None)
