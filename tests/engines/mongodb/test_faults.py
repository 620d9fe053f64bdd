"""Conflicts, lost answers, servers that die: nothing is lost, and nothing takes effect twice."""

import asyncio
import itertools
from collections.abc import Iterator
from datetime import timedelta

import pytest
from pymongo.errors import PyMongoError

from headway import Lifecycle
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.conformance.stuck import RULE, claim_of, scanned
from headway.testing.engines import MongoStore
from headway.testing.ports import (
    Add,
    Beginning,
    Increment,
    Unit,
    View,
)
from headway.testing.proxy import Fault, Proxy
from headway.testing.servers import MongoDB
from tests.engines.mongodb.site import CLOCK, Site, doing, inserted, outcomes, sweeping
from tests.engines.waiting import until

pytestmark = pytest.mark.server("mongodb")
PAUSE = 0.02
LINES = itertools.count()


@pytest.fixture
def proxy(mongodb_server: MongoDB) -> Iterator[Proxy]:
    with Proxy(*mongodb_server.address) as proxy:
        yield proxy


@pytest.fixture
def far(site: Site, proxy: Proxy) -> MongoStore:
    """A store at the other end of a wire that can be cut; it is soon told that none answers."""
    return site.store(f"{proxy.through(site.url)}&serverSelectionTimeoutMS=300")


def counted(operation: str, counter: str = "counter") -> Unit:
    """Make a unit whose effects are seen if they are there twice."""
    line = {"_id": f"{operation} {next(LINES)}"}
    return doing(operation, Increment("docs", counter, "n"), Add("log", line))


async def effects(site: Site) -> tuple[int, int, int]:
    counters = [each["n"] async for each in site.database["docs"].find()]
    return sum(counters), await site.count("log"), await site.count("headway_done")


# Faults that the server makes


@pytest.mark.parametrize(
    ("command", "times"), [("insert", 4), ("find", 1), ("update", 1), ("commitTransaction", 4)]
)
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


async def test_a_commit_whose_outcome_is_unknown_is_asked_for_again(site: Site) -> None:
    store = site.store()
    await store.commit([counted("before")])
    too_slow = {"code": 64, "errmsg": "waiting for the others", "errInfo": {"wtimeout": True}}
    async with site.failing("commitTransaction", times=3, writeConcernError=too_slow):
        assert outcomes(await store.commit([counted("a"), counted("b")])) == ["committed"] * 2
    assert await effects(site) == (3, 3, 3)


# Lost on the way


@pytest.mark.parametrize(("fault", "times"), [(Fault.CUT_BEFORE, 1), (Fault.CUT_AFTER, 3)])
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
    monkeypatch.setattr("headway.adapters.mongodb.transactions._COMMITS", 2)
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


@pytest.mark.parametrize("how", ["killed", "no primary"])
async def test_a_server_that_goes_away_under_commits_loses_nothing_and_doubles_nothing(
    how: str,
) -> None:
    workers, each = 4, 15
    step_down = {"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": True}
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
            if how == "killed":
                server.kill()
                server.start()
            else:
                await site.client.admin.command(step_down)
        await asyncio.gather(*working)
        every = workers * each * 3
        assert await effects(site) == (every, every, every)
        await site.close()


async def test_a_claim_that_is_made_again_is_ours_and_counted_once(site: Site) -> None:
    """Its time was up here, and the server heard of it only when it had changed them."""
    candidates, now = sweeping(site.store()).candidates, CLOCK.now()
    await site.database.docs.insert_many([{"_id": one, "status": "failed"} for one in "abc"])
    found = await scanned(candidates, View.FAILED, now)
    claims = [claim_of(each, now) for each in found]
    for _ in range(2):
        won = await candidates.claim(RULE, claims, "t", now, timedelta(minutes=1))
        assert won == {"a", "b", "c"}
    assert (await site.raw("docs", "a"))["attemptCount"] == 1
