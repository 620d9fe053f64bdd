"""`requeue --target-queue`: only a queue that takes the type of the event."""

from pathlib import Path
from typing import Any

import pytest

from headway import Service
from headway.operations import FailedQueues
from headway.testing.trial import Trial
from tests.cli.shops import ShopFile


class Shop:
    """Two services that fail for good; a third one, which takes over, comes later."""

    def __init__(self) -> None:
        self.orders, self.mails = Service("orders"), Service("mails")
        self.moved = Service("orders2")
        self.handled: list[Any] = []
        self.orders.on("OrderPlaced")(self._fail)
        self.orders.on("OrderPaid")(self._fail)
        self.mails.on("OrderMailed")(self._fail)
        self.moved.on("OrderPaid")(self._handle)
        self.trial = Trial(self.orders, self.mails)
        self.failed = FailedQueues(self.trial.engine, self.trial.clock, self.trial.chance)

    async def _fail(self, event: Any, _work: Any) -> None:
        raise ValueError(event.event_type)

    async def _handle(self, event: Any, _work: Any) -> None:
        self.handled.append(event.event_type)

    async def fill(self, *event_types: str) -> None:
        for event_type in event_types:
            await self.trial.publish(event_type)
        await self.trial.run()


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("target", ["mails.order.mailed", "orders.order.placed", "no.such.queue"])
async def test_letter_is_not_sent_to_a_queue_that_does_not_take_its_type(
    target: str, *, dry_run: bool
) -> None:
    shop = Shop()
    await shop.fill("OrderPaid")
    (letter,) = await shop.trial.letters("orders")
    report = await shop.failed.requeue("orders", target_queue=target, dry_run=dry_run)
    assert (report.done, [each.letter_id for each in report.skipped]) == (0, [letter.letter_id])
    assert all(each in report.skipped[0].reason for each in (target, "orders.order.paid"))
    assert list(await shop.trial.letters("orders")) == [letter]


async def test_letters_go_to_another_queue_by_their_types() -> None:
    shop = Shop()
    await shop.fill("OrderPaid", "OrderPlaced")
    await shop.trial.engine.bus.open(shop.moved.queues())
    paid, placed = await shop.trial.letters("orders")
    report = await shop.failed.requeue("orders", target_queue="orders2.order.paid")
    assert (report.targets, report.moved) == ({"orders2.order.paid": 1}, 1)
    assert [each.letter_id for each in report.skipped] == [placed.letter_id]
    shop.trial.services = (shop.orders, shop.mails, shop.moved)
    await shop.trial.run()
    assert (shop.handled, paid.event_type) == (["OrderPaid"], "OrderPaid")


async def test_letter_without_a_type_and_a_letter_of_the_queue_itself_are_sent() -> None:
    shop = Shop()
    await shop.trial.open()
    await shop.trial.publisher.publish_bytes(b"no event", "OrderPaid")
    await shop.trial.publisher.publish_bytes(b'{"event_type": "Unknown"}', "OrderPlaced")
    await shop.trial.run()
    report = await shop.failed.requeue("orders", target_queue="orders.order.placed", dry_run=True)
    assert (report.done, report.skipped) == (2, [])


def test_command_names_the_queues_that_take_the_type(tmp_path: Path) -> None:
    shop = ShopFile(tmp_path)
    shop.fill({"bad": 1})
    done = shop("failed", "requeue", "parsing", "--target-queue", "chunking.json.parsed")
    assert (done.exit_code, "0 of 1 letter" in done.stdout) == (1, True)
    assert "These queues do: parsing.archive.ingested" in done.stdout
