"""Documents of PostgreSQL that are nested too deeply: shown, left alone, removed by a person."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from headway.errors import UnreadableDocumentError
from headway.testing.conformance.examples import opened, wrote
from headway.testing.conformance.stuck import RULE, sweeping
from headway.testing.ports import UNREADABLE, Beginning, How, InsertNew, Outcome, State, Update
from tests.engines.pairs.postgres_harness import PostgresHarness, connected

pytestmark = pytest.mark.server("postgresql")
DEEP = '{"x": ' + "[" * 3_000 + "]" * 3_000 + ', "status": "failed"}'


@pytest.fixture
async def harness(postgres_database: str) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(postgres_database)
    yield harness
    await harness.close()


async def test_what_is_nested_too_deeply_is_shown_and_removed(harness: PostgresHarness) -> None:
    engine = await opened(harness)
    desk = sweeping(engine).desk
    await wrote(harness, engine, InsertNew("docs", {"_id": "done", "status": "processed"}))
    async with connected(harness.url) as connection:
        for one, body in (("deep", DEEP), ("changed", DEEP), ("foreign", '{"status": "ours"}')):
            await connection.execute(
                "insert into headway_documents values ('docs', $1, $2::text::jsonb)", one, body
            )
    pages = desk.browse(RULE.lifecycle, [State.FOREIGN], page=2)
    found = [each async for page in pages for each in page]
    assert [each["_id"] for each in found] == ["changed", "deep", "foreign"]
    flagged = replace(RULE.lifecycle, flag="done")
    pages = desk.browse(flagged, [State.FOREIGN], page=2)
    assert [each["_id"] async for page in pages for each in page] == ["changed", "deep"]
    fetched = await engine.documents.fetch("docs", ["deep", "changed", "foreign"])
    assert sorted(fetched.values(), key=lambda each: str(each["_id"])) == found
    assert fetched["deep"][UNREADABLE] == DEEP
    assert [each["_id"] for each in await engine.documents.find("docs", {}, 9)] == [
        "done",
        "foreign",
    ]

    beginning = Beginning(
        lifecycle=RULE.lifecycle, ids=("deep",), operation="op", now=harness.clock.now()
    )
    (begun,) = await engine.documents.begin([beginning])
    assert begun["deep"].how is How.FOREIGN
    finish = await wrote(harness, engine, Update("docs", "deep", {"n": 1}))
    assert finish.outcome is Outcome.REFUSED
    assert isinstance(finish.error, UnreadableDocumentError)

    async with connected(harness.url) as connection:
        await connection.execute("update headway_documents set body = '{}' where id = 'changed'")
    assert await desk.remove("docs", found) == {"deep", "foreign"}
    assert set(await engine.documents.fetch("docs", ["deep", "changed", "foreign"])) == {"changed"}
