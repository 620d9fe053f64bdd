import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import SkipTest

import pytest

from headway import ConfigurationError
from headway.runtime.finishing import StoreThenBus
from headway.testing.chance import Fixed
from headway.testing.clock import VirtualClock
from headway.testing.conformance.bus import BusConformance
from headway.testing.conformance.candidates import CandidatesConformance
from headway.testing.conformance.commit import CommitConformance
from headway.testing.conformance.desk import DeskConformance
from headway.testing.conformance.documents import DocumentsConformance
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    PLACED,
    QUEUES,
    failing,
    key_of,
    kinds,
    letter_for,
    message,
    nothing_due,
    opened,
    operations,
    publish,
    sent_again,
    take,
    take_one,
    unit,
    wrote,
)
from headway.testing.conformance.harness import Capability, EngineHarness
from headway.testing.conformance.history import HistoryConformance
from headway.testing.conformance.leases import LeasesConformance
from headway.testing.conformance.letters import LettersConformance
from headway.testing.conformance.places import PlacesConformance
from headway.testing.conformance.records import RecordsConformance
from headway.testing.conformance.totals import TotalsConformance
from headway.testing.conformance.unrouted import UnroutedConformance
from headway.testing.engines import MemoryStore, State, memory_engine
from headway.testing.ports import (
    Done,
    DoneRecord,
    Ended,
    Engine,
    Increment,
    InsertNew,
    Outcome,
    Travel,
)


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


class TestBus(BusConformance): ...


class TestCommit(CommitConformance): ...


class TestRecords(RecordsConformance): ...


class TestDocuments(DocumentsConformance): ...


class TestCandidates(CandidatesConformance): ...


class TestDesk(DeskConformance): ...


class TestHistory(HistoryConformance): ...


class TestLeases(LeasesConformance): ...


class TestTotals(TotalsConformance): ...


class TestLetters(LettersConformance): ...


class TestPlaces(PlacesConformance): ...


class TestUnrouted(UnroutedConformance): ...


class SplitHarness(MemoryHarness):
    """The same state used in two steps: first the store, then the bus."""

    lacks = frozenset({Capability.ONE_COMMIT})

    async def open_engine(self) -> Engine:
        engine = await super().open_engine()
        store = MemoryStore(self.state)
        finisher = StoreThenBus(store, store.records, engine.bus, engine.letters)
        return replace(engine, finisher=finisher)


class TestInTwoSteps(CommitConformance, RecordsConformance, PlacesConformance):
    @pytest.fixture
    def harness(self) -> SplitHarness:
        return SplitHarness()


# The store without a bus


async def test_a_commit_of_the_store_sends_nothing_and_settles_nothing(
    harness: MemoryHarness,
) -> None:
    engine, store = await opened(harness), MemoryStore(harness.state)
    await publish(engine, "a", "b")
    first, second = await take(harness, engine, 2)
    now = harness.clock.now()
    done = unit(first, now, outgoing=(message("out"),), writes=(Increment("docs", "1", "n"),))
    failed = failing(second, now, outgoing=(message("failed"),))
    assert kinds(await store.commit([done, failed])) == [Outcome.COMMITTED] * 2
    assert kinds(await store.commit([done, failed])) == [Outcome.DUPLICATE] * 2
    assert await store.documents.fetch("docs", ["1"]) == {"1": {"_id": "1", "n": 1}}
    assert [len(letters) for letters in harness.state.letters.values()] == [0, 0]
    await nothing_due(harness, engine)
    held = await store.records.find([key_of(first), key_of(second)])
    assert held[key_of(first)].outgoing == done.outgoing
    assert held[key_of(second)].outgoing == failed.outgoing
    assert held[key_of(second)].letter == failed.letter
    assert held[key_of(second)].failed_queue == failed.failed_queue
    assert list(await engine.bus.settle([(first, Done()), (second, Done())])) == [True, True]


async def test_the_store_leaves_nothing_of_a_refused_unit(harness: MemoryHarness) -> None:
    engine, store = await opened(harness), MemoryStore(harness.state)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    harness.state.tables["nested"] = {"rows": [1]}

    def changes_and_refuses(tables: dict[str, Any]) -> None:
        tables["nested"]["rows"].append(2)
        tables["new"] = 1
        raise ValueError

    refused = unit(
        delivery,
        harness.clock.now(),
        writes=(Increment("docs", "1", "n"),),
        bodies=(changes_and_refuses,),
    )
    assert kinds(await store.commit([refused])) == [Outcome.REFUSED]
    assert harness.state.tables == {"nested": {"rows": [1]}}
    assert not await store.documents.fetch("docs", ["1"])
    assert not await store.records.find([key_of(delivery)])


async def test_a_body_that_is_interrupted_leaves_nothing_either(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)

    def interrupted(tables: dict[str, Any]) -> None:
        tables["new"] = 1
        raise KeyboardInterrupt

    (finish,) = await engine.finisher.finish(
        [unit(delivery, harness.clock.now(), bodies=(interrupted,))]
    )
    assert finish.outcome is Outcome.REFUSED
    assert harness.state.tables == {}
    assert list(await engine.bus.settle([(delivery, Done())])) == [True]


async def test_what_is_no_json_is_refused_as_a_real_store_would(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    finish = await wrote(harness, engine, InsertNew("docs", {"_id": "1", "what": object()}))
    assert finish.outcome is Outcome.REFUSED
    assert isinstance(finish.error, TypeError)


async def test_an_outgoing_event_to_no_queue_refuses_its_unit(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    out = (message("out"), message("astray", queue="no.such.queue"))
    writes = (Increment("docs", "1", "n"),)
    (finish,) = await engine.finisher.finish(
        [unit(delivery, harness.clock.now(), outgoing=out, writes=writes)]
    )
    assert finish.outcome is Outcome.REFUSED
    assert isinstance(finish.error, ConfigurationError)
    assert not await engine.documents.fetch("docs", ["1"])
    await nothing_due(harness, engine)


# What is accepted


async def test_an_operation_is_accepted_once_by_each_queue(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    both = message("a", event_type=PLACED)
    assert list(await engine.bus.publish([message("a", queue=ORDERS.name)])) == [1]
    assert list(await engine.bus.publish([both, both])) == [2, 2]
    await take(harness, engine, 2, ORDERS.name, MAILS.name)
    await nothing_due(harness, engine, ORDERS.name, MAILS.name)
    assert (await engine.places.balance()).accepted == 2


async def test_what_is_sent_again_on_purpose_is_queued_and_not_counted_again(
    harness: MemoryHarness,
) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    await engine.bus.publish([message("a", travel=Travel(operation="a", generation="x"))])
    taken = await take(harness, engine, 2)
    assert [delivery.travel.generation for delivery in taken] == ["0", "x"]
    assert (await engine.places.balance()).accepted == 1


# Hooks


async def test_a_dead_bus_gets_nothing_and_can_do_nothing(harness: MemoryHarness) -> None:
    dead, engine = await opened(harness), await opened(harness)
    await publish(dead, "a")
    delivery = await take_one(harness, dead)
    harness.state.crash(dead.bus)
    await nothing_due(harness, dead)
    assert kinds(await dead.finisher.finish([unit(delivery, harness.clock.now())])) == [
        Outcome.LOST
    ]
    await dead.bus.open(QUEUES)
    assert (await engine.places.balance()).workers == 1
    assert (await take_one(harness, engine)).returns == 1


async def test_a_bus_that_dies_while_it_waits_gets_nothing(harness: MemoryHarness) -> None:
    dead, engine = await opened(harness), await opened(harness)
    waiting = asyncio.create_task(dead.bus.take([ORDERS.name], 1, timedelta(seconds=10)))
    await harness.pass_time(timedelta(seconds=1))
    harness.state.crash(dead.bus)
    await publish(engine, "a")
    assert await waiting == ()
    assert harness.clock.now() >= VirtualClock().now() + timedelta(seconds=10)
    assert operations(await take(harness, engine, 1)) == ["a"]


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
    assert (copy.body, copy.travel, copy.returns) == (delivery.body, delivery.travel, 0)
    if not late:
        await engine.finisher.finish([first])
    second = unit(copy, harness.clock.now(), writes=(Increment("docs", "1", "n"),))
    assert kinds(await engine.finisher.finish([second])) == [Outcome.DUPLICATE]
    assert (await engine.documents.fetch("docs", ["1"]))["1"]["n"] == 1
    assert await engine.places.astray(10) == (0, [])


async def test_an_item_can_be_duplicated_by_its_operation(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    harness.state.duplicate("a")
    assert operations(await take(harness, engine, 2)) == ["a", "a"]
    with pytest.raises(KeyError, match="nobody's"):
        harness.state.duplicate("nobody's")


async def test_another_operation_with_the_same_key_has_a_record_of_its_own(
    harness: MemoryHarness,
) -> None:
    engine = await opened(harness)
    await publish(engine, "a", "b")
    taken = await take(harness, engine, 2)
    await engine.finisher.finish([unit(each, harness.clock.now(), key="k") for each in taken])
    records = await engine.records.find(["k", "k/duplicate/b"])
    assert {key: (record.operation, record.ended) for key, record in records.items()} == {
        "k": ("a", Ended.DONE),
        "k/duplicate/b": ("b", Ended.DUPLICATE),
    }


async def test_what_nobody_accepted_is_surplus(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    letter = letter_for(Travel(operation="a"), harness.clock.now())
    await engine.letters.write(ORDERS.failed, [letter])
    number, (astray,) = await engine.places.astray(10)
    assert (number, astray.fault, astray.places) == (1, "surplus", ("failed",))


async def test_what_is_forgotten_is_still_counted(harness: MemoryHarness) -> None:
    engine = await opened(harness)
    await publish(engine, "done", "purged")
    now = harness.clock.now()
    done, failed = await take(harness, engine, 2)
    await engine.finisher.finish([unit(done, now), failing(failed, now)])
    (letter,) = await engine.letters.read(ORDERS.failed, 1)
    await engine.letters.remove(ORDERS.failed, [letter.letter_id])
    assert await engine.records.forget(now + timedelta(days=1), 10) == 2
    count = await engine.places.balance()
    assert (count.done, count.purged, count.accepted) == (2, 1, 2)


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


# The suites themselves


async def test_a_skip_names_what_the_engine_lacks() -> None:
    harness = SplitHarness()
    harness.needs(Capability.BEGINS)
    with pytest.raises(SkipTest, match="SplitHarness lacks ONE_COMMIT: puts effects, record"):
        harness.needs(Capability.BEGINS, Capability.ONE_COMMIT)
