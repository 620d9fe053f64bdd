"""Work on MongoDB grows with what is to be done, and not with what is stored.

Each test does the same at two sizes, a hundred times apart, and compares the keys and documents
that the server examined, as its profiler tells.
"""

from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import pytest

from headway.testing.conformance.examples import MAILS, ORDERS
from headway.testing.engines import State, with_store
from headway.testing.ports import Engine
from tests.engines.leases_in_doubt import LAPSED, RUNNING, leases_lapse, sweep_in_doubt
from tests.engines.mongodb.site import CLOCK, Site
from tests.engines.observers.scraping import scraped
from tests.engines.pairs.harnesses import bus_parts

pytestmark = pytest.mark.server("mongodb")

SMALL, LARGE = 100, 10_000
T = TypeVar("T")


@pytest.fixture
async def site(mongodb_database: str) -> AsyncIterator[Site]:
    site = Site(mongodb_database)
    yield site
    await site.close()


async def opened(site: Site) -> Engine:
    engine = with_store(bus_parts(State(), CLOCK), site.store())
    await engine.open([ORDERS, MAILS])
    return engine


async def profiled(site: Site, work: Awaitable[T]) -> tuple[int, int, T]:
    """Do some work; give what the server examined for it, and how many documents it returned."""
    await site.database["system.profile"].drop()
    await site.database.command({"profile": 2})
    answer = await work
    await site.database.command({"profile": 0})
    entries = await site.database["system.profile"].find().to_list()
    counts = [entry.get(kind, 0) for entry in entries for kind in ("keysExamined", "docsExamined")]
    return sum(counts), sum(entry.get("nreturned", 0) for entry in entries), answer


async def test_a_scrape_does_not_ask_the_store_what_is_done(site: Site) -> None:
    costs = []
    for many in (SMALL, LARGE):
        engine = await opened(site)
        done = site.database["headway_done"]
        await engine.places.balance()
        await done.delete_many({})
        await done.insert_many(
            [
                {"_id": f"{n}", "operation": f"{n}", "queue": "q", "ended": "done", "at": None}
                for n in range(many)
            ]
        )
        cost, _, _ = await profiled(site, scraped(engine))
        costs.append(cost)
        assert (await engine.places.balance()).done == many
    assert costs[1] <= 2 * max(costs[0], 1)


async def test_a_sweep_that_doubts_leases_reads_leased_documents_alone(site: Site) -> None:
    costs = []
    for many in (SMALL, LARGE):
        engine = await opened(site)
        await site.database["messages"].delete_many({})
        await leases_lapse(engine, CLOCK)
        moved = {"status": "pending", "attemptCount": 1, "lastAttemptTime": CLOCK.now()}
        await site.database["messages"].insert_many([{"_id": f"{n}", **moved} for n in range(many)])
        await sweep_in_doubt(engine, CLOCK)  # makes the indexes
        cost, _, doubted = await profiled(site, sweep_in_doubt(engine, CLOCK))
        assert (doubted.over, doubted.leased) == (LAPSED, RUNNING)
        costs.append(cost)
    assert costs[1] <= 2 * costs[0]


@pytest.mark.parametrize(
    ("where", "matching"),
    [
        ({"number": 7}, 1),
        ({"number": 7.0}, 1),
        ({"third": True}, 34),
        ({"odd.name": 7}, 1),
        ({"odd.name": None, "third": True}, 33),
    ],
)
async def test_documents_are_filtered_by_the_server(
    site: Site, where: dict[str, Any], matching: int
) -> None:
    """Every document of the collection is examined, and those that match are given."""
    engine = await opened(site)
    await site.database["messages"].insert_many(
        [{"_id": f"{n}", "number": n, "third": n % 3 == 0} for n in range(SMALL)]
    )
    await site.database["messages"].update_one(
        {"_id": "0"},
        [{"$replaceWith": {"$setField": {"field": "odd.name", "input": "$$ROOT", "value": 7}}}],
    )
    found = engine.documents.find("messages", where, 1_000)
    _, given, documents = await profiled(site, found)
    assert (len(documents), given) == (matching, matching)
