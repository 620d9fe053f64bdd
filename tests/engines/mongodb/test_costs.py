"""What MongoDB examines, as its profiler tells."""

from collections.abc import Awaitable

import pytest

from headway import ConfigurationError, Lifecycle
from headway.testing.conformance.examples import MAILS, ORDERS
from headway.testing.conformance.stuck import RULE, scanned
from headway.testing.engines import MongoStore, State, with_store
from headway.testing.ports import Engine, SweepRule, View
from tests.engines import store_costs
from tests.engines.mongodb.site import CLOCK, Site, sweeping
from tests.engines.pairs.harnesses import bus_parts

pytestmark = pytest.mark.server("mongodb")


class Profiled(store_costs.Site):
    """Lets the server profile what is asked of it."""

    clock = CLOCK

    def __init__(self, site: Site) -> None:
        self._site = site
        self._database = site.database

    async def opened(self) -> Engine:
        for name in await self._database.list_collection_names():
            if not name.startswith("system."):
                await self._database.drop_collection(name)
        engine = with_store(bus_parts(State(), CLOCK), self._site.store())
        await engine.open([ORDERS, MAILS])
        return engine

    async def fill_done(self, many: int) -> None:
        done = {"queue": "q", "ended": "done", "at": None}
        rows = [{"_id": f"{n}", "operation": f"{n}", **done} for n in range(many)]
        await self._database["headway_done"].insert_many(rows)

    async def fill_moved(self, many: int) -> None:
        kinds = (
            {"status": "processed", "embedded": True},
            {"status": "pending", "embedded": False},
        )
        moved = {"attemptCount": 1, "lastAttemptTime": CLOCK.now()}
        await self._database["messages"].insert_many(
            [
                {"_id": f"moved {n}", "number": n, **moved, **kinds[n % 2]}
                for n in range(1, many + 1)
            ]
        )

    async def examined(self, work: Awaitable[store_costs.T]) -> tuple[int, int, store_costs.T]:
        await self._database["system.profile"].drop()
        await self._database.command({"profile": 2})
        answer = await work
        await self._database.command({"profile": 0})
        entries = await self._database["system.profile"].find().to_list()
        kinds = ("keysExamined", "docsExamined")
        counts = [entry.get(kind, 0) for entry in entries for kind in kinds]
        return sum(counts), sum(entry.get("nreturned", 0) for entry in entries), answer


class TestCosts(store_costs.StoreCosts):
    @pytest.fixture
    def site(self, site: Site) -> Profiled:
        return Profiled(site)


async def test_a_field_whose_name_has_a_dot_is_filtered_by_its_name(
    site: Site, store: MongoStore
) -> None:
    await site.database["messages"].insert_many([{"_id": f"{n}"} for n in range(3)])
    named = {"$setField": {"field": "odd.name", "input": "$$ROOT", "value": 7}}
    await site.database["messages"].update_one({"_id": "0"}, [{"$replaceWith": named}])
    for value, ids in ((7, ["0"]), (None, ["1", "2"])):
        found = await store.documents.find("messages", {"odd.name": value}, 10)
        assert [each["_id"] for each in found] == ids


@pytest.mark.parametrize("ready", ["theirs", "none"])
async def test_a_view_is_read_with_indexes_of_others_and_with_none(site: Site, ready: str) -> None:
    docs, now = site.database["docs"], CLOCK.now()
    candidates = sweeping(site.store()).candidates
    if ready == "theirs":
        await docs.create_index([("status", 1), ("lastAttemptTime", 1), ("_id", 1)], name="theirs")
        await docs.create_index("leaseUntil", name="leases of theirs")
        await candidates.prepare([RULE])
        await candidates.prepare([RULE])
    await docs.insert_one({"_id": "1", "status": "failed"})
    for view in View:
        assert len(await scanned(candidates, view, now)) == (view is View.FAILED)
    assert (await candidates.tally(RULE, now)).stuck == 1


@pytest.mark.parametrize("flag", ["a.b", "$a"])
async def test_a_flag_that_no_index_can_find_is_refused(store: MongoStore, flag: str) -> None:
    rule = SweepRule(lifecycle=Lifecycle("docs", flag=flag))
    with pytest.raises(ConfigurationError, match="flag="):
        await sweeping(store).candidates.prepare([rule])
