"""The shipped suites on the engine in memory, and what a Trial relies on."""

from datetime import timedelta
from typing import Any

import pytest

from headway.testing.chance import Fixed
from headway.testing.clock import VirtualClock
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    PLACED,
    failing,
    key_of,
    kinds,
    letter_for,
    message,
    nothing_due,
    opened,
    publish,
    sent_again,
    take,
    take_one,
    unit,
    wrote,
)
from headway.testing.conformance.harness import EngineHarness
from headway.testing.engines import State, memory_engine
from headway.testing.ports import (
    Done,
    DoneRecord,
    Engine,
    Increment,
    InsertNew,
    Outcome,
    Travel,
)
from tests.conformance import suites


class MemoryHarness(EngineHarness):
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.state = State()

    async def open_engine(self) -> Engine:
        # Each process rolls its own dice, and all of them give the same tokens.
        return memory_engine(self.clock, Fixed(), self.state)

    async def kill(self, engine: Engine) -> None:
        self.state.crash(engine.bus)

    async def keep_record(self, record: DoneRecord) -> None:
        self.state.keep(record, record.letter.letter_id if record.letter else "")

    def write_row(self, session: Any, text: str) -> None:
        session.setdefault("rows", []).append(text)

    async def rows(self) -> list[str]:
        return list(self.state.tables.get("rows", ()))

    async def remove_by_hand(self, operation: str) -> None:
        self.state.remove(operation)


@pytest.fixture
def harness() -> MemoryHarness:
    return MemoryHarness()


class TestBus(suites.Bus): ...


class TestStore(suites.Store): ...


class TestSweeping(suites.Sweeping): ...


# The commit


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt()], ids=["refused", "stopped"])
async def test_the_store_leaves_nothing_of_a_refused_unit(
    harness: MemoryHarness, error: BaseException
) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    harness.state.tables["nested"] = {"rows": [1]}

    def changes_and_refuses(tables: dict[str, Any]) -> None:
        tables["nested"]["rows"].append(2)
        tables["new"] = 1
        raise error

    writes = (Increment("docs", "1", "n"),)
    refused = unit(delivery, harness.clock.now(), writes=writes, bodies=(changes_and_refuses,))
    assert kinds(await engine.finisher.finish([refused])) == [Outcome.REFUSED]
    assert harness.state.tables == {"nested": {"rows": [1]}}
    assert not await engine.documents.fetch("docs", ["1"])
    assert not await engine.records.find([key_of(delivery)])
    assert list(await engine.bus.settle([(delivery, Done())])) == [True]


async def test_what_is_no_json_is_refused_as_a_real_store_would(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    finish = await wrote(harness, engine, InsertNew("docs", {"_id": "1", "what": object()}))
    assert finish.outcome is Outcome.REFUSED
    assert isinstance(finish.error, TypeError)


# What is accepted, and what a count of it finds


async def test_an_operation_is_accepted_once_by_each_queue_and_counted_once(
    harness: MemoryHarness,
) -> None:
    engine = await opened(harness)
    both = message("a", event_type=PLACED)
    assert list(await engine.bus.publish([message("a", queue=ORDERS.name)])) == [1]
    assert list(await engine.bus.publish([both, both])) == [2, 2]
    await take(harness, engine, 2, ORDERS.name, MAILS.name)
    await nothing_due(harness, engine, ORDERS.name, MAILS.name)
    again = Travel(operation="a", generation="x")  # sent again on purpose
    await engine.bus.publish([message("a", travel=again)])
    assert (await take_one(harness, engine)).travel.generation == "x"
    assert (await engine.places.balance()).accepted == 2


@pytest.mark.parametrize("comes", ["before it is done", "after it is done"])
async def test_a_duplicate_is_told_apart_by_its_record(harness: MemoryHarness, comes: str) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    first = unit(delivery, harness.clock.now(), writes=(Increment("docs", "1", "n"),))
    late = comes == "after it is done"
    if late:
        await engine.finisher.finish([first])
    harness.state.duplicate(delivery)
    number, (astray,) = await engine.places.astray(10)
    assert (number, astray.operation, astray.fault) == (1, "a", "twice")
    assert set(astray.places) == {"done" if late else "leased", "ready"}
    copy = await take_one(harness, engine)
    if not late:
        await engine.finisher.finish([first])
    second = unit(copy, harness.clock.now(), writes=(Increment("docs", "1", "n"),))
    assert kinds(await engine.finisher.finish([second])) == [Outcome.DUPLICATE]
    assert (await engine.documents.fetch("docs", ["1"]))["1"]["n"] == 1
    assert await engine.places.astray(10) == (0, [])


async def test_a_letter_of_which_no_event_was_accepted_is_surplus(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    letter = letter_for(Travel(operation="a"), harness.clock.now())
    await engine.letters.write(ORDERS.failed, [letter])
    number, (astray,) = await engine.places.astray(10)
    assert (number, astray.fault, astray.places) == (1, "surplus", ("failed",))


async def test_forgetting_hides_nothing_that_is_missing(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    now = harness.clock.now()
    failed = failing(await take_one(harness, engine), now)
    await engine.finisher.finish([failed])
    assert failed.letter is not None
    again = sent_again(failed.letter)
    await engine.letters.requeue(ORDERS.failed, failed.letter.letter_id, again)
    assert await engine.records.forget(now + timedelta(days=1), 10) == 1
    assert await engine.places.astray(10) == (0, [])
    harness.state.remove("a")
    number, (astray,) = await engine.places.astray(10)
    assert (number, astray.fault) == (1, "missing")
