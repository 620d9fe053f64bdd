"""Killed between any two steps of two systems: nothing is lost, and nothing takes effect twice."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest

from headway.operations import Letter
from headway.runtime.finishing import dispatch_left_over
from headway.runtime.housekeeping import Housekeeping
from headway.testing.chance import Fixed
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    failing,
    key_of,
    message,
    opened,
    publish,
    sent_again,
    take_one,
    unit,
)
from headway.testing.ports import Delivery, Done, Ended, Engine, Increment, Message, Unit
from tests.chaos.simulation.state import WatchedState
from tests.engines.pairs.doom import Doom, KilledError, doomed, doomed_store
from tests.engines.pairs.harnesses import StoreHarness, bus_parts

Deed = Callable[[StoreHarness, Engine], Awaitable[None]]
MINUTE = timedelta(minutes=1)
KEY = f"{ORDERS.name}/OrderPaid/0/a"
OUT = message("out", queue=MAILS.name)


class Site:
    """One storage; processes come, do something, and are killed at a given point of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[StoreHarness] = []

    async def close(self) -> None:
        for harness in self._opened:
            await harness.close()

    async def every_death(self, deed: Deed, then: Deed) -> list[str]:
        """Kill a process at every point of a deed, each in a world of its own; give its steps."""
        at = 0
        while True:
            at += 1
            # As brokers do: what is published twice is there twice.
            state = WatchedState(recognises=False)
            harness = StoreHarness(self._folder / f"{at}.db", state)
            self._opened.append(harness)
            doom = Doom()
            harness.wrap_parts = partial(doomed, doom=doom)
            harness.wrap_store = partial(doomed_store, doom=doom)
            engine = await opened(harness)
            try:
                doom.at = doom.points + at
                await deed(harness, engine)
            except KilledError:
                await harness.kill(engine)
                alive = True
            else:
                alive = False
            harness.wrap_parts = lambda parts: doomed(parts, Doom())
            harness.wrap_store = lambda store: store
            await then(harness, await opened(harness))
            if not alive:
                return doom.steps


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    await site.close()


# What workers do


def succeeds(harness: StoreHarness, delivery: Delivery, *outgoing: Message) -> Unit:
    """Count by operation and generation: once is right, twice would be seen."""
    travel = delivery.travel
    counted = Increment("counts", f"{delivery.queue} {travel.operation} {travel.generation}", "n")
    return unit(delivery, harness.clock.now(), writes=(counted,), outgoing=outgoing)


def fails(harness: StoreHarness, delivery: Delivery) -> Unit:
    """End as a letter, with an event that says so."""
    told = message("a-failed", queue=MAILS.name)
    return failing(delivery, harness.clock.now(), outgoing=(told,))


async def work(
    harness: StoreHarness, engine: Engine, first: Callable[[Delivery], Unit] | None = None
) -> None:
    """Work until nothing is due, and recognise what has ended before.

    `first`: how the first generation of an order ends; everything else succeeds.
    """
    while taken := await engine.bus.take([ORDERS.name, MAILS.name], 10):
        for delivery in taken:
            found = (await engine.records.find([key_of(delivery)])).get(key_of(delivery))
            if found is not None:
                ending = Unit(delivery=delivery, then=Done(), record=found, resumes=True)
            elif first and delivery.queue == ORDERS.name and delivery.travel.generation == "0":
                ending = first(delivery)
            else:
                ending = succeeds(harness, delivery)
            await engine.finisher.finish([ending])


async def finish_one(
    harness: StoreHarness, engine: Engine, end: Callable[[Delivery], Unit]
) -> None:
    await bus_parts(harness.state, harness.clock).bus.publish([message("a")])
    await engine.finisher.finish([end(await take_one(harness, engine))])


async def fail(harness: StoreHarness, engine: Engine) -> None:
    await finish_one(harness, engine, partial(fails, harness))


async def counts(engine: Engine) -> dict[str, int]:
    return {each["_id"]: each["n"] for each in await engine.documents.find("counts", {}, 100)}


async def keep_house(harness: StoreHarness, engine: Engine) -> None:
    await harness.clock.wait(5 * MINUTE)
    await Housekeeping(engine, harness.clock, Fixed(), timedelta(days=7)).round()


async def letters_of(engine: Engine) -> list[Letter]:
    return list(await engine.letters.read(ORDERS.failed, 100))


async def decide(engine: Engine, decision: str, target: str = ORDERS.name) -> None:
    for letter in await letters_of(engine):
        if decision == "requeue":
            there = msgspec.structs.replace(sent_again(letter), queue=target)
            assert await engine.letters.requeue(ORDERS.failed, letter.letter_id, there)
        else:
            await engine.letters.remove(ORDERS.failed, [letter.letter_id])


async def ended(engine: Engine) -> Ended | None:
    found = await engine.records.find([KEY])
    return found[KEY].ended if KEY in found else None


async def test_killed_at_any_point_of_a_success(site: Site) -> None:
    async def succeed(harness: StoreHarness, engine: Engine) -> None:
        await finish_one(harness, engine, lambda one: succeeds(harness, one, OUT))

    async def then(harness: StoreHarness, engine: Engine) -> None:
        await work(harness, engine, lambda one: succeeds(harness, one, OUT))
        assert await counts(engine) == {f"{ORDERS.name} a 0": 1, f"{MAILS.name} out 0": 1}
        assert await ended(engine) is Ended.DONE
        assert not harness.state.items
        assert not await engine.records.undispatched(harness.clock.now() + MINUTE, 10)

    steps = await site.every_death(succeed, then)
    assert steps == ["commit", "publish", "dispatched", "settle"]


async def test_killed_at_any_point_of_a_failure(site: Site) -> None:
    async def then(harness: StoreHarness, engine: Engine) -> None:
        await work(harness, engine, partial(fails, harness))
        await keep_house(harness, engine)
        (letter,) = await letters_of(engine)
        assert letter.operation == "a"
        assert await ended(engine) is Ended.FAILED
        assert await counts(engine) == {f"{MAILS.name} a-failed 0": 1}
        assert await engine.places.astray(10) == (0, [])

    steps = await site.every_death(fail, then)
    assert steps == ["commit", "write letters", "publish", "dispatched", "settle"]


@pytest.mark.parametrize("decision", ["requeue", "purge"])
async def test_killed_at_any_point_of_a_failure_that_a_person_decides_about_at_once(
    site: Site, decision: str
) -> None:
    """The letter is there before the worker could record that it is; then the worker dies."""

    async def then(harness: StoreHarness, engine: Engine) -> None:
        for _ in range(3):
            await decide(engine, decision)
            await work(harness, engine, partial(fails, harness))
            await keep_house(harness, engine)
        assert await letters_of(engine) == []
        found = await counts(engine)
        assert found.pop(f"{MAILS.name} a-failed 0") == 1
        assert list(found.values()) == ([1] if decision == "requeue" else [])
        assert await ended(engine) is (Ended.REQUEUED if decision == "requeue" else Ended.PURGED)
        assert list((await engine.places.where(["a"]))["a"]) == [f"done in {ORDERS.name}"]
        assert (await engine.places.balance()).done == 2

    await site.every_death(fail, then)


# What persons do


async def fail_in_peace(harness: StoreHarness) -> None:
    """Have a letter in the failed queue, with its record, by a worker that lives."""
    wraps = harness.wrap_parts, harness.wrap_store
    harness.wrap_parts, harness.wrap_store = (lambda parts: parts), (lambda store: store)
    engine = await opened(harness)
    await publish(engine, "a")
    await engine.finisher.finish([failing(await take_one(harness, engine), harness.clock.now())])
    harness.wrap_parts, harness.wrap_store = wraps


@pytest.mark.parametrize("target", [ORDERS.name, MAILS.name])
async def test_killed_at_any_point_of_a_requeue(site: Site, target: str) -> None:
    async def deed(harness: StoreHarness, engine: Engine) -> None:
        await fail_in_peace(harness)
        await decide(engine, "requeue", target)

    async def then(harness: StoreHarness, engine: Engine) -> None:
        assert await letters_of(engine) or harness.state.items, "it is nowhere"
        await decide(engine, "requeue", target)
        await work(harness, engine)
        assert await letters_of(engine) == []
        ((name, number),) = (await counts(engine)).items()
        assert (name.startswith(f"{target} a "), number) == (True, 1)
        meant = Ended.REQUEUED if target == ORDERS.name else Ended.MOVED
        assert await ended(engine) is meant
        assert await engine.places.astray(10) == (0, [])
        queues = {ORDERS.name, target} if meant is Ended.MOVED else {target}
        assert set((await engine.places.where(["a"]))["a"]) == {f"done in {q}" for q in queues}
        assert (await engine.places.balance()).done == len(queues)

    steps = await site.every_death(deed, then)
    assert steps == ["publish again", "remove letter", "requeued"]


@pytest.mark.parametrize("decision", ["requeue", "purge"])
async def test_killed_at_any_point_of_a_purge(site: Site, decision: str) -> None:
    """What is left of it can be purged again, or become a requeue."""

    async def deed(harness: StoreHarness, engine: Engine) -> None:
        await fail_in_peace(harness)
        await decide(engine, "purge")

    async def then(harness: StoreHarness, engine: Engine) -> None:
        left = await letters_of(engine)
        assert left or await ended(engine) is Ended.PURGED
        await decide(engine, decision)
        is_requeued = bool(left) and decision == "requeue"
        assert await ended(engine) is (Ended.REQUEUED if is_requeued else Ended.PURGED)
        await work(harness, engine)
        assert await letters_of(engine) == []
        count = await engine.places.balance()
        assert (count.done, count.purged, count.waiting) == (1, int(not is_requeued), 0)
        assert await engine.places.astray(10) == (0, [])

    assert await site.every_death(deed, then) == ["purged", "remove letters"]


# Who comes late


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[StoreHarness]:
    harness = StoreHarness(tmp_path / "store.db")
    yield harness
    await harness.close()


async def committed(harness: StoreHarness, engine: Engine, *outgoing: Message) -> None:
    """Fail as far as the commit; another worker writes the letter."""
    await publish(engine, "a")
    failed = failing(await take_one(harness, engine), harness.clock.now(), outgoing=outgoing)
    await harness.stores[0].commit([failed])
    assert failed.letter is not None
    await engine.letters.write(ORDERS.failed, [failed.letter])


@pytest.mark.parametrize("decision", ["requeue", "purge"])
async def test_a_letter_written_late_does_not_stay(harness: StoreHarness, decision: str) -> None:
    """One reads the record, another writes its letter, a person decides, and the first goes on."""
    engine = await opened(harness)
    await committed(harness, engine)
    late = await engine.records.undispatched(harness.clock.now() + MINUTE, 10)
    await decide(engine, decision)
    assert not await engine.records.undispatched(harness.clock.now() + MINUTE, 10)
    await dispatch_left_over(late, engine.records, engine.bus, engine.letters)
    assert await letters_of(engine) == []


async def test_a_decision_keeps_the_events_that_a_record_holds(harness: StoreHarness) -> None:
    engine = await opened(harness)
    out = message("out", queue=MAILS.name, body=b'{"k":"k\xc3\xa4se \\u2713"}')
    await committed(harness, engine, out)
    await decide(engine, "purge")
    (record,) = await engine.records.undispatched(harness.clock.now() + MINUTE, 10)
    assert (record.outgoing, record.letter, record.ended) == ((out,), None, Ended.PURGED)
    await keep_house(harness, engine)
    assert (await take_one(harness, engine, MAILS.name)).body == out.body
    assert await letters_of(engine) == []
