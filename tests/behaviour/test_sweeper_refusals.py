"""Documents that cannot be swept: each is found, named and left out, and the others are swept."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pymongo import AsyncMongoClient

from headway import Service
from headway.core.sweep_totals import key
from headway.errors import BrokerFullError, UnsendableError
from headway.facts import (
    CollectionFailed,
    DocumentsNotRebuilt,
    DocumentsRefused,
    Skip,
    Status,
    SweepEnded,
)
from headway.testing.ports import Message
from tests.behaviour.conftest import ENGINES
from tests.behaviour.sweeps import (
    CHUNKING,
    MINUTE,
    Yard,
    chunking,
    data_of,
    sweeping_of,
    with_bus,
    with_candidates,
)


def lost(one: str, **fields: Any) -> dict[str, Any]:
    return {"_id": one, "status": "pending", "attemptCount": 0, **fields}


def spent(one: str) -> dict[str, Any]:
    return {"_id": one, "status": "failed", "attemptCount": 3}


async def sent(yard: Yard) -> list[str]:
    found = [data_of(each)["message_doc_ids"][0] for each in await yard.sent(CHUNKING)]
    return sorted(found)


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
    await yard.put("messages", spent("bad3"), spent("over"))
    await yard.sweeper(chunking()).sweep_once(lambda: True)  # as on any day before
    await refuse(request, tmp_path)
    for run in (1, 2):
        ended = await yard.sweep(chunking())
        assert await sent(yard) == (good if run == 1 else [])
        (swept,) = ended.collections
        assert (swept.requeued, swept.given_up) == ((150, 1) if run == 1 else (0, 0))
        assert swept.skipped[Skip.REFUSED] == 3
        assert swept.skipped.get(Skip.CHANGED, 0) == 0
        assert sum(swept.errors.values()) == 3
        assert ended.status is Status.FAILURE
        facts = yard.facts.of(DocumentsRefused)[-len(swept.errors) :]
        assert sum(fact.count for fact in facts) == 3
        assert {one for fact in facts for one in fact.first_ids} == {"bad1", "bad2", "bad3"}
    assert yard.facts.of(CollectionFailed) == []
    found = {each["_id"]: each for each in await yard.all("messages")}
    assert {found[one]["attemptCount"] for one in good} == {1}
    assert [found[one]["attemptCount"] for one in ("bad1", "bad2", "bad3")] == [0, 0, 3]
    assert {each.get("claimToken") for each in found.values()} == {None}
    reason = key("retry_job_documents_skipped_total", reason="refused", collection="messages")
    assert (await yard.totals())[reason] == 2 * 3


async def claims(yard: Yard, error: Exception, *bad: str) -> tuple[Any, int]:
    """Sweep where claims fail that hold one of these; say how often was asked."""
    inner, asked = sweeping_of(yard.engine).candidates, 0

    async def claim(rule: Any, some: Sequence[Any], *given: Any) -> frozenset[str]:
        nonlocal asked
        asked += 1
        if any(each.document["_id"] in bad for each in some):
            raise error
        return await inner.claim(rule, some, *given)

    ended = await yard.sweep(chunking(), engine=with_candidates(yard.engine, claim=claim))
    return ended.collections[0], asked


async def test_a_store_that_is_away_is_not_asked_for_every_document(quick: Yard) -> None:
    await quick.put("messages", *(lost(f"{n}") for n in range(100)))
    swept, asked = await claims(quick, ConnectionResetError("gone"), "5")
    assert (asked, swept.requeued, swept.errors) == (1, 0, {"ConnectionResetError": 1})
    assert quick.facts.of(CollectionFailed)


async def test_a_document_that_somebody_else_has_locked_comes_in_the_next_run(
    quick: Yard,
) -> None:
    class LockNotAvailableError(Exception):
        sqlstate = "55P03"

    await quick.put("messages", *(lost(f"{n}") for n in range(100)))
    swept, _ = await claims(quick, LockNotAvailableError("locked"), "5")
    assert (swept.requeued, swept.skipped, swept.errors) == (99, {Skip.CHANGED: 1}, {})
    assert (await quick.sweep(chunking())).collections[0].requeued == 1


async def test_a_store_that_waits_long_for_locks_is_not_asked_for_every_document(
    quick: Yard,
) -> None:
    class LockNotAvailableError(Exception):
        sqlstate = "55P03"

    await quick.put("messages", *(lost(f"{n}") for n in range(500)))
    every = [f"{n}" for n in range(500)]
    swept, asked = await claims(quick, LockNotAvailableError("locked"), *every)
    assert asked < 60
    assert swept.errors == {"LockNotAvailableError": 1}


async def test_a_claim_that_cannot_be_ended_keeps_no_other(quick: Yard) -> None:
    inner = sweeping_of(quick.engine).candidates

    async def published(rule: Any, ids: Sequence[str], token: str) -> None:
        if "5" in ids:
            raise ValueError("no")
        await inner.published(rule, ids, token)

    await quick.put("messages", *(lost(f"{n}") for n in range(10)))
    engine = with_candidates(quick.engine, published=published)
    (swept,) = (await quick.sweep(chunking(), engine=engine)).collections
    assert (swept.requeued, swept.errors) == (10, {"ValueError": 1})
    left = [each["_id"] for each in await quick.all("messages") if each.get("claimToken")]
    assert left == ["5"]


async def test_what_was_claimed_and_not_sent_is_given_back(quick: Yard) -> None:
    """The page before it broke off: of these nothing was sent, so nobody waits for their claims."""

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        raise ConnectionError("no answer")

    await quick.put("messages", *(lost(f"{n:04}") for n in range(1500)))
    await quick.sweep(chunking(), engine=with_bus(quick.engine, publish=publish))
    claimed = [each for each in await quick.all("messages") if each.get("claimToken")]
    assert len(claimed) == 1000
    assert (await quick.sweep(chunking())).collections[0].requeued == 500
    quick.clock.advance(2 * MINUTE)
    assert (await quick.sweep(chunking())).collections[0].requeued == 1000
    assert {each["attemptCount"] for each in await quick.all("messages")} == {1}


# By the bus


def taking(yard: Yard, largest: int) -> Any:
    """Give an engine whose bus takes events up to a size."""

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        if any(len(each.body) > largest for each in messages):
            raise UnsendableError("it is too large for this broker")
        return await yard.engine.bus.publish(messages)

    return with_bus(yard.engine, publish=publish)


def telling() -> Service:
    service = Service("chunking")

    @service.on(
        "JSONParsed",
        documents=("messages", "message_doc_ids"),
        rebuild=lambda found: {"message_doc_ids": [found["_id"]], "text": found.get("text", "")},
    )
    async def chunk(event: Any, work: Any) -> None: ...

    return service


@pytest.mark.parametrize("settings", [{}, {"rate": 5.0}, {"limit": 8}, {"limit": 1}])
async def test_documents_whose_events_the_bus_never_takes_keep_no_other(
    quick: Yard, settings: dict[str, Any]
) -> None:
    large = [lost(f"z{n:02}", text="x" * 2_000) for n in range(30)]
    good = [f"a{n}" for n in range(5)]
    await quick.put("messages", *large, *map(lost, good))
    swept: list[str] = []
    runs = 0
    while len(swept) < len(good):
        runs += 1
        ended = await quick.sweep(telling(), engine=taking(quick, 1_000), **settings)
        swept = sorted([*swept, *await sent(quick)])
        (fact,) = quick.facts.of(DocumentsRefused)[runs - 1 :]
        assert (fact.count, fact.by_bus, fact.error_type) == (30, True, "UnsendableError")
        assert set(fact.first_ids) <= {each["_id"] for each in large}
        assert ended.collections[0].skipped[Skip.REFUSED] == 30
        assert ended.collections[0].skipped.get(Skip.CHANGED, 0) == 0
        assert ended.collections[0].errors == {"UnsendableError": 30}
        quick.clock.advance(MINUTE)
    assert (swept, runs) == (good, 5 if settings.get("limit") == 1 else 1)
    assert quick.facts.of(CollectionFailed) == []
    found = {each["_id"]: each for each in await quick.all("messages")}
    assert {found[each["_id"]]["attemptCount"] for each in large} == {0}
    assert {each.get("claimToken") for each in found.values()} == {None}


async def test_what_a_full_broker_was_not_sent_is_given_back(quick: Yard) -> None:
    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        raise BrokerFullError("its memory alarm is on")

    await quick.put("messages", *(lost(f"{n:04}") for n in range(1500)))
    ended = await quick.sweep(chunking(), engine=with_bus(quick.engine, publish=publish))
    assert ended.collections[0].errors == {"BrokerFullError": 1}
    (fact,) = quick.facts.of(CollectionFailed)
    assert fact.claims == 0
    assert (await quick.sweep(chunking())).collections[0].requeued == 1500
    assert {each["attemptCount"] for each in await quick.all("messages")} == {1}


# By being told to stop


async def for_ever(*_: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("method", ["open", "publish"])
async def test_a_bus_that_takes_nothing_keeps_no_sweeper_from_stopping(
    quick: Yard, method: str
) -> None:
    await quick.put("messages", *(lost(f"{n:04}") for n in range(1500)))
    sweeper = quick.sweeper(chunking(), engine=with_bus(quick.engine, **{method: for_ever}))
    running = asyncio.create_task(sweeper.run())
    await asyncio.sleep(0.1)
    assert not running.done()
    sweeper.stop()
    async with asyncio.timeout(5):
        await running
    (ended,) = quick.facts.of(SweepEnded)
    assert ended.collections[0].requeued == 0
    # Where nobody has looked, nobody knows what is stuck.
    assert [each.stuck for each in ended.collections] == [None if method == "open" else 1500]
    quick.clock.advance(2 * MINUTE)
    assert (await quick.sweep(chunking())).collections[0].requeued == 1500
    assert {each["attemptCount"] for each in await quick.all("messages")} == {1}


# By rebuild=


class Ended(BaseException):
    """What a library raises that would rather end the process."""


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), Ended(), MemoryError()]
)
async def test_a_rebuild_that_would_end_the_process_spoils_one_document(
    quick: Yard, error: BaseException
) -> None:
    service = Service("chunking")

    def rebuild(document: dict[str, Any]) -> Any:
        if document["_id"] == "bad":
            raise error
        return {"message_doc_ids": [document["_id"]]}

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"), rebuild=rebuild)
    async def chunk(event: Any, work: Any) -> None: ...

    await quick.put("messages", lost("a"), lost("bad"), lost("z"))
    (swept,) = (await quick.sweep(service)).collections
    assert (swept.requeued, swept.errors) == (2, {type(error).__name__: 1})
    (fact,) = quick.facts.of(DocumentsNotRebuilt)
    assert fact.first_id == "bad"


async def test_a_sweep_that_is_cancelled_ends(quick: Yard) -> None:
    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        await asyncio.Event().wait()
        return []

    await quick.put("messages", lost("a"))
    sweeper = quick.sweeper(chunking(), engine=with_bus(quick.engine, publish=publish))
    running = asyncio.create_task(sweeper.run())
    await quick.clock.wait(MINUTE / 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await sweeping_of(quick.engine).leases.held("sweep/leader") == []
