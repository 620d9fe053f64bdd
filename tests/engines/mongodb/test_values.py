"""What other clients wrote is shown as JSON, and is never rewritten."""

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
from headway.errors import ConditionLostError
from headway.testing.conformance.stuck import RULE as DOCS
from headway.testing.conformance.stuck import claim_of, requeue_of, scanned, seen
from headway.testing.engines import MongoStore
from headway.testing.ports import (
    Beginning,
    How,
    Increment,
    InsertNew,
    Outcome,
    Update,
    View,
    instant,
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


async def test_values_are_shown_as_json(site: Site, store: MongoStore) -> None:
    await site.database["docs"].insert_one({"_id": "1", **FOREIGN})
    shown = (await store.documents.fetch("docs", ["1"]))["1"]
    assert {field: shown[field] for field in SHOWN} == SHOWN
    assert all(isinstance(shown[field], str) for field in ("code", "regex", "highest"))
    assert type(shown["long"]) is int


async def test_only_times_as_we_write_them_are_kept_as_dates(site: Site, store: MongoStore) -> None:
    times: dict[str, Any] = {
        "2024-02-29T12:30:00.123456Z": DATE,
        "2024-02-29T12:30:00Z": DATE.replace(microsecond=0),
        **{
            text: text
            for text in ("2024-02-29T12:30:00.123Z", "2024-02-29T12:30:00", "2024-02-30T12:30:00Z")
        },
        **{text: text for text in ("2024-02-29T13:30:00+01:00", "2024-02-29", "some day", "")},
    }
    for n, (text, stored) in enumerate(times.items()):
        inner = {"retryAt": text, "own": text}
        document = {"_id": f"{n}", "lastAttemptTime": text, "own": text, "claimBefore": inner}
        await inserted(store, "docs", document)
        found = await site.raw("docs", f"{n}")
        assert (found["lastAttemptTime"], found["own"]) == (stored, text)
        assert found["claimBefore"] == {"retryAt": stored, "own": text}


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


async def test_documents_are_found_by_what_is_shown(site: Site, store: MongoStore) -> None:
    for field in ("date", "oid", "decimal", "long", "bytes", "uuid", "nested", "nan"):
        await site.database[field].insert_many(
            [{"_id": "1", field: FOREIGN[field]}, {"_id": "2", field: "other"}]
        )
        found = await store.documents.find(field, {field: SHOWN[field]}, 10)
        assert [each["_id"] for each in found] == ["1"], field


@pytest.mark.parametrize(
    ("raw", "one"),
    [
        (ObjectId(HEX), HEX),
        (-3, "-3"),
        (Binary.from_uuid(OWN_ID), str(OWN_ID)),
        (Int64(1_780_000_000_000_000_001), "1780000000000000001"),
        (2.0, "2"),
        (1.5, '{"$numberDouble":"1.5"}'),
        (nan, '{"$numberDouble":"NaN"}'),
        (True, "true"),
        (None, "null"),
        (Decimal128("7.50"), '{"$numberDecimal":"7.50"}'),
        (b"abc", '{"$binary":{"base64":"YWJj","subType":"00"}}'),
        (DATE, '{"$date":{"$numberLong":"1709209800123"}}'),
        (
            {"year": 2024, "of": {"who": ObjectId(HEX)}},
            f'{{"year":{{"$numberInt":"2024"}},"of":{{"who":{{"$oid":"{HEX}"}}}}}}',
        ),
        (Timestamp(1, 2), '{"$timestamp":{"t":1,"i":2}}'),
        ("a\0b", "a\0b"),
        ('{"a":1}', '{"a":1}'),
    ],
    ids=repr,
)
async def test_documents_are_reached_by_the_text_of_any_id(
    site: Site, store: MongoStore, raw: Any, one: str
) -> None:
    old = CLOCK.now() - timedelta(days=3)
    await site.database["docs"].insert_one(
        {"_id": raw, "status": "pending", "lastAttemptTime": old}
    )
    await inserted(store, "docs", {"_id": "another", "status": "processed"})
    assert (await store.documents.fetch("docs", [one, "gone"]))[one]["_id"] == one
    assert [each["_id"] for each in await store.documents.find("docs", {"_id": one}, 5)] == [one]
    candidates, now = sweeping(store).candidates, CLOCK.now()
    await candidates.prepare([DOCS])
    (document,) = await scanned(candidates, View.UNMOVED, now)
    requeue = requeue_of(document, now)
    claims = [claim_of(document, now)]
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


@pytest.mark.parametrize(
    ("raw", "text", "exact"),
    [(7, "7", '{"$numberInt":"7"}'), (ObjectId(HEX), HEX, f'{{"$oid":"{HEX}"}}')],
)
async def test_of_two_that_look_the_same_each_has_its_own_name(
    site: Site, store: MongoStore, raw: Any, text: str, exact: str
) -> None:
    await site.database["docs"].insert_many(
        [{"_id": raw, "status": "pending"}, {"_id": text, "status": "pending"}]
    )
    assert {each["_id"] for each in await store.documents.find("docs", {}, 5)} == {text, exact}
    (finish,) = await store.commit([doing("inserts", InsertNew("docs", {"_id": text}))])
    assert finish.skipped == 1
    candidates, now, lease = sweeping(store).candidates, CLOCK.now(), timedelta(minutes=1)
    found = {each["_id"]: each for each in await scanned(candidates, View.UNMOVED, now)}
    assert found.keys() == {text, exact}
    for one in (text, exact):
        claims = [claim_of(found[one], now)]
        assert await candidates.claim(DOCS, claims, "t", now, lease) == {one}
        claimed = [each for each in (raw, text) if "claimToken" in await site.raw("docs", each)]
        assert claimed == ([text] if one == text else [raw, text])
    await candidates.published(DOCS, [text], "t")
    assert "claimToken" in await site.raw("docs", raw)
    await candidates.give_back(DOCS, [exact], "t")
    assert "claimToken" not in await site.raw("docs", raw)
    (finish,) = await store.commit([doing("a", Update("docs", exact, {"n": 1}))])
    assert finish.outcome is Outcome.COMMITTED
    assert (await site.raw("docs", raw))["n"] == 1
    assert "n" not in await site.raw("docs", text)


async def test_an_id_that_no_text_names_is_left_alone_and_told(
    site: Site, store: MongoStore, caplog: pytest.LogCaptureFixture
) -> None:
    written = encode({"_id": "no text", "status": "pending"}).replace(b"no text", b"\xff\xfe text")
    raw = site.database.with_options(codec_options=CodecOptions(RawBSONDocument))
    await raw["docs"].insert_one(RawBSONDocument(written))
    await inserted(store, "docs", {"_id": "good", "status": "pending"})
    assert await seen(sweeping(store).candidates, View.UNMOVED, CLOCK.now()) == ["good"]
    assert "'\ufffd\ufffd text'" in caplog.text


async def test_lists_where_no_index_can_be_made_hold_up_no_sweep(
    site: Site, store: MongoStore, caplog: pytest.LogCaptureFixture
) -> None:
    await site.database["docs"].insert_many(
        [{"_id": "lists", "status": ["a"], "lastAttemptTime": [1, 2]}, {"_id": "good"}]
    )
    candidates, now = sweeping(store).candidates, CLOCK.now()
    await candidates.prepare([DOCS])
    assert "docs" in caplog.text
    assert await seen(candidates, View.UNMOVED, now) == ["good"]


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
