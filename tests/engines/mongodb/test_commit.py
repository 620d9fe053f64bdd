"""Commits on MongoDB: all of a unit or nothing, whatever is in the way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError, WriteError

from headway import ConfigurationError
from headway.adapters.mongodb.bodies import Transaction
from headway.adapters.mongodb.rows import row_for
from headway.errors import TransactionEndedError
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.conformance.examples import failing, message, unit
from headway.testing.engines import MongoStore
from headway.testing.ports import Add, Increment, InsertNew, Outcome, Update
from tests.engines.mongodb.site import CLOCK, Site, delivery, doing, inserted, outcomes

pytestmark = pytest.mark.server("mongodb")
MANY = 40


@pytest.fixture
async def site(mongodb_database: str) -> AsyncIterator[Site]:
    site = Site(mongodb_database)
    yield site
    await site.close()


@pytest.fixture
def store(site: Site) -> MongoStore:
    return site.store()


async def test_many_who_write_to_a_new_collection_at_once_are_not_in_each_others_way(
    site: Site,
) -> None:
    stores = [site.store() for _ in range(6)]
    finishes = await asyncio.gather(
        *(
            each.commit(
                [doing(f"{n}", InsertNew("fresh", {"_id": f"{n}"}), Add("log", {"_id": f"{n}"}))]
            )
            for n, each in enumerate(stores)
        )
    )
    assert [outcomes(each) for each in finishes] == [["committed"]] * 6
    assert (await site.count("fresh"), await site.count("log")) == (6, 6)


async def test_two_who_insert_the_same_documents_at_once_insert_each_once(site: Site) -> None:
    documents = [{"_id": f"{n}", "nested": {"n": n}} for n in range(MANY)]
    orders = [documents, documents[::-1]]
    stores = [site.store(), site.store()]
    finishes = await asyncio.gather(
        *(
            each.commit(
                [
                    doing(
                        f"{n}",
                        Increment("docs", "counter", "n"),
                        *(InsertNew("docs", d) for d in given),
                    )
                ]
            )
            for n, (each, given) in enumerate(zip(stores, orders, strict=True))
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
    units = [
        doing(
            f"{n}",
            Increment("docs", "1", "n"),
            *([Update("docs", "nobody", {"a": 1})] if n in wrong else ()),
        )
        for n in range(MANY)
    ]
    expected = ["refused" if n in wrong else "committed" for n in range(MANY)]
    assert outcomes(await store.commit(units)) == expected
    assert (await site.raw("docs", "1"))["n"] == MANY - len(wrong)
    again = outcomes(await store.commit(units))
    assert again == ["refused" if n in wrong else "duplicate" for n in range(MANY)]
    assert (await site.raw("docs", "1"))["n"] == MANY - len(wrong)


async def test_what_mongodb_does_not_take_refuses_its_unit_alone_and_for_good(
    site: Site, store: MongoStore
) -> None:
    await site.database["unique"].create_index("mail", unique=True)
    await site.database.command({"create": "checked", "validator": {"n": {"$type": "string"}}})
    await inserted(store, "unique", {"_id": "1", "mail": "a"})
    wrong: dict[str, Any] = {
        "too large": InsertNew("docs", {"_id": "1", "text": "x" * (17 << 20)}),
        "too large a number": InsertNew("docs", {"_id": "1", "n": 2**63}),
        "taken by somebody else": InsertNew("unique", {"_id": "2", "mail": "a"}),
        "not valid": InsertNew("checked", {"_id": "1", "n": 1}),
        "no name": InsertNew("", {"_id": "1"}),
        "half a letter": InsertNew("docs", {"_id": "1", "text": "\ud800"}),
    }
    good = [doing(f"good {n}", Add("log", {"_id": f"{n}"})) for n in range(len(wrong))]
    bad = [doing(name, write, Add("log", {"_id": name})) for name, write in wrong.items()]
    mixed = [each for pair in zip(good, bad, strict=True) for each in pair]
    finishes = await store.commit(mixed)
    assert outcomes(finishes) == ["committed", "refused"] * len(wrong)
    errors = dict(zip(wrong, (finish.error for finish in finishes[1::2]), strict=True))
    for name, error in errors.items():
        assert error is not None
        assert DEFAULT_CLASSIFIER.classify(error).verdict is Verdict.PERMANENT, (name, error)
    assert isinstance(errors["taken by somebody else"], DuplicateKeyError)
    assert isinstance(errors["not valid"], WriteError)
    assert await site.count("log") == len(wrong)
    assert await site.count("docs") == 0


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it is empty"),
        ("a$b", "it holds a \\$"),
        ("a\0b", "it holds a NUL"),
        ("system.users", "it begins with system."),
        ("a..b", "it has a dot at an end, or two in a row"),
        ("ü" * 130, "it is longer than 255 bytes"),
        ("headway_done", "it belongs to Headway"),
    ],
)
async def test_a_name_that_cannot_be_used_is_refused(
    store: MongoStore, name: str, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"collection=.* is not accepted.*{why}"):
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
    await store.records.dispatched([key, "nobody's"])
    record = (await store.records.find([key]))[key]
    assert (record.outgoing, record.letter) == ((), None)
    assert await site.count("headway_held") == 0


async def test_what_nobody_counts_on_is_forgotten(site: Site, store: MongoStore) -> None:
    now = CLOCK.now()
    outgoing = tuple(message(f"{n}", body=b"x" * (5 << 20)) for n in range(2))
    needed = unit(delivery("needed"), now, outgoing=outgoing)
    orphan = unit(delivery("orphan"), now, outgoing=outgoing)
    assert orphan.record is not None
    await store.commit([needed])
    await store.records.keep_parts(row_for(orphan, orphan.record)[1])
    parts = await site.count("headway_held")
    assert await store.records.forget(now - timedelta(hours=1), 10) == 0
    assert await site.count("headway_held") == parts
    assert await store.records.forget(now + timedelta(hours=1), 10) == 0
    assert await site.count("headway_held") == parts // 2
    (record,) = await store.records.undispatched(now + timedelta(hours=1), 10)
    assert (record.operation, record.outgoing) == ("needed", outgoing)


async def test_how_it_ended_can_be_read_by_anybody(site: Site, store: MongoStore) -> None:
    done = doing("a")
    assert done.record is not None
    await store.commit([done])
    found = await site.raw("headway_done", done.record.key)
    assert (found["operation"], found["queue"], found["ended"]) == ("a", "shop.orders", "done")


# Statements of the user's own


async def test_a_body_is_given_the_session_and_the_database(site: Site, store: MongoStore) -> None:
    async def body(transaction: Transaction) -> None:
        own = transaction.database["own"]
        await own.insert_one({"_id": 1}, session=transaction.session)
        assert await own.count_documents({}, session=transaction.session) == 1
        assert await own.count_documents({}) == 0

    assert outcomes(await store.commit([doing("a", bodies=(body,))])) == ["committed"]
    assert await site.count("own") == 1


async def test_a_plain_body_may_give_back_one_statement(site: Site, store: MongoStore) -> None:
    def body(transaction: Transaction) -> Awaitable[object]:
        return transaction.database["own"].insert_one({"_id": 1}, session=transaction.session)

    assert outcomes(await store.commit([doing("a", bodies=(body,))])) == ["committed"]
    assert await site.count("own") == 1


async def test_a_plain_body_whose_statement_nothing_awaits_is_refused(
    site: Site, store: MongoStore
) -> None:
    def body(transaction: Transaction) -> None:
        transaction.database["own"].insert_one({"_id": 1}, session=transaction.session).close()

    (finish,) = await store.commit([doing("a", bodies=(body,))])
    assert isinstance(finish.error, TypeError)
    assert "test_mongodb_commit.py:" in str(finish.error)
    assert "Use async def" in str(finish.error)
    assert await site.count("own") == 0


@pytest.mark.parametrize("how", ["commit_transaction", "abort_transaction", "end_session"])
@pytest.mark.parametrize("swallowed", [False, True])
async def test_a_body_that_ends_the_transaction_is_refused_and_leaves_nothing(
    site: Site, store: MongoStore, how: str, *, swallowed: bool
) -> None:
    async def body(transaction: Transaction) -> None:
        await transaction.database["own"].insert_one({}, session=transaction.session)
        try:
            await getattr(transaction.session, how)()
        except TransactionEndedError:
            if not swallowed:
                raise

    ending = doing("a", Add("log", {"_id": "1"}), bodies=(body,))
    finishes = await store.commit([doing("b"), ending, doing("c")])
    assert outcomes(finishes) == ["committed", "refused", "committed"]
    assert isinstance(finishes[1].error, TransactionEndedError)
    assert (await site.count("own"), await site.count("log")) == (0, 0)


async def leaves_a_mark(transaction: Transaction) -> None:
    await transaction.database["own"].insert_one({}, session=transaction.session)


async def leaves_the_session(transaction: Transaction) -> None:
    async with transaction.session as session:
        await transaction.database["own"].insert_one({}, session=session)


async def commits_by_command(transaction: Transaction) -> None:
    await transaction.database["own"].insert_one({}, session=transaction.session)
    admin = transaction.database.client["admin"]
    await admin.command("commitTransaction", session=transaction.session)


async def aborts_by_command(transaction: Transaction) -> None:
    await transaction.database["own"].insert_one({}, session=transaction.session)
    admin = transaction.database.client["admin"]
    await admin.command("abortTransaction", session=transaction.session)


async def runs_a_transaction(transaction: Transaction) -> None:
    async def insert(session: Any) -> None:
        await transaction.database["own"].insert_one({}, session=session)

    await transaction.session.with_transaction(insert)


@pytest.mark.parametrize(
    ("ends", "swallowed"),
    [
        *((leaves_the_session, each) for each in (False, True)),
        *((commits_by_command, each) for each in (False, True)),
        *((aborts_by_command, each) for each in (False, True)),
        (runs_a_transaction, False),
    ],
)
async def test_no_other_way_to_end_the_transaction_stores_half_of_it(
    site: Site,
    store: MongoStore,
    ends: Callable[[Transaction], Awaitable[None]],
    *,
    swallowed: bool,
) -> None:
    async def body(transaction: Transaction) -> None:
        try:
            await ends(transaction)
        except Exception:
            if not swallowed:
                raise

    units = [doing("a", Add("log", {"_id": "1"}), bodies=(body, leaves_a_mark)), doing("b")]
    assert outcomes(await store.commit(units)) == ["refused", "committed"]
    assert (await site.count("own"), await site.count("log")) == (0, 0)
    assert outcomes(await store.commit([doing("a")])) == ["committed"]


async def test_a_body_that_swallows_the_error_of_a_statement_is_told_what_it_did(
    site: Site, store: MongoStore
) -> None:
    await site.database["own"].insert_one({"_id": 1})

    async def body(transaction: Transaction) -> None:
        with pytest.raises(DuplicateKeyError):
            await transaction.database["own"].insert_one({"_id": 1}, session=transaction.session)

    (finish,) = await store.commit([doing("a", bodies=(body,))])
    assert isinstance(finish.error, TransactionEndedError)
    assert "let the error leave the body" in str(finish.error)
    assert outcomes(await store.commit([doing("a")])) == ["committed"]


async def test_a_body_that_others_were_quicker_than_runs_again(
    site: Site, store: MongoStore
) -> None:
    await site.database["own"].insert_one({"_id": 1, "n": 0})
    tries = 0

    async def body(transaction: Transaction) -> None:
        nonlocal tries
        tries += 1
        own = transaction.database["own"]
        found = await own.find_one({"_id": 1}, session=transaction.session)
        assert found is not None
        if tries == 1:
            await site.database["own"].update_one({"_id": 1}, {"$inc": {"n": 10}})
        change = {"$set": {"n": found["n"] + 1}}
        await own.update_one({"_id": 1}, change, session=transaction.session)

    assert outcomes(await store.commit([doing("a", bodies=(body,))])) == ["committed"]
    assert (tries, (await site.raw("own", 1))["n"]) == (2, 11)


async def test_a_body_that_is_never_quick_enough_is_refused_as_a_conflict(
    site: Site, store: MongoStore
) -> None:
    await site.database["own"].insert_one({"_id": 1, "n": 0})

    async def body(transaction: Transaction) -> None:
        own = transaction.database["own"]
        await own.find_one({"_id": 1}, session=transaction.session)
        await site.database["own"].update_one({"_id": 1}, {"$inc": {"n": 1}})
        await own.update_one({"_id": 1}, {"$inc": {"n": 100}}, session=transaction.session)

    (finish,) = await store.commit([doing("a", bodies=(body,))])
    assert finish.outcome is Outcome.REFUSED
    assert finish.error is not None
    assert DEFAULT_CLASSIFIER.classify(finish.error).error_type == "OC000_TRANSACTION_CONFLICT"
    assert (await site.raw("own", 1))["n"] < 100


async def test_who_is_cancelled_while_a_body_runs_ends(store: MongoStore) -> None:
    running = asyncio.Event()

    async def body(_: Transaction) -> None:
        running.set()
        await asyncio.Event().wait()

    committing = asyncio.create_task(store.commit([doing("a", bodies=(body,))]))
    await running.wait()
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert outcomes(await store.commit([doing("a")])) == ["committed"]
