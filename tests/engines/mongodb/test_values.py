"""What other clients wrote is shown as JSON, and is never rewritten."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from math import nan
from typing import Any
from uuid import UUID

import pytest
from bson import (
    Binary,
    Code,
    DatetimeMS,
    Decimal128,
    Int64,
    MaxKey,
    ObjectId,
    Regex,
    Timestamp,
    encode,
)
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from headway import Lifecycle
from headway.adapters.mongodb.values import kept, view
from headway.errors import ConditionLostError
from headway.testing.engines import MongoStore
from headway.testing.ports import (
    Beginning,
    Claim,
    How,
    Increment,
    InsertNew,
    Outcome,
    Requeue,
    SweepRule,
    Update,
    View,
    instant,
    judge,
    sweep_operation,
)
from tests.engines.mongodb.site import CLOCK, Site, doing, inserted, sweeping

pytestmark = pytest.mark.server("mongodb")

DATE = datetime(2024, 2, 29, 12, 30, 0, 123_000, tzinfo=UTC)
HEX = "65e06fd8a1b2c3d4e5f60718"
OWN_ID = UUID("0b9e7a2c-1d3f-4a5b-8c6d-7e8f90a1b2c3")
FOREIGN: dict[str, Any] = {
    "date": DATE,
    "oid": ObjectId(HEX),
    "decimal": Decimal128("12.50"),
    "long": Int64(7),
    "bytes": b"\x00\xff",
    "uuid": Binary.from_uuid(OWN_ID),
    "nested": [{"at": DATE, "n": [Int64(1)]}],
    "nan": nan,
    "far": DatetimeMS(10**17),
    "oplog": Timestamp(1_700_000_000, 1),
    "code": Code("x"),
    "regex": Regex("^a"),
    "highest": MaxKey(),
}
SHOWN: dict[str, Any] = {
    "date": "2024-02-29T12:30:00.123000Z",
    "oid": HEX,
    "decimal": "12.50",
    "long": 7,
    "bytes": "AP8=",
    "uuid": str(OWN_ID),
    "nested": [{"at": "2024-02-29T12:30:00.123000Z", "n": [1]}],
    "nan": None,
    "far": 10**17,
    "oplog": "2023-11-14T22:13:20Z",
}
DOCS = SweepRule(lifecycle=Lifecycle("docs"))


@pytest.fixture
async def site(mongodb_database: str) -> AsyncIterator[Site]:
    site = Site(mongodb_database)
    yield site
    await site.close()


@pytest.fixture
def store(site: Site) -> MongoStore:
    return site.store()


def test_values_are_shown_as_json() -> None:
    shown = view(FOREIGN)
    assert {field: shown[field] for field in SHOWN} == SHOWN
    assert all(isinstance(shown[field], str) for field in ("code", "regex", "highest"))
    assert type(shown["long"]) is int


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("text", "text"),
        (ObjectId(HEX), HEX),
        (7, "7"),
        (Binary.from_uuid(OWN_ID), str(OWN_ID)),
        (Int64(1_780_000_000_000_000_001), "1780000000000000001"),
        (2.0, "2"),
        (1.5, '{"$numberDouble":"1.5"}'),
        (True, "true"),
        (None, "null"),
        (Decimal128("7"), '{"$numberDecimal":"7"}'),
        (b"abc", '{"$binary":{"base64":"YWJj","subType":"00"}}'),
        (DATE, '{"$date":{"$numberLong":"1709209800123"}}'),
        ({"a": 1}, '{"a":{"$numberInt":"1"}}'),
    ],
)
def test_an_id_is_shown_as_text(raw: Any, shown: str) -> None:
    assert view({"_id": raw}) == {"_id": shown}


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2024-02-29T12:30:00.123456Z", DATE),
        ("2024-02-29T12:30:00Z", DATE.replace(microsecond=0)),
        ("2024-02-29T12:30:00.123Z", None),
        ("2024-02-29T12:30:00", None),
        ("2024-02-29T13:30:00+01:00", None),
        ("2024-02-30T12:30:00Z", None),
        ("2024-02-29", None),
        ("some day", None),
        ("", None),
    ],
)
def test_only_times_as_we_write_them_are_kept_as_dates(text: str, stored: datetime | None) -> None:
    given = {"lastAttemptTime": text, "own": text, "claimBefore": {"retryAt": text, "own": text}}
    expected = text if stored is None else stored
    assert kept(given) == {
        "lastAttemptTime": expected,
        "own": text,
        "claimBefore": {"retryAt": expected, "own": text},
    }


async def test_only_what_changed_is_written(site: Site, store: MongoStore) -> None:
    foreign = {name: value for name, value in FOREIGN.items() if name not in {"nan", "far"}}
    await site.database["docs"].insert_one({"_id": "1", **foreign, "n": Int64(1)})
    before = await site.raw("docs", "1")
    (finish,) = await store.commit(
        [
            doing(
                "a",
                Update("docs", "1", {"status": "failed", "date": SHOWN["date"], "a.b": {"$c": 1}}),
                Increment("docs", "1", "n"),
            )
        ]
    )
    assert finish.outcome is Outcome.COMMITTED
    beginning = Beginning(lifecycle=DOCS.lifecycle, ids=("1",), operation="a", now=CLOCK.now())
    (answer,) = await store.documents.begin([beginning])
    assert answer["1"].document["nested"] == SHOWN["nested"]
    after = await site.raw("docs", "1")
    assert {field: after[field] for field in foreign} == {field: before[field] for field in foreign}
    assert isinstance(after["date"], datetime)
    assert isinstance(after["oid"], ObjectId)
    assert (after["n"], after["a.b"]) == (2, {"$c": 1})
    assert isinstance(after["lastAttemptTime"], datetime)


async def test_a_date_is_expected_by_its_text(site: Site, store: MongoStore) -> None:
    await site.database["docs"].insert_one({"_id": "1", "at": DATE})
    right, wrong = instant(DATE), instant(DATE + timedelta(milliseconds=1))
    for text, outcome in ((wrong, Outcome.REFUSED), (right, Outcome.COMMITTED)):
        (finish,) = await store.commit([doing(text, Update("docs", "1", {"n": 1}, {"at": text}))])
        assert finish.outcome is outcome
        assert outcome is Outcome.COMMITTED or isinstance(finish.error, ConditionLostError)


@pytest.mark.parametrize(
    "field", ["date", "oid", "decimal", "long", "bytes", "uuid", "nested", "nan"]
)
async def test_documents_are_found_by_what_is_shown(
    site: Site, store: MongoStore, field: str
) -> None:
    await site.database["docs"].insert_many(
        [{"_id": "1", field: FOREIGN[field]}, {"_id": "2", field: "other"}]
    )
    found = await store.documents.find("docs", {field: SHOWN[field]}, 10)
    assert [each["_id"] for each in found] == ["1"]


@pytest.mark.parametrize(
    "raw",
    [
        ObjectId(HEX),
        12,
        -3,
        Binary.from_uuid(OWN_ID),
        Int64(1_780_000_000_000_000_001),
        Int64(-(1 << 63)),
        2.0,
        1.5,
        nan,
        Decimal128("7.50"),
        b"abc",
        DATE,
        {"year": 2024, "of": {"day": DATE, "who": ObjectId(HEX)}},
        Timestamp(1, 2),
        True,
        None,
        "a\0b",
        '{"a":1}',
    ],
    ids=repr,
)
async def test_documents_are_reached_by_the_text_of_any_id(
    site: Site, store: MongoStore, raw: Any
) -> None:
    one = view({"_id": raw})["_id"]
    old = CLOCK.now() - timedelta(days=3)
    await site.database["docs"].insert_one(
        {"_id": raw, "status": "pending", "lastAttemptTime": old}
    )
    await inserted(store, "docs", {"_id": "another", "status": "processed"})
    assert (await store.documents.fetch("docs", [one, "nobody"]))[one]["_id"] == one
    assert [each["_id"] for each in await store.documents.find("docs", {"_id": one}, 5)] == [one]
    candidates, now = sweeping(store).candidates, CLOCK.now()
    await candidates.prepare([DOCS])
    pages = [
        page async for page in candidates.scan(DOCS, View.UNMOVED, now, newest_first=True, page=5)
    ]
    ((document,),) = pages
    requeue = judge(document, DOCS, now)
    assert isinstance(requeue, Requeue)
    claims = [Claim(document, requeue)]
    assert await candidates.claim(DOCS, claims, "t", now, timedelta(minutes=1)) == {one}
    await candidates.published(DOCS, [one], "t")
    found = await site.raw("docs", raw)
    assert "claimToken" not in found
    assert found["lastOperation"] == requeue.operation == sweep_operation("docs", one, 1, now)
    lifecycle = Lifecycle("docs", lease=timedelta(minutes=1))
    beginning = Beginning(
        lifecycle=lifecycle, ids=(one,), operation=requeue.operation, now=now, token="t"
    )
    (answer,) = await store.documents.begin([beginning])
    assert answer[one].how is How.BEGUN
    assert await store.documents.renew("docs", {one: "t"}, now) == 1
    done = Update("docs", one, lifecycle.on_success(), {"leaseToken": "t"})
    (finish,) = await store.commit([doing("a", done)])
    assert finish.outcome is Outcome.COMMITTED
    assert (await site.raw("docs", raw))["status"] == "processed"
    documents = list((await store.documents.fetch("docs", [one])).values())
    assert await sweeping(store).desk.move("docs", documents, "archive") == {one}
    assert (await site.raw("archive", raw))["status"] == "processed"


async def test_a_text_goes_before_an_object_id_that_looks_the_same(
    site: Site, store: MongoStore
) -> None:
    await site.database["docs"].insert_many(
        [{"_id": ObjectId(HEX), "who": "other"}, {"_id": HEX, "who": "ours"}]
    )
    assert (await store.documents.fetch("docs", [HEX]))[HEX]["who"] == "ours"
    (finish,) = await store.commit([doing("a", InsertNew("docs", {"_id": HEX}))])
    assert finish.skipped == 1


@pytest.mark.parametrize(
    ("raw", "text", "exact"),
    [
        (7, "7", '{"$numberInt":"7"}'),
        (ObjectId(HEX), HEX, f'{{"$oid":"{HEX}"}}'),
    ],
)
async def test_of_two_that_look_the_same_each_has_its_own_name(
    site: Site, store: MongoStore, raw: Any, text: str, exact: str
) -> None:
    await site.database["docs"].insert_many(
        [{"_id": raw, "status": "pending"}, {"_id": text, "status": "pending"}]
    )
    candidates, now = sweeping(store).candidates, CLOCK.now()
    (page,) = [
        page async for page in candidates.scan(DOCS, View.UNMOVED, now, newest_first=True, page=5)
    ]
    by_name = {each["_id"]: each for each in page}
    assert by_name.keys() == {text, exact}
    assert {each["_id"] for each in await store.documents.find("docs", {}, 5)} == {text, exact}
    judged = {one: judge(document, DOCS, now) for one, document in by_name.items()}
    requeue = judged[text]
    assert isinstance(requeue, Requeue)
    lease = timedelta(minutes=1)
    claims = [Claim(by_name[text], requeue)]
    assert await candidates.claim(DOCS, claims, "t", now, lease) == {text}
    assert "claimToken" not in await site.raw("docs", raw)
    requeue = judged[exact]
    assert isinstance(requeue, Requeue)
    claims = [Claim(by_name[exact], requeue)]
    assert await candidates.claim(DOCS, claims, "t", now, lease) == {exact}
    assert (await site.raw("docs", raw))["lastOperation"].endswith(exact)
    await candidates.published(DOCS, [text], "t")
    assert "claimToken" in await site.raw("docs", raw)
    await candidates.give_back(DOCS, [exact], "t")
    assert "claimToken" not in await site.raw("docs", raw)
    (finish,) = await store.commit([doing("a", Update("docs", exact, {"n": 1}))])
    assert finish.outcome is Outcome.COMMITTED
    assert (await site.raw("docs", raw))["n"] == 1
    assert "n" not in await site.raw("docs", text)
    assert (await store.documents.fetch("docs", [exact]))[exact]["_id"] == exact


async def test_an_id_that_no_text_names_is_left_alone_and_told(
    site: Site, store: MongoStore, caplog: pytest.LogCaptureFixture
) -> None:
    written = encode({"_id": "no text", "status": "pending"}).replace(b"no text", b"\xff\xfe text")
    raw = site.database.with_options(codec_options=CodecOptions(RawBSONDocument))
    await raw["docs"].insert_one(RawBSONDocument(written))
    await inserted(store, "docs", {"_id": "good", "status": "pending"})
    scanned = sweeping(store).candidates.scan(
        DOCS, View.UNMOVED, CLOCK.now(), newest_first=True, page=1
    )
    assert [each["_id"] async for page in scanned for each in page] == ["good"]
    assert "docs: the document with the _id '\ufffd\ufffd text' is left alone" in caplog.text


async def test_lists_where_no_index_can_be_made_keep_nobody_from_a_sweep(
    site: Site, store: MongoStore, caplog: pytest.LogCaptureFixture
) -> None:
    await site.database["docs"].insert_many(
        [{"_id": "lists", "status": ["a"], "lastAttemptTime": [1, 2]}, {"_id": "good"}]
    )
    candidates, now = sweeping(store).candidates, CLOCK.now()
    await candidates.prepare([DOCS])
    assert "docs: a document has lists where times or words belong" in caplog.text
    scanned = candidates.scan(DOCS, View.UNMOVED, now, newest_first=True, page=5)
    assert [each["_id"] async for page in scanned for each in page] == ["good"]


async def test_what_is_beside_a_change_keeps_its_type(site: Site, store: MongoStore) -> None:
    meta = {"received": DATE, "owner": ObjectId(HEX), "raw": b"\x00\xff", "nan": nan, "n": 1}
    chunks = [ObjectId(HEX), {"at": DATE, "n": 1}, "text", Decimal128("1.10"), DATE]
    await site.database["docs"].insert_one({"_id": "1", "meta": meta, "chunks": chunks})
    document = (await store.documents.fetch("docs", ["1"]))["1"]
    first, second, _, price, _ = document["chunks"]
    changed = [first, {**second, "n": 2}, price, "new", HEX[::-1], None]
    changes = {"meta": {**document["meta"], "n": 2, "seen": True}, "chunks": changed}
    (finish,) = await store.commit([doing("a", Update("docs", "1", changes))])
    assert finish.outcome is Outcome.COMMITTED
    found = await site.raw("docs", "1")
    assert repr((found["meta"].pop("nan"), meta.pop("nan"))) == "(nan, nan)"
    assert found["meta"] == {**meta, "n": 2, "seen": True}
    assert found["chunks"] == [
        ObjectId(HEX), {"at": DATE, "n": 2}, Decimal128("1.10"), "new", HEX[::-1], None,
    ]  # fmt: skip


async def test_what_is_moved_is_moved_byte_for_byte(site: Site, store: MongoStore) -> None:
    written = encode({"_id": "1", **FOREIGN, "text": "no text"}).replace(
        b"no text", b"\xff\xfe text"
    )
    raw = site.database.with_options(codec_options=CodecOptions(RawBSONDocument))
    await raw["docs"].insert_one(RawBSONDocument(written))
    documents = list((await store.documents.fetch("docs", ["1"])).values())
    assert documents[0]["text"] == "\ufffd\ufffd text"
    assert await sweeping(store).desk.move("docs", documents, "archive") == {"1"}
    found = await raw["archive"].find_one()
    assert found is not None
    assert found.raw == written
