"""Conflicts, lost answers, servers that die: nothing is lost, and nothing takes effect twice."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.errors import PyMongoError

from headway import Event, Lifecycle, Service, Work
from headway.adapters.mongodb import transactions
from headway.adapters.mongodb.candidates import MongoCandidates
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.chance import Seeded
from headway.testing.engines import MongoStore, Publisher, State, Worker, with_store
from headway.testing.facts import Recorder
from headway.testing.ports import (
    Add,
    Beginning,
    Claim,
    Document,
    Increment,
    Requeue,
    SweepRule,
    Unit,
    View,
    judge,
)
from headway.testing.proxy import Fault, Proxy
from headway.testing.servers import MongoDB
from tests.engines.mongodb.site import CLOCK, Site, doing, inserted, outcomes, sweeping
from tests.engines.pairs.harnesses import bus_parts
from tests.engines.waiting import until

pytestmark = pytest.mark.server("mongodb")
PAUSE = 0.02
LINES = itertools.count()


@pytest.fixture
async def site(mongodb_database: str) -> AsyncIterator[Site]:
    site = Site(mongodb_database)
    yield site
    await site.close()


@pytest.fixture
def proxy(mongodb_server: MongoDB) -> Iterator[Proxy]:
    with Proxy(*mongodb_server.address) as proxy:
        yield proxy


@pytest.fixture
def far(site: Site, proxy: Proxy) -> MongoStore:
    """A store at the other end of a wire that can be cut; it is soon told that nobody answers."""
    return site.store(f"{proxy.through(site.url)}&serverSelectionTimeoutMS=300")


def counted(operation: str, counter: str = "counter") -> Unit:
    """Make a unit whose effects are seen if they are there twice."""
    line = {"_id": f"{operation} {next(LINES)}"}
    return doing(operation, Increment("docs", counter, "n"), Add("log", line))


async def effects(site: Site) -> tuple[int, int, int]:
    counters = [each["n"] async for each in site.database["docs"].find()]
    return sum(counters), await site.count("log"), await site.count("headway_done")


# Faults that the server makes


@pytest.mark.parametrize("command", ["insert", "find", "update", "commitTransaction"])
@pytest.mark.parametrize("times", [1, 4])
async def test_a_transaction_that_the_server_gave_up_is_run_again(
    site: Site, command: str, times: int
) -> None:
    store = site.store()
    await store.commit([counted("before")])
    labels = {"errorCode": 251, "errorLabels": ["TransientTransactionError"]}
    async with site.failing(command, times=times, **labels):
        assert outcomes(await store.commit([counted("a"), counted("b")])) == ["committed"] * 2
    assert await effects(site) == (3, 3, 3)


async def test_a_transaction_whose_connection_breaks_is_run_again(site: Site) -> None:
    store = site.store()
    await store.commit([counted("before")])
    async with site.failing("insert", closeConnection=True):
        assert outcomes(await store.commit([counted("a")])) == ["committed"]
    assert await effects(site) == (2, 2, 2)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_commit_of_which_nobody_knows_is_asked_for_again(site: Site, times: int) -> None:
    store = site.store()
    await store.commit([counted("before")])
    too_slow = {"code": 64, "errmsg": "waiting for the others", "errInfo": {"wtimeout": True}}
    async with site.failing("commitTransaction", times=times, writeConcernError=too_slow):
        assert outcomes(await store.commit([counted("a"), counted("b")])) == ["committed"] * 2
    assert await effects(site) == (3, 3, 3)


# Lost on the way


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
@pytest.mark.parametrize("times", [1, 3])
async def test_a_commit_whose_answer_is_lost_takes_effect_once(
    site: Site, far: MongoStore, proxy: Proxy, fault: Fault, times: int
) -> None:
    await far.commit([counted("before")])
    rule = proxy.when(b"commitTransaction", fault, times=times)
    assert outcomes(await far.commit([counted("a"), counted("b")])) == ["committed"] * 2
    assert rule.fired == times
    assert await effects(site) == (3, 3, 3)


async def test_a_commit_that_stays_unknown_raises_and_is_recognised_when_it_comes_again(
    site: Site, far: MongoStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_COMMITS", 2)
    await far.commit([counted("before")])
    units = [counted("a"), counted("b")]
    proxy.when(b"commitTransaction", Fault.CUT_AFTER, times=None)
    with pytest.raises(PyMongoError) as unknown:
        await far.commit(units)
    assert DEFAULT_CLASSIFIER.classify(unknown.value).verdict is Verdict.UNKNOWN_OUTCOME
    proxy.heal()
    assert outcomes(await far.commit(units)) == ["duplicate"] * 2
    assert await effects(site) == (3, 3, 3)


async def test_a_beginning_whose_answer_is_lost_is_counted_once(
    site: Site, far: MongoStore, proxy: Proxy
) -> None:
    await inserted(far, "docs", {"_id": "1"})
    proxy.when(b"commitTransaction", Fault.CUT_AFTER, times=2)
    beginning = Beginning(lifecycle=Lifecycle("docs"), ids=("1",), operation="a", now=CLOCK.now())
    (answer,) = await far.documents.begin([beginning])
    assert answer["1"].document["attemptCount"] == 1
    assert (await site.raw("docs", "1"))["attemptCount"] == 1


# Servers that go away


async def test_a_server_that_is_killed_under_commits_loses_nothing_and_doubles_nothing() -> None:
    workers, each = 4, 15
    with MongoDB() as server:
        site = Site(server.create_database())
        done = 0

        async def work(number: int) -> None:
            nonlocal done
            store = site.store(f"{site.url}&serverSelectionTimeoutMS=1000")
            for turn in range(each):
                units = [counted(f"{number}/{turn}/{n}", f"{number}") for n in range(3)]
                while True:
                    try:
                        await store.commit(units)
                    except (PyMongoError, ConnectionError):
                        await asyncio.sleep(PAUSE)
                    else:
                        break
                done += 1

        working = [asyncio.create_task(work(number)) for number in range(workers)]
        for share in (0.3, 0.7):
            wanted = workers * each * share
            await until(lambda: done >= wanted)  # noqa: B023 (it is over before the next)
            server.kill()
            server.start()
        await asyncio.gather(*working)
        every = workers * each * 3
        assert await effects(site) == (every, every, every)
        await site.close()


class Shop:
    """A service that counts orders, and a worker that runs it beside a bus in memory."""

    def __init__(self, store: MongoStore) -> None:
        service = Service("shop")

        @service.on("OrderPlaced")
        async def place(event: Event, work: Work) -> None:
            work.documents("docs").increment("counter", "n")
            work.documents("log").add({"order": event.data["number"]})

        self.parts = bus_parts(State(), CLOCK)
        self.engine = with_store(self.parts, store)
        self.queues = service.queues()
        chance = Seeded()
        self.worker = Worker(
            [service], self.engine, clock=CLOCK, chance=chance, observer=Recorder()
        )
        self.publisher = Publisher(self.engine.bus, CLOCK, chance)

    async def place(self, count: int) -> None:
        for number in range(count):
            await self.publisher.publish("OrderPlaced", {"number": number})

    async def until_done(self) -> None:
        while (await self.parts.places.depths()).waiting:  # noqa: ASYNC110 (a bus tells nobody)
            await asyncio.sleep(PAUSE)


async def test_a_worker_waits_for_a_server_that_is_down(
    site: Site, far: MongoStore, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(far)
    proxy.refuse()
    with caplog.at_level(logging.WARNING, "headway"):
        running = asyncio.create_task(shop.worker.run())
        await until(lambda: "Opening the engine failed" in caplog.text)
        assert not running.done()
        proxy.heal()
        await until(lambda: "Opening the engine works again" in caplog.text)
        await shop.place(5)
        await shop.until_done()
        proxy.refuse()
        proxy.cut()
        await shop.place(5)
        caplog.clear()
        await until(lambda: " failed (attempt " in caplog.text)
        proxy.heal()
        await shop.until_done()
    shop.worker.stop()
    await running
    assert await effects(site) == (10, 10, 10)


async def test_a_worker_waits_until_there_is_a_primary_again(site: Site) -> None:
    store = site.store(f"{site.url}&serverSelectionTimeoutMS=500")
    shop = Shop(store)
    running = asyncio.create_task(shop.worker.run())
    await shop.engine.open(shop.queues)
    await shop.place(20)
    step_down = {"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": True}
    await site.client.admin.command(step_down)
    hello = await site.client.admin.command("hello")
    assert hello["secondary"]
    await shop.place(20)
    await shop.until_done()
    shop.worker.stop()
    await running
    assert await effects(site) == (40, 40, 40)


async def test_leases_can_be_renewed_from_another_loop_and_over_another_client(
    site: Site,
) -> None:
    store = site.store()
    lifecycle = Lifecycle("docs", lease=timedelta(minutes=1))
    await inserted(store, "docs", {"_id": "1"})
    now = CLOCK.now()
    await store.documents.begin(
        [Beginning(lifecycle=lifecycle, ids=("1",), operation="a", now=now, token="t")]
    )

    async def renew() -> int:
        async with store.aside() as documents:
            return await documents.renew("docs", {"1": "t"}, now + timedelta(hours=1))

    assert await asyncio.to_thread(asyncio.run, renew()) == 1
    until = (await site.raw("docs", "1"))["leaseUntil"]
    assert abs(until - now - timedelta(hours=1)) < timedelta(milliseconds=2)


async def test_a_claim_that_went_on_after_it_was_given_up_is_ours(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time was up here, and the server heard of it only when it had changed some of them."""
    at_once = MongoCandidates._claim_alike

    async def too_slow(*call: Any) -> set[str]:
        await at_once(*call)
        return set()

    monkeypatch.setattr(MongoCandidates, "_claim_alike", too_slow)
    candidates, now = sweeping(site.store()).candidates, CLOCK.now()
    await site.database.docs.insert_many([{"_id": one, "status": "failed"} for one in "abc"])
    rule = SweepRule(lifecycle=Lifecycle("docs"))
    pages = candidates.scan(rule, View.FAILED, now, newest_first=False, page=10)
    found = [each async for page in pages for each in page]
    claims = [Claim(each, requeued(each, rule, now)) for each in found]
    won = await candidates.claim(rule, claims, "t", now, timedelta(minutes=1))
    assert won == {"a", "b", "c"}
    assert (await site.raw("docs", "a"))["attemptCount"] == 1


def requeued(document: Document, rule: SweepRule, now: datetime) -> Requeue:
    judgement = judge(document, rule, now)
    assert isinstance(judgement, Requeue)
    return judgement
