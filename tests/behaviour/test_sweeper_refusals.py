"""Documents that cannot be swept: each is found, named and left out, and the others are swept."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pymongo import AsyncMongoClient

from headway.errors import BrokerFullError, UnsendableError
from headway.facts import CollectionFailed, DocumentsRefused, Skip, Status, SweepEnded
from headway.testing.ports import Message
from tests.behaviour.conftest import ENGINES
from tests.behaviour.sweeps import (
    MINUTE,
    Yard,
    chunking,
    lost,
    sweeping_of,
    with_bus,
    with_candidates,
)

# By their store

_SQLITE = """
create trigger theirs before update on headway_documents when old.id like 'bad%'
begin select raise(abort, 'the auditors have it'); end
"""
_POSTGRES = """
create function theirs() returns trigger language plpgsql as
$$ begin raise exception 'the auditors have it'; end $$;
create trigger theirs before update on headway_documents
for each row when (old.id like 'bad%') execute function theirs();
"""
_MONGODB = {
    "$or": [
        {"_id": {"$not": {"$regex": "^bad"}}},
        {"claimToken": {"$exists": False}, "status": {"$ne": "failed_max_retries"}},
    ]
}


async def refuse(request: pytest.FixtureRequest, folder: Path) -> None:
    """Let the store of a yard refuse to change documents whose id begins with bad."""
    match request.node.callspec.params["yard"]:
        case "sqlite":
            with sqlite3.connect(folder / "headway.db") as file:
                file.execute(_SQLITE)
            file.close()
        case "postgres":
            connection = await asyncpg.connect(request.getfixturevalue("postgres_database"))
            await connection.execute(_POSTGRES)
            await connection.close()
        case _:
            async with AsyncMongoClient[Any](request.getfixturevalue("mongodb_database")) as client:
                database = client.get_default_database()
                await database.command("collMod", "messages", validator=_MONGODB)


@pytest.mark.parametrize("yard", ENGINES[1:], indirect=True)  # memory refuses nothing
async def test_a_document_that_its_store_refuses_to_change_is_isolated(
    yard: Yard, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    good = [f"m{n:03}" for n in range(150)]
    await yard.put("messages", *map(lost, [*good[:70], "bad1", *good[70:], "bad2"]))
    spent = {"status": "failed", "attemptCount": 3}
    await yard.put("messages", *({"_id": one, **spent} for one in ("bad3", "over")))
    await yard.sweeper(chunking()).sweep_once(lambda: True)  # as on any day before
    await refuse(request, tmp_path)
    for run in (1, 2):
        ended = await yard.sweep(chunking())
        assert sorted(await yard.sent_ids()) == (good if run == 1 else [])
        (swept,) = ended.collections
        assert (swept.requeued, swept.given_up) == ((150, 1) if run == 1 else (0, 0))
        assert swept.skipped[Skip.REFUSED] == sum(swept.errors.values()) == 3
        assert swept.skipped.get(Skip.CHANGED, 0) == 0
        assert ended.status is Status.FAILURE
        facts = yard.facts.of(DocumentsRefused)[-len(swept.errors) :]
        assert sum(fact.count for fact in facts) == 3
        assert {one for fact in facts for one in fact.first_ids} == {"bad1", "bad2", "bad3"}
    assert yard.facts.of(CollectionFailed) == []
    found = {each["_id"]: each for each in await yard.all("messages")}
    assert {found[one]["attemptCount"] for one in good} == {1}
    assert [found[one]["attemptCount"] for one in ("bad1", "bad2", "bad3")] == [0, 0, 3]
    assert {each.get("claimToken") for each in found.values()} == {None}
    reason = "retry_job_documents_skipped_total|reason=refused|collection=messages"
    assert (await yard.totals())[reason] == 2 * 3


class LockNotAvailableError(Exception):
    sqlstate = "55P03"


LOCKED, RESET = LockNotAvailableError("locked"), ConnectionResetError("gone")


@pytest.mark.parametrize(
    ("error", "bad", "asked", "swept"),
    [
        (RESET, ["5"], 1, (0, {}, {"ConnectionResetError": 1})),
        (LOCKED, ["5"], 20, (499, {Skip.CHANGED: 1}, {})),
        (LOCKED, [f"{n}" for n in range(500)], 60, (0, {}, {"LockNotAvailableError": 1})),
    ],
    ids=["unavailable", "one locked", "all locked"],
)
async def test_a_store_that_fails_is_not_asked_for_every_document(
    quick: Yard, error: Exception, bad: list[str], asked: int, swept: Any
) -> None:
    inner, calls = sweeping_of(quick.engine).candidates, 0

    async def claim(rule: Any, some: Sequence[Any], *given: Any) -> frozenset[str]:
        nonlocal calls
        calls += 1
        if any(each.document["_id"] in bad for each in some):
            raise error
        return await inner.claim(rule, some, *given)

    await quick.put("messages", *(lost(f"{n}") for n in range(500)))
    engine = with_candidates(quick.engine, claim=claim)
    (found,) = (await quick.sweep(chunking(), engine=engine)).collections
    assert calls <= asked
    assert (found.requeued, found.skipped, found.errors) == swept
    assert bool(quick.facts.of(CollectionFailed)) is bool(found.errors)
    (found,) = (await quick.sweep(chunking())).collections
    assert found.requeued == 500 - swept[0]


# By the bus


@pytest.mark.parametrize(
    ("error", "claimed"),
    [(ConnectionError("no answer"), 1000), (BrokerFullError("its memory alarm is on"), 0)],
)
async def test_what_was_claimed_and_certainly_not_sent_is_given_back(
    quick: Yard, error: Exception, claimed: int
) -> None:
    """After a page of unknown outcome the sweep ends; the next page was certainly not sent."""

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        raise error

    await quick.put("messages", *(lost(f"{n:04}") for n in range(1500)))
    await quick.sweep(chunking(), engine=with_bus(quick.engine, publish=publish))
    (fact,) = quick.facts.of(CollectionFailed)
    assert fact.claims == claimed
    assert sum(bool(each.get("claimToken")) for each in await quick.all("messages")) == claimed
    assert (await quick.sweep(chunking())).collections[0].requeued == 1500 - claimed
    quick.clock.advance(2 * MINUTE)
    assert (await quick.sweep(chunking())).collections[0].requeued == claimed
    assert {each["attemptCount"] for each in await quick.all("messages")} == {1}


@pytest.mark.parametrize("settings", [{}, {"rate": 5.0}, {"limit": 8}, {"limit": 1}])
async def test_documents_whose_events_the_bus_never_takes_keep_no_other(
    quick: Yard, settings: dict[str, Any]
) -> None:
    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        if any(b'"z' in each.body for each in messages):
            raise UnsendableError("it is too large for this broker")
        return await quick.engine.bus.publish(messages)

    large, good = [f"z{n:02}" for n in range(30)], [f"a{n}" for n in range(5)]
    await quick.put("messages", *map(lost, large), *map(lost, good))
    swept: list[str] = []
    runs = 0
    while len(swept) < len(good):
        runs += 1
        engine = with_bus(quick.engine, publish=publish)
        (found,) = (await quick.sweep(chunking(), engine=engine, **settings)).collections
        swept = sorted([*swept, *await quick.sent_ids()])
        (fact,) = quick.facts.of(DocumentsRefused)[runs - 1 :]
        assert (fact.count, fact.by_bus, fact.error_type) == (30, True, "UnsendableError")
        assert set(fact.first_ids) <= set(large)
        assert found.skipped[Skip.REFUSED] == 30
        assert found.skipped.get(Skip.CHANGED, 0) == 0
        assert found.errors == {"UnsendableError": 30}
        quick.clock.advance(MINUTE)
    assert (swept, runs) == (good, 5 if settings.get("limit") == 1 else 1)
    assert quick.facts.of(CollectionFailed) == []
    documents = {each["_id"]: each for each in await quick.all("messages")}
    assert {documents[each]["attemptCount"] for each in large} == {0}
    assert {each.get("claimToken") for each in documents.values()} == {None}


# By an order to stop


async def forever(*_: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("method", ["open", "publish"])
async def test_a_bus_that_takes_nothing_keeps_no_sweeper_from_stopping(
    quick: Yard, method: str
) -> None:
    await quick.put("messages", *(lost(f"{n:04}") for n in range(1500)))
    async with (
        asyncio.timeout(5),
        quick.sweeping(chunking(), engine=with_bus(quick.engine, **{method: forever})),
    ):
        await quick.passed(MINUTE / 6)
        assert quick.facts.of(SweepEnded) == []
    (ended,) = quick.facts.of(SweepEnded)
    (swept,) = ended.collections
    # What is stuck is unknown where the sweeper has not looked.
    assert (swept.requeued, swept.stuck) == (0, None if method == "open" else 1500)
    quick.clock.advance(2 * MINUTE)
    assert (await quick.sweep(chunking())).collections[0].requeued == 1500
    assert {each["attemptCount"] for each in await quick.all("messages")} == {1}
