"""Failed queues under an operator's hands: whatever happens, no letter and no event is lost."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headway import ConfigurationError, Service
from headway.operations import FailedQueue, FailedQueues, Letter, Report
from headway.retrying import FloodRule
from headway.testing.ports import Letters, Message
from headway.testing.trial import Trial


class Shop:
    """Two services that take the same type; the first fails while `broken`."""

    def __init__(self) -> None:
        self.broken = True
        self.mailed: list[str] = []
        self.orders = Service("orders", flood=FloodRule(at_least=1_000_000))
        self.mails = Service("mails")

        @self.orders.on("OrderPlaced", failed="OrderFailed")
        async def place(event: Any, work: Any) -> None:
            self._fail(event)
            work.documents("placed").add({"order": event.data["order"]})

        @self.orders.on("OrderPaid")
        async def pay(event: Any, work: Any) -> None:
            self._fail(event)
            work.documents("paid").add({"order": event.data["order"]})

        @self.mails.on("OrderPlaced")
        async def mail(event: Any, work: Any) -> None:
            self.mailed.append(event.data["order"])

        self.trial = Trial(self.orders, self.mails)
        self.failed = FailedQueues(
            self.trial.engine, self.trial.clock, self.trial.chance, who="ada"
        )

    def _fail(self, event: Any) -> None:
        if self.broken:
            raise KeyError(event.data["order"]) if "key" in event.data else ValueError("broken")

    async def fill(self, count: int, event_type: str = "OrderPlaced", **data: Any) -> None:
        """Let events end as letters."""
        await self.trial.open()
        await self.trial.publisher.publish_all(
            [(event_type, {"order": f"{event_type}-{n}", **data}) for n in range(count)]
        )
        await self.trial.run()

    async def letters(self) -> Sequence[Letter]:
        return await self.trial.letters("orders.failed")

    def with_letters(self, letters: Letters) -> FailedQueues:
        engine = replace(self.trial.engine, letters=letters)
        return FailedQueues(engine, self.trial.clock, self.trial.chance)

    async def balances(self) -> bool:
        count = await self.trial.count()
        waiting = sum(q.ready + q.leased + q.delayed + q.parked + q.held for q in count.queues)
        total = waiting + sum(count.failed.values()) + count.done
        return count.accepted == total and (await self.trial.engine.places.astray(1))[0] == 0


@pytest.fixture
def shop() -> Shop:
    return Shop()


def ids(letters: Sequence[Letter]) -> list[str]:
    return [letter.letter_id for letter in letters]


class Passing:
    """Letters that do as those behind them; tests let it go wrong."""

    def __init__(self, behind: Letters) -> None:
        self.behind = behind

    async def queues(self) -> Sequence[FailedQueue]:
        return await self.behind.queues()

    async def write(self, queue: str, letters: Sequence[Letter]) -> None:
        await self.behind.write(queue, letters)

    async def read(self, queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
        return await self.behind.read(queue, limit, after)

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        return await self.behind.requeue(queue, letter_id, message)

    async def remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        return await self.behind.remove(queue, letter_ids)


# Each way in which such commands have destroyed letters before


async def test_inspecting_reads_different_letters_and_changes_none(shop: Shop) -> None:
    await shop.fill(5)
    before = [msgspec.json.encode(letter) for letter in await shop.letters()]
    found = await shop.failed.inspect("orders.failed", limit=3)
    assert ids(found) == ids(await shop.letters())[:3]
    rest = await shop.failed.inspect("orders.failed", after=found[-1].letter_id)
    assert ids([*found, *rest]) == ids(await shop.letters())
    assert [msgspec.json.encode(letter) for letter in await shop.letters()] == before


@pytest.mark.parametrize("count", [99, 100, 101, 250])
async def test_an_export_holds_every_letter_once(shop: Shop, count: int) -> None:
    await shop.fill(count)
    before = await shop.letters()
    found = [letter async for letter in shop.failed.export("orders")]
    assert list(found) == list(before) == list(await shop.letters())
    assert len(set(ids(found))) == count


async def test_a_dry_run_changes_nothing(shop: Shop) -> None:
    await shop.fill(3)
    before = await shop.letters()
    requeue = await shop.failed.requeue("orders", dry_run=True)
    purge = await shop.failed.purge("orders", dry_run=True)
    assert (requeue.done, requeue.targets, purge.done) == (3, {"orders.order.placed": 3}, 3)
    assert await shop.letters() == before
    assert shop.trial.state.items == {}


async def test_what_is_sent_again_is_the_original_event_and_not_the_failed_one(shop: Shop) -> None:
    await shop.trial.open()
    odd = b'{"event_type": "OrderPlaced",  "data": {"order": "a", "sum": 1e2}, "event_id": "e"}'
    await shop.trial.publisher.publish_bytes(odd, "OrderPlaced", operation="op")
    await shop.trial.run()
    (letter,) = await shop.letters()
    assert letter.body == odd
    await shop.failed.requeue("orders")
    (item,) = shop.trial.state.items.values()
    assert item.body == odd
    assert item.travel.operation == "op"
    assert item.travel.generation == f"{letter.letter_id}.1"
    assert (item.travel.requeues, item.travel.failures) == (1, 0)


async def test_nobody_else_who_takes_the_type_gets_it_a_second_time(shop: Shop) -> None:
    await shop.fill(3)
    assert sorted(shop.mailed) == [f"OrderPlaced-{n}" for n in range(3)]
    shop.broken = False
    report = await shop.failed.requeue("orders")
    await shop.trial.run()
    assert (report.done, report.targets) == (3, {"orders.order.placed": 3})
    assert len(shop.mailed) == 3
    assert len(await shop.trial.documents("placed")) == 3
    assert await shop.balances()


async def test_each_letter_goes_to_the_queue_that_it_came_from(shop: Shop) -> None:
    await shop.fill(2)
    await shop.fill(3, "OrderPaid")
    shop.broken = False
    report = await shop.failed.requeue("orders")
    assert report.targets == {"orders.order.placed": 2, "orders.order.paid": 3}
    await shop.trial.run()
    assert len(await shop.trial.documents("placed")) == 2
    assert len(await shop.trial.documents("paid")) == 3


async def test_where_nobody_handles_the_type_it_becomes_a_letter_again(shop: Shop) -> None:
    await shop.fill(1, "OrderPaid")
    (before,) = await shop.letters()
    report = await shop.failed.requeue("orders", target_queue="mails.order.placed")
    assert report.targets == {"mails.order.placed": 1}
    await shop.trial.run()
    (letter,) = await shop.trial.letters("mails.failed")
    assert (letter.abandoned_reason, letter.body) == ("unroutable", before.body)


async def test_a_dry_run_counts_what_another_queue_may_still_refuse(shop: Shop) -> None:
    await shop.fill(2)
    await shop.fill(1, "OrderPaid")
    elsewhere = "mails.order.placed"
    dry = await shop.failed.requeue("orders", target_queue=elsewhere, dry_run=True)
    assert (dry.done, dry.moved, dry.skipped) == (3, 3, [])
    # That queue has had two of them itself: every service got its own of what was published.
    report = await shop.failed.requeue("orders", target_queue=elsewhere)
    assert (report.done, report.moved, len(report.skipped)) == (1, 1, 2)
    assert "is in that queue's books already" in report.skipped[0].reason
    at_home = await shop.failed.requeue("orders", dry_run=True)
    assert (at_home.done, at_home.moved) == (2, 0)


async def test_what_is_sent_to_another_queue_has_an_end_here_and_another_there(shop: Shop) -> None:
    await shop.fill(3, "OrderPaid")
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
    count = await shop.trial.count()
    assert (count.done, count.accepted) == (5, 5)
    assert await shop.balances()


async def test_one_queue_that_is_not_there_does_not_spoil_the_list(shop: Shop) -> None:
    await shop.fill(2)
    with pytest.raises(ConfigurationError):
        await shop.failed.inspect("nobody.failed")
    found = await shop.failed.list()
    assert [(each.name, each.letters) for each in found] == [
        ("mails.failed", 0),
        ("orders.failed", 2),
    ]


async def test_a_letter_keeps_the_whole_original_event(shop: Shop) -> None:
    await shop.fill(1)
    (letter,) = await shop.failed.inspect("orders")
    assert letter.original_event["data"] == {"order": "OrderPlaced-0"}
    assert letter.event_type == "OrderPlaced"


NOT_SENDABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no queue": ({"queue": ""}, "target queue"),
    "queue that is not declared": ({"queue": "old.queue"}, "old.queue"),
    "bytes that cannot be read": ({"original_base64": "x"}, "base64"),
}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("case", NOT_SENDABLE)
async def test_what_cannot_be_sent_is_skipped_with_the_reason_and_stays(
    shop: Shop, case: str, *, dry_run: bool
) -> None:
    changes, words = NOT_SENDABLE[case]
    await shop.fill(2)
    first, second = await shop.letters()
    hurt = msgspec.structs.replace(first, **changes)
    shop.trial.state.letters["orders.failed"][first.letter_id] = hurt
    report = await shop.failed.requeue("orders", dry_run=dry_run)
    assert (report.done, [each.letter_id for each in report.skipped]) == (1, [first.letter_id])
    assert words in report.skipped[0].reason
    assert await shop.letters() == ([hurt, second] if dry_run else [hurt])


# What is sent is frozen at the start


async def test_letters_that_come_meanwhile_are_not_touched(shop: Shop) -> None:
    await shop.fill(250)
    chosen = await shop.letters()
    late = msgspec.structs.replace(chosen[0], letter_id="late", operation="late")

    class Growing(Passing):
        async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
            await self.write(queue, [late])
            return await super().requeue(queue, letter_id, message)

    report = await shop.with_letters(Growing(shop.trial.engine.letters)).requeue("orders")
    assert (report.done, list(report.chosen)) == (250, ids(chosen))
    assert await shop.letters() == [late]
    assert all(item.travel.operation != "late" for item in shop.trial.state.items.values())


async def test_what_fails_again_is_not_sent_a_second_time(shop: Shop) -> None:
    await shop.fill(120)

    class Slow(Passing):
        async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
            sent = await super().requeue(queue, letter_id, message)
            await shop.trial.clock.wait(timedelta(seconds=1))
            return sent

    async with shop.trial.running():
        report = await shop.with_letters(Slow(shop.trial.engine.letters)).requeue("orders")
        await shop.trial.clock.wait(timedelta(minutes=5))
    assert report.done == 120
    assert [letter.requeues for letter in await shop.letters()] == [1] * 120
    assert await shop.balances()


async def test_what_another_operator_took_is_not_sent(shop: Shop) -> None:
    await shop.fill(3)
    first, *_ = await shop.letters()

    class Two(Passing):
        async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
            await self.remove(queue, [first.letter_id])
            return await super().requeue(queue, letter_id, message)

    report = await shop.with_letters(Two(shop.trial.engine.letters)).requeue("orders", rate=1000)
    assert (report.done, report.gone) == (2, 1)
    assert len(shop.trial.state.items) == 2


async def test_a_walk_goes_on_where_somebody_takes_the_letter_at_which_it_is(shop: Shop) -> None:
    await shop.fill(350)
    there = ids(await shop.letters())

    class Vanishing(Passing):
        async def read(self, queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
            if after in {there[99], there[199]}:
                await self.remove(queue, [after or ""])
            return await super().read(queue, limit, after)

    queues = shop.with_letters(Vanishing(shop.trial.engine.letters))
    found = ids([letter async for letter in queues.export("orders")])
    assert len(found) == len(set(found))
    assert set(found) >= set(there) - {there[99], there[199]}


# Filters, pace, names


async def test_only_the_letters_that_are_meant(shop: Shop) -> None:
    await shop.fill(2)
    await shop.fill(2, "OrderPaid", key=True)
    letters = await shop.letters()
    by_type = await shop.failed.requeue("orders", error_type="KeyError", dry_run=True)
    assert list(by_type.chosen) == [
        one.letter_id for one in letters if one.error_type == "KeyError"
    ]
    assert len(by_type.chosen) == 2
    oldest = await shop.failed.purge("orders", limit=3, dry_run=True)
    assert list(oldest.chosen) == ids(letters)[:3]
    some = await shop.failed.purge("orders", ids=[ids(letters)[2], "nobody"])
    assert (list(some.chosen), list(some.missing)) == ([ids(letters)[2]], ["nobody"])
    assert ids(await shop.letters()) == [*ids(letters)[:2], ids(letters)[3]]
    (one,) = await shop.failed.inspect("orders", letter_id=ids(letters)[3])
    assert one == letters[3]
    assert [a async for a in shop.failed.export("orders", error_type="OSError")] == []
    shop.broken = False
    sent = await shop.failed.requeue("orders", error_type="KeyError")
    assert sent.targets == {"orders.order.paid": 1}
    assert ids(await shop.letters()) == ids(letters)[:2]
    assert await shop.balances()


async def test_a_requeue_keeps_to_its_rate(shop: Shop) -> None:
    await shop.fill(5)
    began = shop.trial.clock.now()
    steps: list[tuple[float, int]] = []

    def tell(report: Report) -> None:
        steps.append(((shop.trial.clock.now() - began).total_seconds(), report.done))

    await shop.failed.requeue("orders", rate=2, on_progress=tell)
    assert steps[:5] == [(0, 1), (0.5, 2), (1, 3), (1.5, 4), (2, 5)]


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
async def test_a_rate_that_never_ends_is_refused(shop: Shop, rate: float) -> None:
    await shop.fill(1)
    with pytest.raises(ConfigurationError, match="rate="):
        await shop.failed.requeue("orders", rate=rate)


async def test_a_failed_queue_is_no_target(shop: Shop) -> None:
    await shop.fill(1)
    with pytest.raises(ConfigurationError, match=r"target_queue='mails\.failed'"):
        await shop.failed.requeue("orders", target_queue="mails.failed")
    assert len(await shop.letters()) == 1


async def test_a_name_may_be_the_queue_its_service_or_its_collection() -> None:
    services = [Service(name) for name in ("parsing", "chunking")]
    services.append(Service("embedding", failed_queue="embedding.generation.failed"))
    for service in services:
        service.on("Any")(lambda _event, _work: None)
    trial = Trial(*services)
    await trial.open()
    failed = FailedQueues(trial.engine, trial.clock, trial.chance)
    for given in ("parsing.failed", "parsing", "archives.failed", "archives"):
        assert await failed.find(given) == "parsing.failed"
    for given in ("embedding", "chunks.failed", "embedding.generation.failed"):
        assert await failed.find(given) == "embedding.generation.failed"
    with pytest.raises(ConfigurationError) as refused:
        await failed.find("parsin.failed")
    assert "did you mean parsing.failed?" in str(refused.value)
    assert "chunking.failed, embedding.generation.failed, parsing.failed" in str(refused.value)
    with pytest.raises(ConfigurationError, match="no failed queue yet"):
        await FailedQueues(Trial().engine, trial.clock, trial.chance).find("parsing")


async def test_a_page_after_a_letter_that_has_gone_is_refused_and_not_taken_for_the_end(
    shop: Shop,
) -> None:
    await shop.fill(2)
    with pytest.raises(ConfigurationError, match="begin again"):
        await shop.failed.inspect("orders", after="gone")
    last = ids(await shop.letters())[-1]
    assert list(await shop.failed.inspect("orders", after=last)) == []


# The record


async def test_every_change_is_recorded_and_no_look(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway.operator")
    await shop.fill(3)
    await shop.failed.inspect("orders")
    await shop.failed.requeue("orders", dry_run=True)
    assert [one for one in caplog.records if one.name == "headway.operator"] == []
    await shop.failed.requeue("orders", limit=1, error_type="ValueError")
    await shop.failed.purge("orders")
    said = [one.getMessage() for one in caplog.records if one.name == "headway.operator"]
    assert said == [
        "requeue of orders.failed by ada: 1 of 1 letter (error_type=ValueError limit=1), complete",
        "purge of orders.failed by ada: 2 of 2 letters (all), complete",
    ]


async def test_a_change_that_is_stopped_is_recorded_as_far_as_it_got(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway.operator")
    await shop.fill(60)
    gate, began = asyncio.Event(), asyncio.Event()

    class Slow(Passing):
        async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
            began.set()
            await gate.wait()
            return await super().requeue(queue, letter_id, message)

    reports: list[Report] = []
    queues = shop.with_letters(Slow(shop.trial.engine.letters))
    task = asyncio.create_task(queues.requeue("orders", on_progress=reports.append))
    await began.wait()
    task.cancel()
    asyncio.get_running_loop().call_soon(gate.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    left = len(await shop.letters())
    assert 0 < left < 60
    assert reports[-1].done == 60 - left == len(shop.trial.state.items)
    (said,) = [one.getMessage() for one in caplog.records if one.name == "headway.operator"]
    assert f"{60 - left} of 60 letters (all), stopped" in said


# Crash points: before, within and after each durable step


class Died(BaseException):
    """The process of the operator has died."""


class Dying(Passing):
    """Dies at one call, before it does anything, half way, or when it is done."""

    def __init__(self, shop: Shop, at: int, step: str) -> None:
        super().__init__(shop.trial.engine.letters)
        self._shop = shop
        self._left = at
        self._step = step

    async def _die(self, half: Callable[[], Any], whole: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left < 0:
            if self._step == "half way":
                await half()
            elif self._step == "after":
                await whole()
            raise Died
        return await whole()

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        found = await self._die(
            # A broker has confirmed the event, and the letter was not removed any more.
            lambda: self._shop.trial.engine.bus.publish([message]),
            lambda: self.behind.requeue(queue, letter_id, message),
        )
        return bool(found)

    async def remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        found = await self._die(
            lambda: self.behind.remove(queue, letter_ids[: len(letter_ids) // 2]),
            lambda: self.behind.remove(queue, letter_ids),
        )
        return int(found)


@pytest.mark.parametrize("works_meanwhile", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("step", ["before", "half way", "after"])
async def test_a_requeue_that_dies_loses_nothing_and_takes_effect_once(
    shop: Shop, step: str, at: int, *, works_meanwhile: bool
) -> None:
    await shop.fill(3)
    shop.broken = False
    dying = shop.with_letters(Dying(shop, at, step))
    with pytest.raises(Died):
        await dying.requeue("orders", rate=1000)
    if works_meanwhile:
        await shop.trial.run()
    await shop.failed.requeue("orders")
    await shop.trial.run()
    placed = sorted(document["order"] for document in await shop.trial.documents("placed"))
    assert placed == [f"OrderPlaced-{n}" for n in range(3)]
    assert await shop.letters() == []
    assert await shop.balances()


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("step", ["before", "half way", "after"])
async def test_a_purge_that_dies_can_be_given_again(shop: Shop, step: str, at: int) -> None:
    await shop.fill(150)
    everything = ids(await shop.letters())
    chosen, others = everything[:120], everything[120:]
    dying = shop.with_letters(Dying(shop, at, step))
    with pytest.raises(Died):
        await dying.purge("orders", ids=chosen)
    await shop.failed.purge("orders", ids=chosen)
    assert ids(await shop.letters()) == others
    assert await shop.balances()


async def test_an_error_of_the_engine_ends_a_requeue_and_keeps_the_letters(shop: Shop) -> None:
    await shop.fill(60)

    class Away(Passing):
        async def requeue(self, *_: object) -> bool:
            raise ConnectionError("the broker has gone")

    with pytest.raises(ConnectionError):
        await shop.with_letters(Away(shop.trial.engine.letters)).requeue("orders")
    assert len(await shop.letters()) == 60
    assert shop.trial.state.items == {}
