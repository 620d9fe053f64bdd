"""Commits on MongoDB: all of a unit or nothing, whatever is in the way."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError, WriteError

from headway import ConfigurationError
from headway.errors import TransactionEndedError
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.conformance.examples import failing, message, unit
from headway.testing.engines import MongoStore
from headway.testing.ports import Add, Increment, InsertNew, Outcome, Update
from tests.engines.mongodb.site import CLOCK, Site, delivery, doing, inserted, outcomes

pytestmark = pytest.mark.server("mongodb")
MANY = 40


async def test_many_who_write_to_a_new_collection_at_once_are_not_in_each_others_way(
    site: Site,
) -> None:
    writes = [(InsertNew("fresh", {"_id": f"{n}"}), Add("log", {"_id": f"{n}"})) for n in range(6)]
    finishes = await asyncio.gather(
        *(site.store().commit([doing(f"{n}", *each)]) for n, each in enumerate(writes))
    )
    assert [outcomes(each) for each in finishes] == [["committed"]] * 6
    assert (await site.count("fresh"), await site.count("log")) == (6, 6)


async def test_two_who_insert_the_same_documents_at_once_insert_each_once(site: Site) -> None:
    documents = [{"_id": f"{n}", "nested": {"n": n}} for n in range(MANY)]
    count = Increment("docs", "counter", "n")
    finishes = await asyncio.gather(
        *(
            site.store().commit([doing(f"{n}", count, *(InsertNew("docs", d) for d in given))])
            for n, given in enumerate([documents, documents[::-1]])
        )
    )
    ((first,), (second,)) = finishes
    assert {first.outcome, second.outcome} == {Outcome.COMMITTED}
    assert first.skipped + second.skipped == MANY
    assert (await site.raw("docs", "counter"))["n"] == 2
    assert await site.count("docs") == MANY + 1


async def test_of_two_who_commit_the_same_units_at_once_one_does(site: Site) -> None:
    units = [doing(f"{n}", Increment("docs", "counter", "n")) for n in range(MANY)]
    stores = [site.store(), site.store()]
    await asyncio.gather(*(each.open() for each in stores))
    finishes = await asyncio.gather(stores[0].commit(units), stores[1].commit(units[::-1]))
    both = zip(outcomes(finishes[0]), outcomes(finishes[1])[::-1], strict=True)
    assert all(sorted(pair) == ["committed", "duplicate"] for pair in both)
    assert (await site.raw("docs", "counter"))["n"] == MANY


async def test_of_a_large_group_only_the_wrong_ones_are_refused(
    site: Site, store: MongoStore
) -> None:
    await inserted(store, "docs", {"_id": "1", "n": 0})
    wrong = {7, 8, 33}
    missing = Update("docs", "gone", {"a": 1})
    units = [
        doing(f"{n}", Increment("docs", "1", "n"), *([missing] if n in wrong else ()))
        for n in range(MANY)
    ]
    for rest in ("committed", "duplicate"):
        expected = ["refused" if n in wrong else rest for n in range(MANY)]
        assert outcomes(await store.commit(units)) == expected
        assert (await site.raw("docs", "1"))["n"] == MANY - len(wrong)


async def test_what_mongodb_does_not_take_refuses_its_unit_alone_and_for_good(
    site: Site, store: MongoStore
) -> None:
    await site.database["unique"].create_index("mail", unique=True)
    await site.database.command({"create": "checked", "validator": {"n": {"$type": "string"}}})
    await inserted(store, "unique", {"_id": "1", "mail": "a"})
    wrong: dict[str, tuple[Any, type[Exception]]] = {
        "too large": (InsertNew("docs", {"_id": "1", "text": "x" * (17 << 20)}), Exception),
        "too large a number": (InsertNew("docs", {"_id": "1", "n": 2**63}), Exception),
        "taken": (InsertNew("unique", {"_id": "2", "mail": "a"}), DuplicateKeyError),
        "not valid": (InsertNew("checked", {"_id": "1", "n": 1}), WriteError),
        "no name": (InsertNew("", {"_id": "1"}), ConfigurationError),
        "half a character": (InsertNew("docs", {"_id": "1", "text": "\ud800"}), Exception),
    }
    good = [doing(f"good {n}", Add("log", {"_id": f"{n}"})) for n in range(len(wrong))]
    bad = [doing(name, write, Add("log", {"_id": name})) for name, (write, _) in wrong.items()]
    finishes = await store.commit([each for pair in zip(good, bad, strict=True) for each in pair])
    assert outcomes(finishes) == ["committed", "refused"] * len(wrong)
    for finish, (_, expected) in zip(finishes[1::2], wrong.values(), strict=True):
        assert isinstance(finish.error, expected)
        assert DEFAULT_CLASSIFIER.classify(finish.error).verdict is Verdict.PERMANENT
    assert await site.count("log") == len(wrong)
    assert await site.count("docs") == 0


@pytest.mark.parametrize(
    "name", ["", "a$b", "a\0b", "system.users", "a..b", "ü" * 130, "headway_done"]
)
async def test_a_name_that_cannot_be_used_is_refused(store: MongoStore, name: str) -> None:
    with pytest.raises(ConfigurationError, match="collection="):
        await store.documents.fetch(name, ["1"])
    (finish,) = await store.commit([doing("a", InsertNew(name, {"_id": "1"}))])
    assert isinstance(finish.error, ConfigurationError)


# What a record holds


async def test_more_than_one_document_can_hold_is_held_until_it_is_sent(
    site: Site, store: MongoStore
) -> None:
    outgoing = tuple(message(f"{n}", body=b"x" * (5 << 20)) for n in range(4))
    failed = failing(delivery("a"), CLOCK.now(), outgoing=outgoing)
    assert failed.record is not None
    key = failed.record.key
    assert outcomes(await store.commit([failed])) == ["committed"]
    record = (await site.store().records.find([key]))[key]
    assert (record.outgoing, record.letter) == (outgoing, failed.letter)
    assert outcomes(await store.commit([failed])) == ["duplicate"]
    assert failed.letter is not None
    await store.requeued(failed.failed_queue, failed.letter.letter_id, "shop.orders")
    record = (await store.records.find([key]))[key]
    assert (record.outgoing, record.letter) == (outgoing, None)
    assert len(await store.records.undispatched(CLOCK.now() + CLOCK.now().resolution, 10)) == 1
    await store.records.dispatched([key, "unknown"])
    record = (await store.records.find([key]))[key]
    assert (record.outgoing, record.letter) == ((), None)
    assert await site.count("headway_held") == 0


async def test_parts_of_a_record_that_is_not_there_are_forgotten(
    site: Site, store: MongoStore
) -> None:
    now = CLOCK.now()
    outgoing = tuple(message(f"{n}", body=b"x" * (5 << 20)) for n in range(2))
    needed, orphan = (unit(delivery(each), now, outgoing=outgoing) for each in ("a", "b"))
    assert orphan.record is not None
    await store.commit([needed])
    parts = await site.count("headway_held")
    await store.commit([orphan])
    await site.database["headway_done"].delete_one({"_id": orphan.record.key})
    assert await store.records.forget(now - timedelta(hours=1), 10) == 0
    assert await site.count("headway_held") == 2 * parts
    assert await store.records.forget(now + timedelta(hours=1), 10) == 0
    assert await site.count("headway_held") == parts
    (record,) = await store.records.undispatched(now + timedelta(hours=1), 10)
    assert (record.operation, record.outgoing) == ("a", outgoing)


# Statements of the user's own: a callback gets the session and the database


Callback = Callable[[Any], Awaitable[object]]


async def inserts(transaction: Any) -> None:
    own = transaction.database["own"]
    await own.insert_one({"_id": 1}, session=transaction.session)
    assert await own.count_documents({}, session=transaction.session) == 1
    assert await own.count_documents({}) == 0


def gives_back_a_statement(transaction: Any) -> Any:
    return transaction.database["own"].insert_one({"_id": 1}, session=transaction.session)


@pytest.mark.parametrize("body", [inserts, gives_back_a_statement])
async def test_a_callback_writes_in_the_transaction(
    site: Site, store: MongoStore, body: Callback
) -> None:
    assert outcomes(await store.commit([doing("a", bodies=(body,))])) == ["committed"]
    assert await site.count("own") == 1


async def test_a_plain_callback_whose_statement_nothing_awaits_is_refused(
    site: Site, store: MongoStore
) -> None:
    def body(transaction: Any) -> None:
        transaction.database["own"].insert_one({"_id": 1}, session=transaction.session).close()

    (finish,) = await store.commit([doing("a", bodies=(body,))])
    assert isinstance(finish.error, TypeError)
    assert "test_commit.py:" in str(finish.error)
    assert await site.count("own") == 0


async def commits(transaction: Any) -> None:
    await transaction.session.commit_transaction()


async def aborts(transaction: Any) -> None:
    await transaction.session.abort_transaction()


async def ends_the_session(transaction: Any) -> None:
    await transaction.session.end_session()


async def leaves_the_session(transaction: Any) -> None:
    async with transaction.session as session:
        await transaction.database["own"].insert_one({}, session=session)


async def commits_by_command(transaction: Any) -> None:
    admin = transaction.database.client["admin"]
    await admin.command("commitTransaction", session=transaction.session)


async def aborts_by_command(transaction: Any) -> None:
    admin = transaction.database.client["admin"]
    await admin.command("abortTransaction", session=transaction.session)


async def runs_a_transaction(transaction: Any) -> None:
    async def insert(session: Any) -> None:
        await transaction.database["own"].insert_one({}, session=session)

    await transaction.session.with_transaction(insert)


ENDING = (commits, aborts, ends_the_session, leaves_the_session)
BY_COMMAND = (commits_by_command, aborts_by_command)


@pytest.mark.parametrize(
    ("ends", "swallowed"),
    [
        *((ends, swallowed) for ends in (*ENDING, *BY_COMMAND) for swallowed in (False, True)),
        (runs_a_transaction, False),
    ],
)
async def test_a_callback_that_ends_the_transaction_is_refused_alone_and_stores_nothing(
    site: Site, store: MongoStore, ends: Callback, *, swallowed: bool
) -> None:
    async def body(transaction: Any) -> None:
        await transaction.database["own"].insert_one({}, session=transaction.session)
        try:
            await ends(transaction)
        except Exception:
            if not swallowed:
                raise

    async def leaves_a_mark(transaction: Any) -> None:
        await transaction.database["own"].insert_one({}, session=transaction.session)

    ending = doing("a", Add("log", {"_id": "1"}), bodies=(body, leaves_a_mark))
    finishes = await store.commit([doing("b"), ending, doing("c")])
    assert outcomes(finishes) == ["committed", "refused", "committed"]
    if ends in ENDING[:3]:
        assert isinstance(finishes[1].error, TransactionEndedError)
    assert (await site.count("own"), await site.count("log")) == (0, 0)
    assert outcomes(await store.commit([doing("a")])) == ["committed"]


async def test_a_callback_that_swallows_the_error_of_a_statement_is_refused(
    site: Site, store: MongoStore
) -> None:
    await site.database["own"].insert_one({"_id": 1})

    async def body(transaction: Any) -> None:
        with pytest.raises(DuplicateKeyError):
            await transaction.database["own"].insert_one({"_id": 1}, session=transaction.session)

    (finish,) = await store.commit([doing("a", bodies=(body,))])
    assert isinstance(finish.error, TransactionEndedError)
    assert outcomes(await store.commit([doing("a")])) == ["committed"]


@pytest.mark.parametrize("conflicts", [1, 1_000])
async def test_a_callback_that_meets_a_conflict_runs_again_a_few_times(
    site: Site, store: MongoStore, conflicts: int
) -> None:
    await site.database["own"].insert_one({"_id": 1, "n": 0})
    tries = 0

    async def body(transaction: Any) -> None:
        nonlocal tries
        tries += 1
        own = transaction.database["own"]
        found = await own.find_one({"_id": 1}, session=transaction.session)
        if tries <= conflicts:
            await site.database["own"].update_one({"_id": 1}, {"$inc": {"n": 10}})
        change = {"$set": {"n": found["n"] + 1}}
        await own.update_one({"_id": 1}, change, session=transaction.session)

    (finish,) = await store.commit([doing("a", bodies=(body,))])
    if conflicts == 1:
        assert (finish.outcome, tries) == (Outcome.COMMITTED, 2)
        assert (await site.raw("own", 1))["n"] == 11
    else:
        assert finish.outcome is Outcome.REFUSED
        assert finish.error is not None
        verdict = DEFAULT_CLASSIFIER.classify(finish.error)
        assert verdict.error_type == "OC000_TRANSACTION_CONFLICT"
        assert (await site.raw("own", 1))["n"] == 10 * tries


async def test_a_commit_that_is_cancelled_while_a_callback_runs_ends(store: MongoStore) -> None:
    running = asyncio.Event()

    async def body(_: Any) -> None:
        running.set()
        await asyncio.Event().wait()

    committing = asyncio.create_task(store.commit([doing("a", bodies=(body,))]))
    await running.wait()
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert outcomes(await store.commit([doing("a")])) == ["committed"]
