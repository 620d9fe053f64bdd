"""What must be true when everything is at rest, whatever happened before."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from headway.operations import Letter
from headway.retrying import Reason
from headway.testing.ports import DoneRecord, Ended
from tests.chaos.simulation.services import AUDIT, MOST_ATTEMPTS, ORDERS, PARCELS, follower
from tests.chaos.simulation.state import WITHOUT_PLACE
from tests.chaos.simulation.world import World

_RETURNS_TO_CONDEMN = 4
"""Two make a suspect, and two more come after its begins."""


async def check(world: World) -> list[str]:
    """Name every promise that was broken."""
    if world.disks.violations:
        return world.disks.violations
    return [
        *[text async for text in _conservation(world)],
        *_effects(world),
        *_followers(world),
        *_letters(world),
        *_attempts(world),
    ]


async def _conservation(world: World) -> AsyncIterator[str]:
    places = world.office.engine.places
    _, found = await places.astray(100)
    for each in found:
        yield f"{each.operation} of {each.queue} is {each.fault}: {each.places}"
    count = await places.balance()
    there = count.done + sum(count.failed.values())
    if count.accepted != there:
        yield f"{count.accepted} accepted, {there} done or failed"


def _effects(world: World) -> Iterator[str]:
    """What is done took effect once; what failed, or was another's work, not at all."""
    rows = Counter((row["queue"], row["operation"]) for row in _documents(world, "effects"))
    counts = {row["_id"]: row["times"] for row in _documents(world, "counts")}
    done = {
        (record.queue, record.operation) for record in _records(world) if record.ended is Ended.DONE
    }
    for owned in world.state.accepted.keys() | rows.keys():
        expected, found = int(owned in done), rows[owned]
        if found != expected:
            yield f"{owned} took effect {found} times, not {expected}"
        if counts.get("/".join(owned), 0) != expected:
            yield f"{owned} was counted {counts.get('/'.join(owned))} times, not {expected}"
    careful = sum(row["careful"] for row in _documents(world, "effects"))
    (stock,) = _documents(world, "stock")
    if stock["taken"] != careful:
        yield f"{careful} apples were taken, and {stock['taken']} were counted"


def _followers(world: World) -> Iterator[str]:
    """What took effect was followed by its events, what failed by one that says so; no others."""
    sent = {each for row in _documents(world, "effects") for each in row["sent"]}
    failed = {
        follower(record.key, kind="failed")
        for record in _records(world)
        if record.ended in WITHOUT_PLACE and record.key.startswith("orders/OrderPlaced/")
    }
    for queue, expected in ((PARCELS, sent), (AUDIT, failed)):
        there = {operation for name, operation in world.state.accepted if name == queue}
        for operation in expected - there:
            yield f"{operation} was never sent to {queue}"
        for operation in there - expected:
            yield f"{operation} of {queue} comes from work that did not take effect"


def _letters(world: World) -> Iterator[str]:
    """Every letter has a reason, and the reason is true; every one sent again has a new end."""
    for letters in world.state.letters.values():
        for letter in letters.values():
            yield from _reason(world, letter)
    ends = {record.key.split("/")[2] for record in _records(world)}
    for operation, generation in world.requeued.values():
        if generation not in ends:
            yield f"{operation} was sent again, and that came to no end"
    for kept in world.state.records.values():
        if kept.letter_id in world.requeued and kept.record.ended is Ended.FAILED:
            yield f"{kept.record.operation} was sent again, and its record says that it failed"


def _reason(world: World, letter: Letter) -> Iterator[str]:
    run = (letter.queue, letter.operation, letter.generation)
    names = f"{letter.operation} of {letter.queue}"
    begins = [n for (*one, n) in world.script.begins if tuple(one) == run]
    match letter.abandoned_reason:
        case Reason.NON_RETRYABLE:
            is_true = run in world.script.raised or letter.error_type == "ValueError"
        case Reason.MAX_ATTEMPTS_EXCEEDED | Reason.TTL_EXCEEDED:
            is_true = letter.attempt_count + 1 == max(begins, default=0)
        case Reason.CRASH_LOOP:
            is_true = world.state.returned[run] >= _RETURNS_TO_CONDEMN
        case Reason.MALFORMED | Reason.UNROUTABLE:
            is_true = letter.queue == ORDERS and not begins
        case _:
            is_true = False
    if not is_true:
        yield f"{names} did not fail by {letter.abandoned_reason!r}: {letter.last_error}"


def _attempts(world: World) -> Iterator[str]:
    """An attempt begins once, and once more for each time that its worker lost it."""
    state = world.state
    for (queue, operation, generation, number), times in world.script.begins.items():
        run = (queue, operation, generation)
        if number > MOST_ATTEMPTS:
            yield f"attempt {number} at {operation} of {queue} is beyond all limits"
        allowed = sum(
            counter[run]
            for counter in (state.copies, state.returned, state.handed_back, state.refused)
        )
        if times > allowed + state.parked[run] and not world.was_down:
            yield f"attempt {number} at {operation} of {queue} began {times} times, not {allowed}"


def _documents(world: World, collection: str) -> list[Any]:
    stored = world.state.documents.get(collection, {})
    return [msgspec.json.decode(document) for document in stored.values()]


def _records(world: World) -> Iterator[DoneRecord]:
    return (kept.record for kept in world.state.records.values())
