"""What a bus never takes: the event that made it has an end, and its neighbours have theirs."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import UnsendableError
from headway.operations import Letter
from headway.testing.clock import VirtualClock
from headway.testing.conformance.examples import letters_for
from headway.testing.engines import SqliteStore, sqlite_store, with_store, without_store
from headway.testing.ports import (
    Delivery,
    Done,
    DoneRecord,
    Ended,
    Engine,
    HandedBack,
    Message,
    Outcome,
    Then,
    Travel,
    Unit,
)

NOW = datetime(2026, 1, 17, 5, tzinfo=UTC)
NAMES = ["a", "odd", "b"]


class NarrowBus:
    """Takes no message of the operation `odd`, and no letter of it."""

    def __init__(self) -> None:
        self.odd = "odd"
        self.sent: list[str] = []
        self.settled: dict[str, Then] = {}

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        self._take([message.travel.operation for message in messages])
        return [1] * len(messages)

    async def write(self, _queue: str, letters: Sequence[Letter]) -> None:
        self._take([letter.operation for letter in letters])

    def _take(self, operations: Collection[str]) -> None:
        if self.odd in operations:
            raise UnsendableError("it is odd")
        self.sent += operations

    async def settle(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        self.settled |= {delivery.travel.operation: then for delivery, then in settlements}
        return [True] * len(settlements)


def unit(operation: str, *, with_letter: bool) -> Unit:
    travel = Travel(operation=operation)
    record = DoneRecord(
        key=operation, operation=operation, queue="orders", ended=Ended.FAILED, at=NOW
    )
    message = Message(body=b"{}", travel=travel, event_type="OrderPlaced")
    (letter,) = letters_for([operation], NOW)
    return Unit(
        delivery=Delivery(queue="orders", body=b"{}", travel=travel, receipt=None),
        then=Done(),
        record=record,
        outgoing=() if with_letter else (message,),
        letter=letter if with_letter else None,
        failed_queue="shop.failed",
    )


def on(bus: NarrowBus, store: SqliteStore | None = None) -> Engine:
    parts: Any = SimpleNamespace(bus=bus, letters=bus, places=None, unrouted=None, history=None)
    return without_store(parts) if store is None else with_store(parts, store)


@pytest.mark.parametrize("with_letter", [True, False])
async def test_without_a_store_one_is_refused_or_handed_back(*, with_letter: bool) -> None:
    bus = NarrowBus()
    units = [unit(name, with_letter=with_letter) for name in NAMES]
    finishes = await on(bus).finisher.finish(units)
    assert sorted(set(bus.sent)) == ["a", "b"]
    if with_letter:
        assert bus.settled == {"a": Done(), "odd": HandedBack(), "b": Done()}
        assert [each.outcome for each in finishes] == [Outcome.COMMITTED] * 3
    else:
        assert bus.settled == {"a": Done(), "b": Done()}
        assert finishes[1].outcome is Outcome.REFUSED
        assert isinstance(finishes[1].error, UnsendableError)


@pytest.mark.parametrize("with_letter", [True, False])
async def test_with_a_store_it_stays_in_its_record(tmp_path: Path, *, with_letter: bool) -> None:
    bus, store = NarrowBus(), sqlite_store(tmp_path / "store.db", VirtualClock())
    await store.open()
    finisher = on(bus, store).finisher
    units = [unit(name, with_letter=with_letter) for name in NAMES]
    await finisher.finish(units)
    assert sorted(set(bus.sent)) == ["a", "b"]
    assert bus.settled == {"a": Done(), "odd": HandedBack() if with_letter else Done(), "b": Done()}
    for odd, sent in (("odd", []), ("", ["odd"]), ("", [])):
        bus.odd, bus.sent = odd, []
        await finisher.finish(units)  # each comes once more
        assert bus.sent == sent
    await store.close()
