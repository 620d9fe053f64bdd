"""Commits are on disk when they are acknowledged, whatever the defaults of the server are."""

import itertools
from typing import Any

import pytest

from headway.testing.conformance.examples import kinds, opened, publish, take, unit
from headway.testing.ports import Increment, Outcome
from headway.testing.servers import PostgreSQL
from tests.engines.pairs.postgres_harness import PostgresHarness, connected, made_ready

pytestmark = pytest.mark.server("postgresql")

_WITNESS = """
create table seen (n serial, setting text);
create function witness() returns trigger language plpgsql security definer as $$
begin
    insert into seen (setting) values (current_setting('synchronous_commit')); return null;
end $$;
create constraint trigger witness after insert on headway_done
deferrable initially deferred for each row execute function witness();
"""
_NUMBERS = itertools.count(1)
STRONG = {"off": "on", "local": "on"}
"""The others stay as they are."""


async def weakens(connection: Any) -> None:
    await connection.execute("set local synchronous_commit = off")


async def in_effect_at_commit(url: str, admin: str) -> list[str]:
    """Commit a group, a unit alone, and one whose callback weakens it; say what was in effect."""
    harness = PostgresHarness(url)
    engine = await opened(harness)
    await publish(engine, *"abcd")
    now, count = harness.clock.now(), (Increment("docs", "1", "n"),)
    units = [unit(each, now, writes=count) for each in await take(harness, engine, 4)]
    bodies = [unit(units[3].delivery, now, writes=count, bodies=(weakens,))]
    for some in (units[:2], units[2:3], bodies):
        assert set(kinds(await engine.finisher.finish(some))) == {Outcome.COMMITTED}
    await harness.close()
    async with connected(admin) as connection:
        return [row[0] for row in await connection.fetch("select setting from seen order by n")]


async def prepared(admin: str) -> str:
    """Make the tables, the witness, and a role that may use them and make none; give its name."""
    await made_ready(admin)
    role = f"durable_{next(_NUMBERS)}"
    async with connected(admin) as connection:
        await connection.execute(_WITNESS)
        await connection.execute(f"create role {role} login")
        await connection.execute(
            f"grant select, insert, update, delete on all tables in schema public to {role}"
        )
    return role


@pytest.mark.parametrize(
    ("where", "setting"),
    [
        ("role", "off"),
        ("database", "local"),
        ("role", "remote_apply"),
    ],
)
async def test_weak_defaults_are_raised_and_strong_ones_stay(
    postgres_server: PostgreSQL, postgres_database: str, where: str, setting: str
) -> None:
    role, database = await prepared(postgres_database), postgres_database.rpartition("/")[2]
    named = role if where == "role" else database
    async with connected(postgres_database) as connection:
        await connection.execute(f"alter {where} {named} set synchronous_commit = {setting}")
    url = f"postgresql://{role}@127.0.0.1:{postgres_server.port}/{database}"
    async with connected(url) as connection:
        assert await connection.fetchval("show synchronous_commit") == setting
    seen = await in_effect_at_commit(url, postgres_database)
    strong = STRONG.get(setting, setting)
    # The last one is that of the callback, which had set `off` itself.
    assert seen == [strong, strong, strong, "on"]


async def test_a_weak_default_of_the_server_is_raised() -> None:
    with PostgreSQL(options={"synchronous_commit": "off"}) as server:
        url = server.create_database()
        await prepared(url)
        assert set(await in_effect_at_commit(url, url)) == {"on"}
