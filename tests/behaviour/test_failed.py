"""Failed queues under an operator's hands: whatever happens, no letter and no event is lost."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headway import ConfigurationError, Service
from headway.operations import FailedQueues, Letter, Report
from headway.retrying import FloodRule
from headway.testing.ports import Message
from headway.testing.trial import Trial
from tests.behaviour.sweeps import Spied


class Shop:
    """Two services that take the same type; the first fails while `broken`."""

    def __init__(self) -> None:
        self.broken = True
        self.mailed: list[str] = []
        self.orders = orders = Service("orders", flood=FloodRule(at_least=1_000_000))
        mails = Service("mails")

        @orders.on("OrderPlaced", failed="OrderFailed")
        async def place(event: Any, work: Any) -> None:
            self._fail(event)
            work.documents("placed").add({"order": event.data["order"]})

        @orders.on("OrderPaid")
        async def pay(event: Any, work: Any) -> None:
            self._fail(event)
            work.documents("paid").add({"order": event.data["order"]})

        @mails.on("OrderPlaced")
        async def mail(event: Any, work: Any) -> None:
            self.mailed.append(event.data["order"])

        self.trial = Trial(orders, mails)
        self.behind = self.trial.engine.letters
        self.failed = self.queues()

    def queues(self, **instead: Any) -> FailedQueues:
        """Give an operator; some calls for dead letters do something else."""
        letters: Any = Spied(self.behind, **instead)
        engine = replace(self.trial.engine, letters=letters)
        return FailedQueues(engine, self.trial.clock, self.trial.chance, who="ada")

    def _fail(self, event: Any) -> None:
        if self.broken:
            raise KeyError(event.data["order"]) if "key" in event.data else ValueError("broken")

    async def fill(self, count: int, event_type: str = "OrderPlaced", **data: Any) -> None:
        """Let events end as dead letters."""
        await self.trial.open()
        await self.trial.publisher.publish_all(
            [(event_type, {"order": f"{event_type}-{n}", **data}) for n in range(count)]
        )
        await self.trial.run()

    async def letters(self) -> Sequence[Letter]:
        return await self.trial.letters("orders.failed")

    async def balances(self) -> bool:
        count = await self.trial.balance()
        waiting = sum(q.ready + q.leased + q.delayed + q.parked + q.held for q in count.queues)
        total = waiting + sum(count.failed.values()) + count.done
        return count.accepted == total and (await self.trial.engine.places.astray(1))[0] == 0


@pytest.fixture
def shop() -> Shop:
    return Shop()


def ids(letters: Sequence[Letter]) -> list[str]:
    return [letter.letter_id for letter in letters]


# What is read and sent


async def test_a_dry_run_changes_nothing(shop: Shop) -> None:
    await shop.fill(3)
    before = await shop.letters()
    requeue = await shop.failed.requeue("orders", dry_run=True)
    purge = await shop.failed.purge("orders", dry_run=True)
    assert (requeue.done, requeue.targets, purge.done) == (3, {"orders.order.placed": 3}, 3)
    assert (await shop.letters(), shop.trial.state.items) == (before, {})


async def test_what_is_sent_again_is_the_original_event_and_not_the_failed_one(shop: Shop) -> None:
    await shop.trial.open()
    odd = b'{"event_type": "OrderPlaced",  "data": {"order": "a", "sum": 1e2}, "event_id": "e"}'
    await shop.trial.publisher.publish_bytes(odd, "OrderPlaced", operation="op")
    await shop.trial.run()
    (letter,) = await shop.letters()
    assert letter.body == odd
    await shop.failed.requeue("orders")
    (item,) = shop.trial.state.items.values()
    assert (item.body, item.travel.operation) == (odd, "op")
    assert item.travel.generation == f"{letter.letter_id}.1"
    assert (item.travel.requeues, item.travel.failures) == (1, 0)


async def test_nobody_else_who_takes_the_type_gets_it_a_second_time(shop: Shop) -> None:
    await shop.fill(3)
    await shop.fill(2, "OrderPaid")
    assert sorted(shop.mailed) == [f"OrderPlaced-{n}" for n in range(3)]
    shop.broken = False
    report = await shop.failed.requeue("orders")
    await shop.trial.run()
    assert report.targets == {"orders.order.placed": 3, "orders.order.paid": 2}
    assert (report.done, len(shop.mailed)) == (5, 3)
    assert len(await shop.trial.documents("placed")) == 3
    assert len(await shop.trial.documents("paid")) == 2
    assert await shop.balances()


async def test_what_is_sent_to_another_queue_has_an_end_here_and_another_there(shop: Shop) -> None:
    await shop.fill(3, "OrderPaid")
    (queue,) = [each for each in shop.orders.queues() if each.name == "orders.order.paid"]
    other = replace(queue, name="orders.order.placed")  # it takes the type from now on, too
    await shop.trial.engine.bus.open([other])
    await shop.failed.requeue("orders", limit=2, target_queue="orders.order.placed")
    assert await shop.balances()
    await shop.trial.run()
    assert len(await shop.letters()) == 3
    assert await shop.balances()
    # Back to where it came from, and from there to a good end.
    await shop.failed.requeue("orders", target_queue="orders.order.paid")
    assert await shop.balances()
    shop.broken = False
    await shop.trial.run()
    assert (await shop.letters(), len(await shop.trial.documents("paid"))) == ([], 3)
    count = await shop.trial.balance()
    assert (count.done, count.accepted) == (5, 5)
    assert await shop.balances()


NOT_SENDABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no queue": ({"queue": ""}, "target queue"),
    "queue that is not declared": ({"queue": "old.queue"}, "old.queue"),
    "bytes that cannot be read": ({"original_base64": "x"}, "base64"),
}


@pytest.mark.parametrize("case", NOT_SENDABLE)
async def test_what_cannot_be_sent_is_skipped_with_the_reason_and_stays(
    shop: Shop, case: str
) -> None:
    changes, words = NOT_SENDABLE[case]
    await shop.fill(2)
    first, second = await shop.letters()
    hurt = msgspec.structs.replace(first, **changes)
    shop.trial.state.letters["orders.failed"][first.letter_id] = hurt
    for dry_run, left in ((True, [hurt, second]), (False, [hurt])):
        report = await shop.failed.requeue("orders", dry_run=dry_run)
        (skipped,) = report.skipped
        assert (report.done, skipped.letter_id) == (1, first.letter_id)
        assert words in skipped.reason
        assert await shop.letters() == left


# What is sent is frozen at the start


async def test_dead_letters_that_come_meanwhile_are_not_touched(shop: Shop) -> None:
    await shop.fill(150)
    chosen = await shop.letters()
    late = msgspec.structs.replace(chosen[0], letter_id="late", operation="late")

    async def requeue(queue: str, letter_id: str, message: Message) -> bool:
        await shop.behind.write(queue, [late])
        return await shop.behind.requeue(queue, letter_id, message)

    report = await shop.queues(requeue=requeue).requeue("orders")
    assert (report.done, list(report.chosen)) == (150, ids(chosen))
    assert await shop.letters() == [late]
    assert all(item.travel.operation != "late" for item in shop.trial.state.items.values())


async def test_what_fails_again_is_not_sent_a_second_time(shop: Shop) -> None:
    await shop.fill(120)

    async def requeue(queue: str, letter_id: str, message: Message) -> bool:
        sent = await shop.behind.requeue(queue, letter_id, message)
        await shop.trial.clock.wait(timedelta(seconds=1))
        return sent

    async with shop.trial.running():
        report = await shop.queues(requeue=requeue).requeue("orders")
        await shop.trial.clock.wait(timedelta(minutes=5))
    assert report.done == 120
    assert [letter.requeues for letter in await shop.letters()] == [1] * 120
    assert await shop.balances()


async def test_what_another_operator_took_is_not_sent_and_ends_no_walk(shop: Shop) -> None:
    await shop.fill(350)
    there = ids(await shop.letters())
    taken = {there[0], there[99], there[199]}

    async def read(queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
        if after in taken:
            await shop.behind.remove(queue, [after or ""])
        return await shop.behind.read(queue, limit, after)

    async def requeue(queue: str, letter_id: str, message: Message) -> bool:
        await shop.behind.remove(queue, [there[0]])
        return await shop.behind.requeue(queue, letter_id, message)

    queues = shop.queues(read=read, requeue=requeue)
    found = ids([letter async for letter in queues.export("orders")])
    assert len(found) == len(set(found))
    assert set(found) >= set(there) - taken
    report = await queues.requeue("orders", limit=3, rate=1000)
    assert (report.done, report.gone) == (2, 1)
    assert len(shop.trial.state.items) == 2


# Pace


async def test_a_requeue_keeps_to_its_rate(shop: Shop) -> None:
    await shop.fill(5)
    began = shop.trial.clock.now()
    steps: list[tuple[float, int]] = []

    def tell(report: Report) -> None:
        steps.append(((shop.trial.clock.now() - began).total_seconds(), report.done))

    await shop.failed.requeue("orders", rate=2, on_progress=tell)
    assert steps[:5] == [(0, 1), (0.5, 2), (1, 3), (1.5, 4), (2, 5)]


@pytest.mark.parametrize(
    "options",
    [{"rate": 0}, {"rate": -1}, {"rate": float("nan")}, {"target_queue": "mails.failed"}],
)
async def test_a_rate_that_never_ends_and_a_failed_queue_as_target_are_refused(
    shop: Shop, options: dict[str, Any]
) -> None:
    await shop.fill(1)
    with pytest.raises(ConfigurationError, match="=".join(options)):
        await shop.failed.requeue("orders", **options)
    assert len(await shop.letters()) == 1
