"""Slips that would take effect wrongly, and are refused where they are made."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import tenacity

from headway import (
    ConfigurationError,
    Event,
    Lifecycle,
    Service,
    Work,
    connect,
    retry,
    run_services,
)
from headway.testing import Trial
from headway.testing.engines import Worker
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


async def test_a_set_in_a_document_is_refused_by_its_field() -> None:
    async def place(event: Event, work: Work) -> None:
        work.documents("orders").insert_new({"_id": "a", "tags": {"x", "y"}})

    (letter,) = await (await ran(place)).letters("orders")
    assert "the field 'tags' holds a set" in letter.last_error
    assert letter.abandoned_reason == "non_retryable"


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
@pytest.mark.parametrize("written", [0, 1])
async def test_a_find_without_a_limit_leaves_no_document_out(kind: str, written: int) -> None:
    found: list[int] = []

    async def coroutine(event: Event, work: Work) -> None:
        orders = work.documents("orders")
        orders.insert_new([{"_id": "new"}] * written)
        found.append(len(await orders.find({}, limit=1000)))
        found.append(len(await orders.find({})))

    def plain(event: Event, work: Any) -> None:
        orders = work.documents("orders")
        orders.insert_new([{"_id": "new"}] * written)
        found.append(len(orders.find({}, limit=1000)))
        found.append(len(orders.find({})))

    for more in (0, 1):
        service = Service("orders")
        service.on("OrderPlaced")(coroutine if kind == "coroutine" else plain)
        trial = Trial(service)
        await trial.put("orders", *({"_id": f"{n:04}"} for n in range(1000 - written + more)))
        await trial.publish("OrderPlaced")
        await trial.run()
        errors = [letter.last_error for letter in await trial.letters("orders")]
        assert len(errors) == more
        assert all("find({}) matches more than 1,000 documents" in each for each in errors)
    assert found == [1000, 1000, 1000]


async def test_a_program_that_finds_more_than_it_is_given_is_told(tmp_path: Path) -> None:
    async def place(event: Event, work: Work) -> None:
        work.documents("orders").insert_new({"_id": f"{n:04}"} for n in range(1001))

    service = Service("orders")
    service.on("OrderPlaced")(place)
    bus = f"sqlite:///{tmp_path}/headway.db"
    async with connect(bus) as headway:
        await headway.declare(service)
        await headway.publish("OrderPlaced")
        async with asyncio.TaskGroup() as group:
            workers: list[Worker] = []
            group.create_task(
                run_services(service, bus=bus, started=lambda worker, _: workers.append(worker))
            )
            while not await headway.find("orders", limit=1):  # noqa: ASYNC110 (a real worker)
                await asyncio.sleep(0.01)
            workers[0].stop()
        with pytest.raises(ValueError, match="more than 1,000 documents"):
            await headway.find("orders")
        assert len(await headway.find("orders", limit=2000)) == 1001


async def test_a_status_of_another_program_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[str] = []
    orders = Service("orders")

    @orders.on("OrderPlaced", documents=("orders", "order"))
    async def place(event: Event, work: Work) -> None:
        runs.append(event.event_id)

    trial = Trial(orders)
    await trial.put("orders", {"_id": "o1", "status": "Done!"}, {"_id": "o2"})
    for document in ("o1", "o1", "o2"):
        await trial.publish("OrderPlaced", {"order": document})
    await trial.run()
    assert len(runs) == 3
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert line.startswith("orders/o1 has status='Done!', which Headway does not know: ")
    assert "test_slips.py" in line


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
