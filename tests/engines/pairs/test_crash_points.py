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
from tests.engines.pairs.doom import Doom, DoomedStore, KilledError, doomed
from tests.engines.pairs.harnesses import StoreHarness, bus_parts

Deed = Callable[[StoreHarness, Engine], Awaitable[None]]
MINUTE = timedelta(minutes=1)


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
            harness.wrap_store = partial(DoomedStore, doom=doom)
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


def done(delivery: Delivery, harness: StoreHarness, *outgoing: Message) -> Unit:
    """Work that is counted by its operation and generation: once is right, twice would be seen."""
    travel = delivery.travel
    counted = Increment("counts", f"{delivery.queue} {travel.operation} {travel.generation}", "n")
    return unit(delivery, harness.clock.now(), writes=(counted,), outgoing=outgoing)


async def drain(harness: StoreHarness, engine: Engine, *outgoing: Message) -> None:
    """Work until nothing is due any more, and recognise what has ended before."""
    while taken := await engine.bus.take([ORDERS.name, MAILS.name], 10):
        for delivery in taken:
            found = (await engine.records.find([key_of(delivery)])).get(key_of(delivery))
            first = delivery.queue == ORDERS.name and delivery.travel.generation == "0"
            ended = (
                done(delivery, harness, *(outgoing if first else ()))
                if found is None
                else Unit(delivery=delivery, then=Done(), record=found, resumes=True)
            )
            await engine.finisher.finish([ended])


async def publish_in_peace(harness: StoreHarness) -> None:
    await bus_parts(harness.state, harness.clock).bus.publish([message("a")])


async def counts(engine: Engine) -> dict[str, int]:
    return {each["_id"]: each["n"] for each in await engine.documents.find("counts", {}, 100)}


async def keep_house(harness: StoreHarness, engine: Engine) -> None:
    await harness.clock.wait(5 * MINUTE)
    await Housekeeping(engine, harness.clock, Fixed(), timedelta(days=7)).round()


async def letters_of(engine: Engine) -> list[Letter]:
    return list(await engine.letters.read(ORDERS.failed, 100))


async def ended(engine: Engine, key: str) -> Ended | None:
    found = await engine.records.find([key])
    return found[key].ended if key in found else None


KEY = f"{ORDERS.name}/OrderPaid/0/a"


async def test_killed_at_any_point_of_a_success(site: Site) -> None:
    out = message("out", queue=MAILS.name)

    async def finish(harness: StoreHarness, engine: Engine) -> None:
        await publish_in_peace(harness)
        delivery = await take_one(harness, engine)
        await engine.finisher.finish([done(delivery, harness, out)])

    async def then(harness: StoreHarness, engine: Engine) -> None:
        await drain(harness, engine, out)
        assert await counts(engine) == {f"{ORDERS.name} a 0": 1, f"{MAILS.name} out 0": 1}
        assert await ended(engine, KEY) is Ended.DONE
        assert not harness.state.items
        assert not await engine.records.undispatched(harness.clock.now() + MINUTE, 10)

    steps = await site.every_death(finish, then)
    assert steps == ["commit", "publish", "dispatched", "settle"]


async def fail(harness: StoreHarness, engine: Engine) -> None:
    """Let one event end as a letter, with an event that says so."""
    await publish_in_peace(harness)
    delivery = await take_one(harness, engine)
    told = message("a-failed", queue=MAILS.name)
    await engine.finisher.finish([failing(delivery, harness.clock.now(), outgoing=(told,))])


async def test_killed_at_any_point_of_a_failure(site: Site) -> None:
    async def then(harness: StoreHarness, engine: Engine) -> None:
        await again_or_drain(harness, engine)
        await keep_house(harness, engine)
        (letter,) = await letters_of(engine)
        assert letter.operation == "a"
        assert await ended(engine, KEY) is Ended.FAILED
        assert await counts(engine) == {f"{MAILS.name} a-failed 0": 1}
        assert await engine.places.astray(10) == (0, [])

    steps = await site.every_death(fail, then)
    assert steps == ["commit", "write letters", "publish", "dispatched", "settle"]


@pytest.mark.parametrize("decision", ["requeue", "purge"])
async def test_killed_at_any_point_of_a_failure_that_a_person_decides_about_at_once(
    site: Site, decision: str
) -> None:
    """The letter is there before the worker could take down that it is; then the worker dies."""

    async def then(harness: StoreHarness, engine: Engine) -> None:
        for _ in range(3):
            for letter in await letters_of(engine):
                if decision == "requeue":
                    await engine.letters.requeue(
                        ORDERS.failed, letter.letter_id, sent_again(letter)
                    )
                else:
                    await engine.letters.remove(ORDERS.failed, [letter.letter_id])
            await again_or_drain(harness, engine)
            await keep_house(harness, engine)
        assert await letters_of(engine) == []
        found = await counts(engine)
        assert found.pop(f"{MAILS.name} a-failed 0") == 1
        assert list(found.values()) == ([1] if decision == "requeue" else [])
        assert await ended(engine, KEY) is (
            Ended.REQUEUED if decision == "requeue" else Ended.PURGED
        )
        assert list((await engine.places.where(["a"]))["a"]) == [f"done in {ORDERS.name}"]
        assert (await engine.places.balance()).done == 2

    await site.every_death(fail, then)


async def again_or_drain(harness: StoreHarness, engine: Engine) -> None:
    """Fail the first generation once more; let what was sent again succeed."""
    while taken := await engine.bus.take([ORDERS.name, MAILS.name], 10):
        for delivery in taken:
            found = (await engine.records.find([key_of(delivery)])).get(key_of(delivery))
            if found is not None:
                ending = Unit(delivery=delivery, then=Done(), record=found, resumes=True)
            elif delivery.queue == ORDERS.name and delivery.travel.generation == "0":
                told = message("a-failed", queue=MAILS.name)
                ending = failing(delivery, harness.clock.now(), outgoing=(told,))
            else:
                ending = done(delivery, harness)
            await engine.finisher.finish([ending])


# What persons do


@pytest.mark.parametrize("target", [ORDERS.name, MAILS.name])
async def test_killed_at_any_point_of_a_requeue(site: Site, target: str) -> None:
    async def requeue(harness: StoreHarness, engine: Engine) -> None:
        for letter in await letters_of(engine):
            there = msgspec.structs.replace(sent_again(letter), queue=target)
            assert await engine.letters.requeue(ORDERS.failed, letter.letter_id, there)

    async def deed(harness: StoreHarness, engine: Engine) -> None:
        await fail_in_peace(harness)
        await requeue(harness, engine)

    async def then(harness: StoreHarness, engine: Engine) -> None:
        assert await letters_of(engine) or harness.state.items, "it is nowhere"
        await requeue(harness, engine)
        await drain(harness, engine)
        assert await letters_of(engine) == []
        (found,) = (await counts(engine)).items()
        assert found[0].startswith(f"{target} a ")
        assert found[1] == 1
        meant = Ended.REQUEUED if target == ORDERS.name else Ended.MOVED
        assert await ended(engine, KEY) is meant
        assert await engine.places.astray(10) == (0, [])
        queues = {ORDERS.name, target} if meant is Ended.MOVED else {target}
        assert set((await engine.places.where(["a"]))["a"]) == {f"done in {q}" for q in queues}
        assert (await engine.places.balance()).done == len(queues)

    steps = await site.every_death(deed, then)
    assert steps == ["publish again", "remove letter", "requeued"]


async def test_killed_at_any_point_of_a_purge(site: Site) -> None:
    async def deed(harness: StoreHarness, engine: Engine) -> None:
        await fail_in_peace(harness)
        await engine.letters.remove(
            ORDERS.failed, [each.letter_id for each in await letters_of(engine)]
        )

    async def then(harness: StoreHarness, engine: Engine) -> None:
        # The letter is there to be purged again, or the record says that it was.
        left = await letters_of(engine)
        assert left or await ended(engine, KEY) is Ended.PURGED
        await engine.letters.remove(ORDERS.failed, [each.letter_id for each in left])
        assert await letters_of(engine) == []
        assert await ended(engine, KEY) is Ended.PURGED
        count = await engine.places.balance()
        assert (count.done, count.purged, count.waiting) == (1, 1, 0)
        assert await engine.places.astray(10) == (0, [])

    assert await site.every_death(deed, then) == ["purged", "remove letters"]


async def test_a_purge_that_broke_off_can_become_a_requeue(site: Site) -> None:
    async def deed(harness: StoreHarness, engine: Engine) -> None:
        await fail_in_peace(harness)
        await engine.letters.remove(
            ORDERS.failed, [each.letter_id for each in await letters_of(engine)]
        )

    async def then(harness: StoreHarness, engine: Engine) -> None:
        for letter in await letters_of(engine):
            await engine.letters.requeue(ORDERS.failed, letter.letter_id, sent_again(letter))
            assert await ended(engine, KEY) is Ended.REQUEUED
        await drain(harness, engine)
        assert (await engine.places.balance()).done == 1

    await site.every_death(deed, then)


async def fail_in_peace(harness: StoreHarness) -> None:
    """Have a letter in the failed queue, with its record, by a worker that lives."""
    wraps = harness.wrap_parts, harness.wrap_store
    harness.wrap_parts, harness.wrap_store = (lambda parts: parts), (lambda store: store)
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    await engine.finisher.finish([failing(delivery, harness.clock.now())])
    harness.wrap_parts, harness.wrap_store = wraps


# Who comes late


@pytest.mark.parametrize("decision", ["requeue", "purge"])
async def test_a_letter_written_late_does_not_stay(tmp_path: Path, decision: str) -> None:
    """One reads the record, another writes its letter, a person decides, and the first goes on."""
    harness = StoreHarness(tmp_path / "store.db")
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    failed = failing(delivery, harness.clock.now())
    letter = failed.letter
    assert letter is not None
    await harness.stores[0].commit([failed])
    late = await engine.records.undispatched(harness.clock.now() + MINUTE, 10)
    await engine.letters.write(ORDERS.failed, [letter])
    if decision == "requeue":
        await engine.letters.requeue(ORDERS.failed, letter.letter_id, sent_again(letter))
    else:
        await engine.letters.remove(ORDERS.failed, [letter.letter_id])
    assert not await engine.records.undispatched(harness.clock.now() + MINUTE, 10)
    await dispatch_left_over(late, engine.records, engine.bus, engine.letters)
    assert await letters_of(engine) == []
    await harness.close()


async def test_a_decision_keeps_the_events_that_a_record_holds(tmp_path: Path) -> None:
    harness = StoreHarness(tmp_path / "store.db")
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    out = message("out", queue=MAILS.name, body=b'{"k":"k\xc3\xa4se \\u2713"}')
    failed = failing(delivery, harness.clock.now(), outgoing=(out,))
    await harness.stores[0].commit([failed])
    assert failed.letter is not None
    await engine.letters.write(ORDERS.failed, [failed.letter])
    await engine.letters.remove(ORDERS.failed, [failed.letter.letter_id])
    (record,) = await engine.records.undispatched(harness.clock.now() + MINUTE, 10)
    assert (record.outgoing, record.letter, record.ended) == ((out,), None, Ended.PURGED)
    await keep_house(harness, engine)
    assert (await take_one(harness, engine, MAILS.name)).body == out.body
    assert await letters_of(engine) == []
    await harness.close()
