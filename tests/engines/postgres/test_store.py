"""PostgreSQL as a store: what comes back is what went in, and a server that will not do says so."""

import asyncio
import itertools
import random
import socket
import time
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from typing import Any

import msgspec
import pytest

from headway import ConfigurationError, Lifecycle
from headway.errors import UnstorableError
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.clock import VirtualClock
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    failing,
    kinds,
    message,
    opened,
    sent_again,
    take,
    unit,
    wrote,
)
from headway.testing.engines import postgres_store
from headway.testing.ports import (
    Add,
    Beginning,
    Ended,
    Increment,
    InsertNew,
    Outcome,
    Travel,
    Update,
    instant,
    moment,
)
from headway.testing.servers import PostgreSQL
from tests.engines.pairs.postgres_harness import PostgresHarness, connected

pytestmark = pytest.mark.server("postgresql")

NUMBERS = (
    2**63, 2**64, -(2**70), 10**300, 1e308, -1e16, 1.5e300, 123456789012345680.0, 0.1, -0.0, 5e-324,
    1e-7, 1.0, 100.0, 0, True,
)  # fmt: skip
TEXTS = ("1e5", "5e3 \\u0000 \\", '"9e9"', "\x01\x1f", "käse ✓ 😀", "\\", "", "null")


# Values


async def test_numbers_and_texts_come_back_as_they_went_in(harness: PostgresHarness) -> None:
    engine = await opened(harness)
    document = {
        "_id": "1",
        **{f"number {n}": value for n, value in enumerate(NUMBERS)},
        **{f"text {value}": [value, {value: 1e20}] for value in TEXTS},
    }
    await wrote(harness, engine, InsertNew("docs", document))
    found = (await engine.documents.fetch("docs", ["1"]))["1"]
    assert found == document
    for n, value in enumerate(NUMBERS):
        assert type(found[f"number {n}"]) is type(value)


async def test_a_change_leaves_the_digits_of_others_alone(harness: PostgresHarness) -> None:
    engine = await opened(harness)
    await wrote(harness, engine, InsertNew("docs", {"_id": "1"}))
    exact = "0.12345678901234567890123456789"
    async with connected(harness.url) as connection:
        body = f'{{"exact": {exact}, "huge": 1{"0" * 5000}, "n": 1}}'
        await connection.execute(
            "insert into headway_documents values ('docs', '2', $1::text::jsonb)", body
        )
        await wrote(harness, engine, Increment("docs", "2", "n"), Update("docs", "2", {"x": 1}))
        beginning = Beginning(
            lifecycle=Lifecycle("docs"), ids=("2",), operation="a", now=harness.clock.now()
        )
        await engine.documents.begin([beginning])
        left = await connection.fetchrow(
            "select body ->> 'exact', length(body ->> 'huge'), body ->> 'n' from headway_documents "
            "where id = '2'"
        )
    assert tuple(left) == (exact, 5001, "2")
    assert (await engine.documents.fetch("docs", ["2"]))["2"]["_id"] == "2"


CLOSED = """
create function closed() returns trigger language plpgsql as $$
begin raise exception 'closed for the year'; end $$;
create trigger closed before update on headway_documents
for each row when (old.id = 'b') execute function closed()
"""


async def test_what_a_trigger_refuses_is_refused_alone_and_for_good(
    harness: PostgresHarness,
) -> None:
    engine = await opened(harness)
    await wrote(harness, engine, *(InsertNew("docs", {"_id": one}) for one in "abc"))
    await engine.bus.publish([message(name) for name in "abc"])
    now = harness.clock.now()
    units = [
        unit(each, now, writes=(Update("docs", each.travel.operation, {"n": 1}),))
        for each in await take(harness, engine, 3)
    ]
    beginnings = [
        Beginning(lifecycle=Lifecycle("docs"), ids=(one,), operation=one, now=now) for one in "ab"
    ]
    async with connected(harness.url) as connection:
        await connection.execute(CLOSED)
        try:
            with pytest.raises(UnstorableError, match="closed for the year") as no:
                await engine.documents.begin(beginnings)
            finishes = await engine.finisher.finish(units)
        finally:
            await connection.execute("drop function closed() cascade")
    assert DEFAULT_CLASSIFIER.classify(no.value).verdict is Verdict.PERMANENT
    assert kinds(finishes) == [Outcome.COMMITTED, Outcome.REFUSED, Outcome.COMMITTED]
    assert "closed for the year" in str(finishes[1].error)


@pytest.mark.parametrize(
    ("write", "field"),
    [
        (InsertNew("docs", {"_id": "x", "a": [1, {"b": "x\0", "c\0": 1}]}), "a[1].b"),
        (InsertNew("docs", {"_id": "x", "a\0b": 1}), None),
        (InsertNew("docs", {"_id": "a\0b"}), None),
        (Increment("docs", "a\0b", "n"), None),
        (Increment("docs", "counter", "a\0b"), None),
        (Add("docs", {"_id": "é" * 1_100}), None),
    ],
)
async def test_what_postgresql_does_not_keep_is_refused_alone(
    harness: PostgresHarness, write: Any, field: str | None
) -> None:
    engine = await opened(harness)
    await engine.bus.publish([message(name) for name in "abc"])
    count = Increment("docs", "counter", "n")
    units = [
        unit(delivery, harness.clock.now(), writes=(count, write) if n == 1 else (count,))
        for n, delivery in enumerate(await take(harness, engine, 3))
    ]
    finishes = await engine.finisher.finish(units)
    assert kinds(finishes) == [Outcome.COMMITTED, Outcome.REFUSED, Outcome.COMMITTED]
    error = finishes[1].error
    assert isinstance(error, ValueError)
    assert DEFAULT_CLASSIFIER.classify(error).verdict is Verdict.PERMANENT
    if field is not None:
        assert isinstance(error, UnstorableError)
        assert error.field == field
    found = await engine.documents.find("docs", {}, 10)
    assert [(each["_id"], each["n"]) for each in found] == [("counter", 2)]
    assert not await engine.documents.fetch("docs", ["a\0b"])
    assert not await engine.documents.find("docs", {"n": "a\0b"}, 10)


async def test_a_record_is_kept_whatever_its_names_hold(harness: PostgresHarness) -> None:
    engine = await opened(harness)
    names = ["a\0b", "a\x01b", "a\x010b", "x" * 5_000, "x" * 4_999 + "y"]
    await engine.bus.publish([message(name) for name in names])
    taken = await take(harness, engine, len(names))
    units = [
        unit(each, harness.clock.now(), key=f"key {each.travel.operation}", letter=None)
        for each in taken
    ]
    assert kinds(await engine.finisher.finish(units)) == [Outcome.COMMITTED] * len(names)
    assert kinds(await engine.finisher.finish(units)) == [Outcome.DUPLICATE] * len(names)
    keys = [f"key {name}" for name in names]
    found = await engine.records.find(keys)
    assert {key: record.operation for key, record in found.items()} == dict(
        zip(keys, names, strict=True)
    )
    assert all(record.key == key for key, record in found.items())
    assert set(await engine.places.where(names)) == set(names)
    again = [Travel(operation=name, generation="again") for name in names]
    await engine.bus.publish([message("", travel=travel) for travel in again])
    units = [
        unit(each, harness.clock.now(), key=f"again {each.travel.operation}")
        for each in await take(harness, engine, len(names))
    ]
    assert kinds(await engine.finisher.finish(units)) == [Outcome.COMMITTED] * len(names)
    assert (await engine.places.balance()).done == len(names)


@pytest.mark.parametrize("together", [True, False])
async def test_what_was_sent_again_corrects_the_record_of_its_failure_when_it_ends(
    harness: PostgresHarness, *, together: bool
) -> None:
    engine = await opened(harness)
    now = harness.clock.now()
    await engine.bus.publish([message(name) for name in "abc"])
    failures = [failing(each, now) for each in await take(harness, engine, 3)]
    await engine.finisher.finish(failures)
    for failure, queue in zip(failures, (ORDERS.name, MAILS.name, ORDERS.name), strict=True):
        assert failure.letter is not None  # as by a process that died before it recorded this
        again = msgspec.structs.replace(sent_again(failure.letter), queue=queue)
        await engine.bus.publish([again])
    taken = [*await take(harness, engine, 2), *await take(harness, engine, 1, MAILS.name)]
    lost = Update("docs", "gone", {"n": 1})
    units = [
        unit(each, now, writes=(lost,) if each.travel.operation == "c" else ()) for each in taken
    ]
    for some in (units,) if together else ([each] for each in units):
        await engine.finisher.finish(some)
    found = await engine.records.find([str(each.record.key) for each in failures if each.record])
    assert {record.operation: record.ended for record in found.values()} == {
        "a": Ended.REQUEUED, "b": Ended.MOVED, "c": Ended.FAILED
    }  # fmt: skip


# Times

PARTS = (
    ("0000", "0001", "1999", "2024", "9999", "20"),
    ("-01-01", "-02-29", "-02-30", "-12-31", "-13-01", "-1-1"),
    ("T", " ", "x"),
    ("00:00", "23:59", "24:00", "12:60", "12"),
    ("", ":59", ":60", ":5", ":30.123456", ":30.1234567", ":30,5"),
    ("", "Z", "-05:30", "+0930", "+14", "-24:00", "+05:30:15"),
)
ODD = ("now", "", "2020-01-01", "20200101T000000Z", "2020-W01-1", "\u0662\u0660\u0662\u0660", "\n")


async def test_times_are_read_as_everywhere_or_not_at_all(harness: PostgresHarness) -> None:
    await harness.store().open()
    every = ["".join(parts) for parts in itertools.islice(itertools.product(*PARTS), 0, None, 5)]
    draw = random.Random(1)
    seconds = [draw.uniform(-6e10, 2.5e11) for _ in range(500)]
    usual = [instant(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=s)) for s in seconds]
    usual += [text.removesuffix("Z") for text in usual]
    async with connected(harness.url) as connection:
        await connection.execute("set timezone = 'Asia/Kolkata'; set datestyle = 'German, DMY'")
        rows = await connection.fetch(
            "select text, headway_instant(text) from unnest($1::text[]) as t (text)",
            [*ODD, *every, *usual],
        )
    found = dict(rows)
    for text, at in found.items():
        assert at is None or at == moment(text), text
    assert all(found[text] is not None for text in usual)
    assert sum(found[text] is not None for text in every) > 50


# Opening


async def test_many_may_open_an_empty_database_at_once(postgres_database: str) -> None:
    stores = [postgres_store(postgres_database, VirtualClock()) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.open() for store in stores))
    assert [await store.ends.count() for store in stores] == [(0, 0)] * 8
    for store in stores:
        await store.close()
        await store.close()


async def refused(url: str) -> str:
    store = postgres_store(url, VirtualClock())
    with pytest.raises(ConfigurationError) as refusal:
        await store.open()
    with pytest.raises(ConfigurationError):
        await store.documents.fetch("docs", ["1"])
    await store.close()
    assert "HEADWAY_STORE" in str(refusal.value)
    assert "s3cret" not in str(refusal.value)
    return str(refusal.value)


async def test_a_server_that_will_not_do_says_why(
    postgres_server: PostgreSQL, postgres_database: str
) -> None:
    hba = postgres_server.folder.path / "data" / "pg_hba.conf"
    if "locked" not in hba.read_text():
        hba.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{hba.read_text()}")
    async with connected(postgres_database) as connection:
        await connection.execute("select pg_reload_conf()")
        for role in ("locked", "poor"):
            await connection.execute(f"drop role if exists {role}")
            await connection.execute(f"create role {role} login password 'right'")
        await connection.execute("revoke create on schema public from public")
    server = f"127.0.0.1:{postgres_server.port}"
    database = postgres_database.rpartition("/")[2]
    for who, rest, why in (
        ("locked", database, "password authentication failed"),
        ("postgres", "nowhere", "createdb"),
        ("poor", database, "CREATE"),
        ("postgres", f"{database}?sslmode=nonsense", "sslmode"),
        ("postgres", f"{database}?conect_timeout=5", "conect_timeout"),
    ):
        assert why in await refused(f"postgresql://{who}:s3cret@{server}/{rest}")
    with pytest.raises(ConfigurationError, match="statement_cache_size=7"):
        postgres_store(f"postgresql://{server}/{database}?statement_cache_size=7", VirtualClock())


async def test_a_newer_version_upgrades_the_tables_beside_a_store_that_runs(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = postgres_store(postgres_database, VirtualClock())
    await before.open()
    await before.sweeping.totals.add("a", {"b": 1})
    steps = "headway.adapters.postgres.schema.STEPS"
    added = ["alter table headway_totals add column y text", "create table headway_next (x int)"]
    monkeypatch.setattr(steps, (*resolve_name(steps), added))
    stores = [postgres_store(postgres_database, VirtualClock()) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    monkeypatch.undo()
    for number, store in enumerate((before, *stores), 2):
        assert dict(await store.sweeping.totals.add("a", {"b": 1})) == {"b": number}
        await store.close()
    async with connected(postgres_database) as connection:
        assert await connection.fetchval("select version from headway_version") == 2
        assert await connection.fetchval("select count(*) from headway_next") == 0


async def test_a_newer_version_a_standby_and_read_only_databases_are_refused(
    postgres_database: str,
) -> None:
    store = postgres_store(postgres_database, VirtualClock())
    await store.open()
    await store.close()
    async with connected(postgres_database) as connection:
        await connection.execute("update headway_version set version = 99")
        assert "99" in await refused(postgres_database)
        name = postgres_database.rpartition("/")[2]
        await connection.execute(f"alter database {name} set default_transaction_read_only = on")
    assert "default_transaction_read_only" in await refused(postgres_database)


def test_a_standby_is_refused() -> None:
    with PostgreSQL() as server:
        url = server.create_database()
        server.stop()
        (server.folder.path / "data" / "standby.signal").touch()
        server.start()
        assert "is a standby" in asyncio.run(refused(url))


async def test_a_server_that_is_away_is_waited_for() -> None:
    url = "postgresql://me:s3cret@127.0.0.1:1/db"
    store = postgres_store(url, VirtualClock())
    for _ in range(2):
        with pytest.raises(ConnectionError, match=r"postgresql://me:\*\*\*@127") as error:
            await store.open()
        assert "HEADWAY_STORE" in str(error.value)
        assert error.value.__cause__ is not None
    await store.close()


async def test_a_server_that_is_silent_is_asked_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.adapters.postgres.link._CONNECT_SECONDS", 0.6)
    took = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql://me:s3cret@127.0.0.1:{port}/db?sslmode=disable"
        store = postgres_store(url, VirtualClock())
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(ConnectionError, match=r"me:\*\*\*@.* 0\.6 s"):
                await store.open()
            took.append(time.monotonic() - began)
        await store.close()
    assert took[0] >= 0.6 > 2 * took[1]
