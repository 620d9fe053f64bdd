"""Services on a bus with a store beside it, as a user and an operator meet them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from headway import Event, Service, Work
from headway.clock import SystemClock
from headway.operations import FailedQueues, verify
from headway.runtime.overview import Verdict
from headway.testing.chance import Seeded
from headway.testing.conformance.examples import opened
from headway.testing.engines import Publisher, Worker
from headway.testing.facts import Recorder
from headway.testing.ports import Engine
from tests.engines.pairs.harnesses import StoreHarness

IDS = [f"order-{number}" for number in range(20)]


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[StoreHarness]:
    harness = StoreHarness(tmp_path / "store.db")
    harness.clock = SystemClock()  # the store has threads, which no virtual clock waits for
    yield harness
    await harness.close()


class Shop:
    """Orders that are paid, except while there is a fault, and mails about them."""

    def __init__(self) -> None:
        self.broken = True
        self.orders = Service("orders")
        self.mails = Service("mails")

        @self.orders.on("OrderPlaced", failed="OrderFailed")
        async def pay(event: Event, work: Work) -> None:
            if self.broken and event.data["number"] % 4 == 0:
                raise ValueError("the price is missing")
            work.documents("accounts").increment("shop", "orders")
            work.publish("OrderPaid", event.data)

        @self.mails.on("OrderPaid")
        async def mail(event: Event, work: Work) -> None:
            work.documents("sent").add({"number": event.data["number"]})

    @property
    def services(self) -> list[Service]:
        return [self.orders, self.mails]

    async def run(self, harness: StoreHarness) -> None:
        """Let a worker run until nothing waits."""
        engine = await harness.open_engine()
        worker = Worker(
            self.services, engine, clock=harness.clock, chance=Seeded(), observer=Recorder()
        )
        running = asyncio.create_task(worker.run())
        while (await engine.places.depths()).waiting:
            await harness.pass_time(timedelta(milliseconds=20))
        worker.stop()
        await running


async def numbers(engine: Engine) -> list[int]:
    return sorted(each["number"] for each in await engine.documents.find("sent", {}, 100))


async def test_what_failed_is_sent_again_and_everything_takes_effect_once(
    harness: StoreHarness,
) -> None:
    shop = Shop()
    desk = await opened(harness, [queue for each in shop.services for queue in each.queues()])
    publisher = Publisher(desk.bus, harness.clock, Seeded())
    for number, order in enumerate(IDS):
        await publisher.publish("OrderPlaced", {"number": number}, event_id=order)
    report = await verify(desk.places, against=IDS)
    assert report.verdict is Verdict.OK  # this bus finds what waits
    await shop.run(harness)
    good = [number for number in range(20) if number % 4]
    assert await numbers(desk) == good
    report = await verify(desk.places, against=IDS)
    assert (report.verdict, report.places["failed"]) == (Verdict.OK, 5)

    failed = FailedQueues(desk, harness.clock, Seeded())
    (first, *_) = await failed.inspect("orders.failed")
    assert (await failed.purge("orders.failed", ids=[first.letter_id])).done == 1
    shop.broken = False
    assert (await failed.requeue("orders.failed")).done == 4
    await shop.run(harness)
    assert await numbers(desk) == [n for n in range(20) if f"order-{n}" != first.operation]
    assert (await desk.documents.fetch("accounts", ["shop"]))["shop"]["orders"] == 19
    report = await verify(desk.places, against=IDS)
    assert (report.verdict, report.count.done, report.count.purged) == (Verdict.OK, 39, 1)
    assert report.places["failed"] == 0
    report = await verify(desk.places, against=[*IDS, "order-99"])
    assert (report.verdict, list(report.not_known)) == (Verdict.NOT_OK, ["order-99"])
