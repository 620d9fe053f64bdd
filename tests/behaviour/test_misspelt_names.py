"""Names of collections, and words in `status`, that a handler mistypes: each is warned of once."""

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headway import BlockingWork, Event, Lifecycle, Service, Work
from headway.testing import Trial

HERE = re.compile(r"test_misspelt_names\.py:\d+")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


async def gets(event: Event, work: Work) -> None:
    assert await work.documents("mesages").get("m1") is None


async def gets_and_fails(event: Event, work: Work) -> None:
    found = await work.documents("mesages").get("m1")
    raise TypeError(found)


async def finds(event: Event, work: Work) -> None:
    assert await work.documents("mesages").find({}) == []


async def inserts(event: Event, work: Work) -> None:
    work.documents("mesages").insert_new({"_id": "m2"})


async def increments(event: Event, work: Work) -> None:
    work.documents("Messages").increment("m1", "seen")


def finds_in_a_thread(event: Event, work: BlockingWork) -> None:
    assert work.documents("mesages").find({}) == []


def service_of(handler: Callable[..., Any], **arguments: Any) -> Service:
    service = Service("mails", **arguments)
    service.on("MailReceived")(handler)
    return service


async def run(service: Service, *there: str, events: int = 2) -> Trial:
    trial = Trial(service)
    for collection in there:
        await trial.put(collection, {"_id": "m1", "status": "pending"})
    for _ in range(events):
        await trial.publish("MailReceived")
    await trial.run()
    return trial


@pytest.mark.parametrize(
    "handler", [gets, gets_and_fails, finds, inserts, increments, finds_in_a_thread]
)
async def test_a_misspelt_collection_is_named_once_with_handler_and_line(
    handler: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    await run(service_of(handler), "messages")
    (line,) = [each for each in warnings(caplog) if "sages" in each]
    assert len(HERE.findall(line)) == 2
    assert handler.__name__ in line
    assert "Did you mean messages?" in line


async def test_a_declared_collection_is_known_before_there_is_a_document(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await run(service_of(inserts, lifecycles=[Lifecycle("messages")]))
    (line,) = warnings(caplog)
    assert "mesages" in line


@pytest.mark.parametrize(
    ("used", "there"),
    [
        ("orders_eu", "orders"),
        ("events_2025", "events_2024"),
        ("chunks_b", "chunks_a"),
        ("orders2", "orders1"),
        ("mails", "orders"),
        ("messages", "mesages"),
    ],
)
async def test_other_names_may_be_used(
    used: str, there: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(event: Event, work: Work) -> None:
        work.documents(used).insert_new({"_id": "m1"})
        assert await work.documents(there).get("m1")

    # Where both hold documents, nobody can tell.
    await run(service_of(handle), there, *({"messages"} & {used}))
    assert warnings(caplog) == []


# Words in status


def writing(status: Any, **lifecycle: Any) -> Service:
    async def write(event: Event, work: Work) -> None:
        messages = work.documents("messages")
        messages.update("m1", {"status": status})
        messages.insert_new({"_id": event.event_id, "status": status})

    return service_of(write, lifecycles=[Lifecycle("messages", **lifecycle)])


@pytest.mark.parametrize(
    ("status", "meant", "lifecycle"),
    [
        ("Processed", "processed", {}),
        ("proccessed", "processed", {}),
        ("PENDING", "pending", {}),
        (" failed", "failed", {}),
        ("Done", "done", {"processed": "done"}),
    ],
)
async def test_a_misspelt_status_is_named_once_with_handler_and_line(
    status: str, meant: str, lifecycle: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    await run(writing(status, **lifecycle), "messages")
    (line,) = warnings(caplog)
    assert len(HERE.findall(line)) == 2
    assert f"status={status!r}" in line
    assert line.endswith(f"{meant!r}?")


@pytest.mark.parametrize(
    ("status", "lifecycle"),
    [
        ("processed", {}),
        ("processing", {}),
        ("completed", {}),
        ("unprocessed", {}),
        ("shipped", {}),
        (["Processed"], {}),
        (None, {}),
        ("Processed", {"processed": "Processed"}),
        ("Processed", {"flag": "embedded"}),
    ],
)
async def test_other_words_may_be_written(
    status: Any, lifecycle: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    trial = await run(writing(status, **lifecycle), "messages")
    assert [each for each in warnings(caplog) if "status=" in each] == []
    assert (await trial.balance()).done == 2


# New documents that no handler is about


def inserting(document: dict[str, Any], **arguments: Any) -> Service:
    async def order(event: Event, work: Work) -> None:
        work.documents("shipments").insert_new({"_id": event.event_id, **document})

    return service_of(order, lifecycles=[Lifecycle("shipments")], **arguments)


async def run_for_a_while(*services: Service) -> None:
    trial = Trial(*services)
    async with trial.running():
        for _ in range(2):
            await trial.publish("MailReceived")
            await trial.clock.wait(timedelta(minutes=2))


async def test_documents_that_stay_pending_are_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await run_for_a_while(inserting({}))
    (line,) = warnings(caplog)
    assert len(HERE.findall(line)) == 2
    assert "inserting.order" in line
    assert "documents=('shipments', ...)" in line


async def test_documents_that_a_handler_is_about_or_that_are_processed_are_not_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shipping = Service("shipping")

    @shipping.on("Ready", documents=("shipments", "id"))
    async def ship(event: Event, work: Work) -> None: ...

    await run_for_a_while(inserting({}), shipping)
    await run_for_a_while(inserting({"status": "processed"}))
    assert warnings(caplog) == []
