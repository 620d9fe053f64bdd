"""What every store passes: its work grows with what is to be done, and not with what is stored.

Each test does the same at two sizes, a hundred times apart, and compares what the store examined:
that may differ by a factor of two at most.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from http import HTTPStatus
from typing import TypeVar

import pytest

from headway import Lifecycle
from headway.assembly.metrics_server import metrics_server
from headway.clock import Clock
from headway.testing.conformance.stuck import scanned, sweeping
from headway.testing.ports import Engine, SweepRule, View
from headway.testing.servers.loopback import HOST, http_request
from tests.engines.leases_in_doubt import LAPSED, RUNNING, leases_lapse, sweep_in_doubt

T = TypeVar("T")
SMALL, LARGE = 100, 10_000


async def scraped(engine: Engine, *, up: bool = True) -> str:
    """Give what /metrics of a worker says."""
    with metrics_server(engine, asyncio.get_running_loop(), host=HOST, port=0) as port:
        status, said = await asyncio.to_thread(http_request, "GET", port, "/metrics")
    assert status == HTTPStatus.OK
    assert f"headway_engine_up {float(up)}" in said.decode()
    return said.decode()


class Site(ABC):
    """A store that counts what it examines."""

    clock: Clock

    @abstractmethod
    async def opened(self) -> Engine:
        """Give an engine whose store is empty."""

    @abstractmethod
    async def fill_done(self, many: int) -> None:
        """Store records of events that are done, past Headway."""

    @abstractmethod
    async def fill_moved(self, many: int) -> None:
        """Store documents in `messages` that moved just now, as `moved 1` and so on.

        They have a `number`; every second one is processed and `embedded`.
        """

    @abstractmethod
    async def examined(self, work: Awaitable[T]) -> tuple[int, int, T]:
        """Do it; give what was examined for it, how many rows were given, and its answer."""


class StoreCosts:
    """Run these tests on a store: give them a fixture `site`."""

    async def test_a_scrape_does_not_ask_the_store_what_is_done(self, site: Site) -> None:
        costs = []
        for many in (SMALL, LARGE):
            engine = await site.opened()
            await site.fill_done(many)
            cost, _, _ = await site.examined(scraped(engine))
            costs.append(cost)
            assert (await engine.places.balance()).done == many
        assert costs[1] <= 2 * max(costs[0], 1)

    async def test_a_sweep_that_doubts_leases_reads_leased_documents_alone(
        self, site: Site
    ) -> None:
        costs = []
        for many in (SMALL, LARGE):
            engine = await site.opened()
            await site.fill_moved(many)
            await leases_lapse(engine, site.clock)
            await sweep_in_doubt(engine, site.clock)  # makes the indexes
            cost, _, doubted = await site.examined(sweep_in_doubt(engine, site.clock))
            assert (doubted.over, doubted.leased) == (LAPSED, RUNNING)
            costs.append(cost)
        assert 0 < costs[1] <= 2 * costs[0]

    @pytest.mark.parametrize("flag", [None, "embedded"])
    async def test_a_view_of_stuck_documents_costs_what_is_in_it(
        self, site: Site, flag: str | None
    ) -> None:
        rule = SweepRule(lifecycle=Lifecycle("messages", flag=flag), version="2")

        async def scan(engine: Engine) -> None:
            for view in View:
                for newest_first in (False, True):
                    await scanned(
                        sweeping(engine).candidates,
                        view,
                        site.clock.now(),
                        rule,
                        newest_first=newest_first,
                        page=20,
                    )

        costs = []
        for many in (SMALL, LARGE):
            engine = await site.opened()
            await sweeping(engine).candidates.prepare([rule])
            await leases_lapse(engine, site.clock)
            await site.fill_moved(many)
            cost, _, _ = await site.examined(scan(engine))
            costs.append(cost)
        assert 0 < costs[1] <= 2 * costs[0]

    async def test_documents_are_filtered_by_the_store(self, site: Site) -> None:
        """Every document of the collection is examined, and those that match are given."""
        engine = await site.opened()
        await site.fill_moved(SMALL)
        for where, matching in ({"number": 7.0}, 1), ({"embedded": True}, SMALL // 2):
            found = engine.documents.find("messages", where, 1_000)
            _, given, documents = await site.examined(found)
            assert len(documents) == matching
            assert matching <= given < matching + SMALL / 10
