"""What a bus never takes: the event that made it has an end, and its neighbours have theirs."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from headway.core.event import short_name
from headway.errors import UnsendableError
from headway.operations import Letter
from headway.runtime.attempt import named
from headway.runtime.finishing import StoreThenBus, dispatch_left_over
from headway.runtime.storeless import BusOnly
from headway.testing.conformance.examples import letters_for
from headway.testing.ports import (
    COMMITTED,
    Delivery,
    Done,
    DoneRecord,
    Ended,
    Finish,
    HandedBack,
    Message,
    Outcome,
    Then,
    Travel,
    Unit,
)

NOW = datetime(2026, 1, 17, 5, tzinfo=UTC)


class NarrowBus:
    """Takes no message of the operation `odd`, and no letter of it."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.settled: dict[str, Then] = {}

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        self._take([message.travel.operation for message in messages])
        return [1] * len(messages)

    async def write(self, _queue: str, letters: Sequence[Letter]) -> None:
        self._take([letter.operation for letter in letters])

    def _take(self, operations: Collection[str]) -> None:
        if "odd" in operations:
            raise UnsendableError("it is odd")
        self.sent += operations

    async def settle(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        self.settled |= {delivery.travel.operation: then for delivery, then in settlements}
        return [True] * len(settlements)


class Books:
    """A store that commits everything, and its records."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        return [COMMITTED] * len(units)

    async def dispatched(self, keys: Sequence[str]) -> None:
        self.told += keys

    async def find(self, _keys: Sequence[str]) -> Mapping[str, DoneRecord]:
        return {}


def unit(operation: str, *, with_letter: bool) -> Unit:
    delivery = Delivery(
        queue="orders", body=b"{}", travel=Travel(operation=operation), receipt=None
    )
    record = DoneRecord(
        key=operation, operation=operation, queue="orders", ended=Ended.FAILED, at=NOW
    )
    message = Message(body=b"{}", travel=Travel(operation=operation), event_type="OrderPlaced")
    (letter,) = letters_for([operation], NOW)
    return Unit(
        delivery=delivery,
        then=Done(),
        record=record,
        outgoing=() if with_letter else (message,),
        letter=letter if with_letter else None,
        failed_queue="shop.failed",
    )


@pytest.mark.parametrize("with_letter", [True, False])
async def test_without_a_store_one_is_refused_or_handed_back(*, with_letter: bool) -> None:
    bus: Any = NarrowBus()
    units = [unit(name, with_letter=with_letter) for name in ("a", "odd", "b")]
    finishes = await BusOnly(bus, bus).finish(units)
    assert sorted(set(bus.sent)) == ["a", "b"]
    if with_letter:
        assert bus.settled == {"a": Done(), "odd": HandedBack(), "b": Done()}
        assert [each.outcome for each in finishes] == [Outcome.COMMITTED] * 3
    else:
        assert bus.settled == {"a": Done(), "b": Done()}
        assert finishes[1].outcome is Outcome.REFUSED
        assert isinstance(finishes[1].error, UnsendableError)


@pytest.mark.parametrize("with_letter", [True, False])
async def test_with_a_store_it_stays_in_its_record(*, with_letter: bool) -> None:
    bus: Any = NarrowBus()
    books: Any = Books()
    units = [unit(name, with_letter=with_letter) for name in ("a", "odd", "b")]
    await StoreThenBus(books, books, bus, bus).finish(units)
    assert sorted(set(bus.sent)) == sorted(books.told) == ["a", "b"]
    assert bus.settled == {"a": Done(), "odd": HandedBack() if with_letter else Done(), "b": Done()}
    held = [
        DoneRecord(
            key=each.delivery.travel.operation,
            operation=each.delivery.travel.operation,
            queue="orders",
            ended=Ended.FAILED,
            at=NOW,
            outgoing=each.outgoing,
            letter=each.letter,
        )
        for each in units
    ]
    books.told = []
    await dispatch_left_over(held, books, bus, bus)
    assert sorted(books.told) == ["a", "b"]


def test_an_event_with_a_very_long_id_is_named_shortly_and_always_the_same() -> None:
    delivery = unit("a", with_letter=False).delivery
    first, second = (named(delivery, "x" * 200_000).travel.operation for _ in "12")
    assert first == second == short_name("x" * 200_000)
    assert len(first) < 255
    assert first != named(delivery, "x" * 200_001).travel.operation
