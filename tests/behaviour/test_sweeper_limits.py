"""How much a sweep does at once, and when it had better not."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headway import Lifecycle, Service
from headway.core.sweep_totals import key
from headway.facts import (
    CollectionLeftAlone,
    DocumentsHeldBack,
    HealthChanged,
    LeasesDoubted,
    Skip,
    Status,
    SweepEnded,
)
from headway.runtime.sweep_pages import PAGE
from headway.runtime.sweeper import Sweeper
from headway.settings import WorkerSettings
from headway.testing.engines import Worker
from headway.testing.ports import Message, instant
from tests.behaviour.sweeps import (
    CHUNKING,
    DAY,
    HOUR,
    MINUTE,
    Yard,
    chunking,
    data_of,
    sweeping_of,
    with_bus,
    with_candidates,
    with_leases,
)

INTERVAL = timedelta(seconds=900)


def stuck(yard: Yard, count: int, first: int = 0) -> list[dict[str, Any]]:
    """Make documents that failed, the first one longest ago."""
    return [
        {
            "_id": f"{n:05}",
            "status": "failed",
            "attemptCount": 1,
            "lastAttemptTime": yard.ago(2 * DAY - timedelta(seconds=n)),
        }
        for n in range(first, first + count)
    ]


async def ids(yard: Yard) -> list[str]:
    return [data_of(each)["message_doc_ids"][0] for each in await yard.sent(CHUNKING)]


# Limit, order, rate


@pytest.mark.parametrize(
    ("newest_first", "expected"), [(True, ["00009", "00008"]), (False, ["00000", "00001"])]
)
async def test_a_run_sends_no_more_than_its_limit_and_in_its_order(
    yard: Yard, *, newest_first: bool, expected: list[str]
) -> None:
    await yard.put("messages", *stuck(yard, 10))
    ended = await yard.sweep(chunking(), limit=2, newest_first=newest_first)
    assert sorted(await ids(yard)) == sorted(expected)
    (swept,) = ended.collections
    assert (swept.requeued, swept.held_back, swept.skipped) == (2, 8, {Skip.HELD_BACK: 8})
    (fact,) = yard.facts.of(DocumentsHeldBack)
    assert (fact.count, fact.limit, fact.after_downtime) == (8, 2, False)
    assert ended.status is Status.SUCCESS
    await yard.sweep(chunking(), limit=8)
    assert len(await ids(yard)) == 8


async def test_a_limit_holds_while_earlier_events_are_on_their_way(quick: Yard) -> None:
    await quick.put("messages", *stuck(quick, PAGE + 200))
    ended = await quick.sweep(chunking(), limit=PAGE + 100)
    (swept,) = ended.collections
    assert (swept.requeued, swept.held_back) == (PAGE + 100, 100)
    assert len(await ids(quick)) == PAGE + 100


async def test_what_is_over_the_limit_does_not_keep_others_from_being_given_up(
    yard: Yard,
) -> None:
    spent = [{**each, "attemptCount": 3} for each in stuck(yard, 3, first=100)]
    await yard.put("messages", *stuck(yard, 3), *spent)
    ended = await yard.sweep(chunking(), limit=1, newest_first=False)
    assert (ended.collections[0].requeued, ended.collections[0].given_up) == (1, 3)


async def test_a_rate_spreads_what_is_sent(quick: Yard) -> None:
    times: list[float] = []
    start = quick.now

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        times.extend([(quick.now - start).total_seconds()] * len(messages))
        return await quick.engine.bus.publish(messages)

    await quick.put("messages", *stuck(quick, 21))
    engine = with_bus(quick.engine, publish=publish)
    await quick.sweep(chunking(), rate=4, engine=engine)
    assert len(times) == 21
    for second in range(5):
        assert sum(second <= at < second + 1 for at in times) == 4
    assert max(times) == 5.0


async def test_a_slow_rate_sends_one_at_a_time(quick: Yard) -> None:
    await quick.put("messages", *stuck(quick, 3))
    start = quick.now
    await quick.sweep(chunking(), rate=0.1)
    assert (quick.now - start).total_seconds() == 20.0
    assert len(await ids(quick)) == 3


async def test_a_claim_is_not_made_before_its_turn(quick: Yard) -> None:
    """A claim that waits for the rate would end before its event is sent."""
    await quick.put("messages", *stuck(quick, 30))
    await quick.sweep(chunking(), rate=0.1, claim=timedelta(seconds=2))
    assert {each["claimToken"] for each in await quick.all("messages")} == {None}
    assert len(await ids(quick)) == 30


# After a downtime of the sweeper itself


async def test_the_first_runs_are_careful_and_each_may_send_twice_as_much(yard: Yard) -> None:
    await yard.put("messages", *stuck(yard, 40))
    sent, held = [], []
    for _ in range(4):
        ended = await yard.sweep(chunking(), cap=5)
        sent.append(len(await ids(yard)))
        held.append(ended.collections[0].held_back)
        yard.clock.advance(INTERVAL)
    assert (sent, held) == ([5, 10, 20, 5], [35, 25, 5, 0])
    assert [fact.after_downtime for fact in yard.facts.of(DocumentsHeldBack)] == [True] * 3
    await yard.put("messages", *stuck(yard, 40, first=1000))
    await yard.sweep(chunking(), cap=5)
    assert len(await ids(yard)) == 40, "nothing was held back, so there is no cap any more"


@pytest.mark.parametrize(("intervals", "sent"), [(3.9, 40), (4.1, 5)])
async def test_a_downtime_is_more_than_four_intervals(
    quick: Yard, intervals: float, sent: int
) -> None:
    """In memory only: leases go by the clock of the store, and that of a server does not jump."""
    await quick.sweep(chunking(), cap=5)
    quick.clock.advance(intervals * INTERVAL)
    await quick.put("messages", *stuck(quick, 40))
    await quick.sweep(chunking(), cap=5)
    assert len(await ids(quick)) == sent


async def test_a_run_that_was_broken_off_is_none_that_ended(quick: Yard) -> None:
    await quick.sweep(chunking(), cap=5)
    await quick.put("messages", *stuck(quick, 40))

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        raise ConnectionError("away")

    engine = with_bus(quick.engine, publish=publish)
    for _ in range(5):
        quick.clock.advance(INTERVAL)
        await quick.sweep(chunking(), cap=5, engine=engine)
    ended = await quick.sweep(chunking(), cap=5)
    assert ended.collections[0].requeued <= 5


async def test_a_cap_is_about_one_collection(quick: Yard) -> None:
    assert (await quick.sweep(chunking(), cap=5)).collections[0].held_back == 0
    other = Service("other")

    @other.on("Event", documents=("other/5/messages", "ids"))
    async def handle(event: Any, work: Any) -> None: ...

    await quick.put("messages", *stuck(quick, 20))
    await quick.put("other/5/messages", *stuck(quick, 20))
    ended = await quick.sweep(chunking(), other, cap=5)
    assert [swept.requeued for swept in ended.collections] == [20, 5]
    ended = await quick.sweep(chunking(), other, cap=5)
    assert [swept.requeued for swept in ended.collections] == [0, 10]


# Leases that are over


LEASE = timedelta(seconds=30)


def leased() -> Service:
    service = Service("chunking", lifecycles=[Lifecycle("messages", lease=LEASE)])

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"))
    async def chunk(event: Any, work: Any) -> None: ...

    return service


def in_hand(yard: Yard, one: int, until: timedelta) -> dict[str, Any]:
    return {
        "_id": f"{one:05}",
        "status": "pending",
        "attemptCount": 1,
        "lastAttemptTime": yard.ago(HOUR),
        "leaseToken": f"worker/{one}",
        "leaseUntil": instant(yard.now + until),
    }


async def test_a_document_whose_worker_died_is_sent_as_soon_as_its_lease_is_over(
    yard: Yard,
) -> None:
    await yard.put("messages", in_hand(yard, 1, MINUTE), in_hand(yard, 2, -MINUTE))
    await yard.sweep(leased())
    assert await ids(yard) == ["00002"]


async def test_a_document_that_is_stuck_in_two_ways_is_met_once(yard: Yard) -> None:
    both = {**in_hand(yard, 1, -HOUR), "lastAttemptTime": yard.ago(2 * DAY)}
    await yard.put("messages", both)
    service = leased()
    (name,) = service.subscriptions
    service.subscriptions[name] = replace(service.subscriptions[name], rebuild=lambda _: 1 / 0)
    ended = await yard.sweep(service)
    assert ended.collections[0].errors == {"ZeroDivisionError": 1}


async def test_many_leases_over_at_once_are_not_believed(yard: Yard) -> None:
    over = [in_hand(yard, n, -MINUTE) for n in range(101)]
    await yard.put("messages", *over, *(in_hand(yard, n, MINUTE) for n in range(200, 300)))
    await yard.put("messages", *stuck(yard, 1, first=900))
    ended = await yard.sweep(leased())
    assert await ids(yard) == ["00900"], "what failed is not in doubt"
    (swept,) = ended.collections
    assert swept.skipped == {Skip.CIRCUIT: 101}
    (fact,) = yard.facts.of(LeasesDoubted)
    assert (fact.over, fact.leased) == (101, 100)
    yard.clock.advance(INTERVAL)
    ended = await yard.sweep(leased())
    assert ended.collections[0].requeued >= 101, "they have been over for long, so it was true"


async def test_few_leases_or_the_smaller_part_of_them_are_believed(quick: Yard) -> None:
    await quick.put("messages", *(in_hand(quick, n, -MINUTE) for n in range(100)))
    await quick.sweep(leased())
    assert len(await ids(quick)) == 100
    await quick.put("messages", *(in_hand(quick, n, -MINUTE) for n in range(1000, 1150)))
    await quick.put("messages", *(in_hand(quick, n, HOUR) for n in range(2000, 2150)))
    await quick.sweep(leased())
    assert len(await ids(quick)) == 150
    assert quick.facts.of(LeasesDoubted) == []


# What events depend on is down


NOTE = "down/chunking/JSONParsed"


async def test_a_collection_is_left_alone_while_what_it_needs_is_down(yard: Yard) -> None:
    leases = sweeping_of(yard.engine).leases
    spent = {"_id": "spent", "status": "failed", "attemptCount": 3}
    await yard.put("messages", *stuck(yard, 3), spent)
    await leases.hold(NOTE, "w", 10 * DAY)
    sweeper = yard.sweeper(chunking())
    ended = await sweeper.sweep_once()
    assert await ids(yard) == ["00002"], "a probe, and no more"
    (swept,) = ended.collections
    assert (swept.requeued, swept.skipped) == (1, {Skip.DOWN: 2})
    assert (swept.given_up, swept.held_back) == (1, 0), "no event is sent for what is given up"
    assert swept.tally is not None
    assert ended.status is Status.SUCCESS
    reason = key("retry_job_documents_skipped_total", reason="down", collection="messages")
    assert (await yard.totals())[reason] == 2
    (swept,) = (await sweeper.sweep_once()).collections
    assert (swept.requeued, swept.skipped) == (0, {Skip.DOWN: 2}), "it has been probed just now"
    await leases.let_go(NOTE, "w")
    await sweeper.sweep_once()
    assert len(await ids(yard)) == 2, "nobody waits for the end of the pause"


async def test_pauses_between_probes_double_up_to_eight_intervals(quick: Yard) -> None:
    leases = sweeping_of(quick.engine).leases
    await leases.hold(NOTE, "w", 10 * DAY)
    sweeper = quick.sweeper(chunking())
    for _ in range(3):
        await sweeper.sweep_once()
        quick.clock.advance(INTERVAL)
    await quick.put("messages", *stuck(quick, 30))
    for _ in range(16):
        await sweeper.sweep_once()
        quick.clock.advance(INTERVAL)
    told = quick.facts.of(CollectionLeftAlone)
    pauses = [fact.pause / INTERVAL for fact in told]
    # It is said in every run how long it still is; while there is nothing to send, one interval.
    assert pauses == [1, 1, 1, 1, 2, 1, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1, 8]
    assert [n for n, fact in enumerate(told) if fact.probes] == [3, 4, 6, 10, 18]
    assert len(await ids(quick)) == 5
    await leases.let_go(NOTE, "w")
    assert (await sweeper.sweep_once()).collections[0].requeued == 25
    await leases.hold(NOTE, "w", DAY)
    await quick.put("messages", *stuck(quick, 1, first=100))
    await sweeper.sweep_once()
    assert quick.facts.of(CollectionLeftAlone)[-1].pause == INTERVAL, "it begins anew"


async def test_a_worker_tells_sweepers_what_is_down(quick: Yard) -> None:
    """From the front door: events fail, the worker sees an outage, the sweeper keeps away."""
    broken = True
    service = Service("chunking")

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"))
    async def chunk(event: Any, work: Any) -> None:
        if broken:
            raise ConnectionRefusedError("the vector store is down")

    leases = sweeping_of(quick.engine).leases
    await quick.put("messages", *stuck(quick, 8))
    assert (await quick.sweep(service)).collections[0].requeued == 8
    worker = a_worker(quick, service)
    running = asyncio.create_task(worker.run())
    await passed(quick, timedelta(seconds=30))
    assert [fact.down for fact in quick.facts.of(HealthChanged)] == [True]
    assert await leases.held("down/") == [NOTE]
    await quick.put("messages", *stuck(quick, 3, first=100))
    assert (await quick.sweep(service)).collections[0].skipped[Skip.DOWN] == 2
    await passed(quick, 3 * MINUTE)
    assert await leases.held("down/") == [NOTE], "it is renewed"
    broken = False
    while quick.facts.of(HealthChanged)[-1].down:
        await quick.clock.wait(timedelta(seconds=1))
    await quick.clock.wait(timedelta(seconds=1))
    assert await leases.held("down/") == [], "it is let go, and does not only end"
    assert (await quick.sweep(service)).collections[0].requeued == 2
    await passed(quick, MINUTE)
    worker.stop()
    await running
    assert {each["status"] for each in await quick.all("messages")} == {"processed"}


async def test_a_note_of_a_worker_that_died_ends_by_itself(quick: Yard) -> None:
    service = Service("chunking")

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"))
    async def chunk(event: Any, work: Any) -> None:
        raise ConnectionRefusedError("the vector store is down")

    await quick.put("messages", *stuck(quick, 8))
    await quick.sweep(service)
    worker = a_worker(quick, service)
    running = asyncio.create_task(worker.run())
    await passed(quick, timedelta(seconds=30))
    worker.stop()
    await running
    leases = sweeping_of(quick.engine).leases
    assert await leases.held("down/") == [NOTE]
    quick.clock.advance(2 * MINUTE)
    assert await leases.held("down/") == []


def a_worker(yard: Yard, *services: Service, **settings: Any) -> Worker:
    return Worker(
        services,
        yard.new_engine(),
        clock=yard.clock,
        chance=yard.chance,
        observer=yard.facts,
        settings=WorkerSettings(**settings),
    )


async def passed(yard: Yard, delay: timedelta) -> None:
    end = yard.now + delay
    while yard.now < end:
        await yard.clock.wait(timedelta(seconds=5))


# The leader


def runs(yard: Yard) -> int:
    return len(yard.facts.of(SweepEnded))


async def test_of_two_that_run_one_sweeps_and_the_other_takes_over(
    quick: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headway")

    async def let_go(name: str, token: str) -> None:
        """It is killed, and lets go of nothing."""

    dying = with_leases(quick.new_engine(), let_go=let_go)
    first, second = (quick.sweeper(chunking(), engine=e) for e in (dying, quick.new_engine()))
    one = asyncio.create_task(first.run())
    await passed(quick, MINUTE)
    two = asyncio.create_task(second.run())
    await passed(quick, HOUR)
    assert runs(quick) == 5
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await passed(quick, 2 * MINUTE)
    assert runs(quick) == 6, "its lease ended, and not only when the next run was due"
    assert [line.partition(":")[0] for line in caplog.messages] == [
        "Another sweeper leads",
        "This sweeper leads now",
    ]
    second.stop()
    await two
    assert await sweeping_of(quick.engine).leases.held("sweep/leader") == []


async def test_without_a_leader_both_sweep(quick: Yard) -> None:
    sweepers = [
        quick.sweeper(chunking(), engine=quick.new_engine(), leader=False) for _ in range(2)
    ]
    tasks = [asyncio.create_task(each.run()) for each in sweepers]
    await passed(quick, HOUR)
    for each in sweepers:
        each.stop()
    await asyncio.gather(*tasks)
    assert runs(quick) == 2 * 5


async def test_a_single_sweep_needs_no_leader(quick: Yard) -> None:
    await sweeping_of(quick.engine).leases.hold("sweep/leader", "somebody", DAY)
    await quick.put("messages", *stuck(quick, 3))
    assert (await quick.sweep(chunking())).collections[0].requeued == 3


async def test_whoever_loses_the_lead_stops_between_two_pages(quick: Yard) -> None:
    """Its lease was not renewed in time: somebody else may be leading by now."""
    await quick.put("messages", *stuck(quick, 1200))
    inner = sweeping_of(quick.engine).candidates
    claimed = 0

    async def claim(*given: Any) -> frozenset[str]:
        nonlocal claimed
        claimed += 1
        quick.clock.advance(2 * MINUTE)  # the process was stopped for a while
        await sweeping_of(quick.engine).leases.hold("sweep/leader", "another", DAY)
        return await inner.claim(*given)

    sweeper = quick.sweeper(chunking(), engine=with_candidates(quick.engine, claim=claim))
    running = asyncio.create_task(sweeper.run())
    await passed(quick, HOUR)
    assert claimed == 1
    sweeper.stop()
    await running


async def test_a_store_that_is_away_at_the_lead_counts_as_a_failed_run(quick: Yard) -> None:
    class Gone:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionRefusedError("nobody is there")

    gone: Any = Gone()
    sweeping = replace(sweeping_of(quick.engine), leases=gone, candidates=gone)
    sweeper = quick.sweeper(chunking(), engine=replace(quick.engine, sweeping=sweeping))
    running = asyncio.create_task(sweeper.run())
    await passed(quick, 31 * MINUTE)
    sweeper.stop()
    await running
    ended = quick.facts.of(SweepEnded)
    assert [each.status for each in ended] == [Status.FAILURE] * 3
    assert ended[0].collections[0].tally is None


async def test_a_stop_ends_the_run_between_two_pages(quick: Yard) -> None:
    await quick.put("messages", *stuck(quick, 2 * PAGE + 1))
    sweepers: list[Sweeper] = []

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        sweepers[0].stop()
        return await quick.engine.bus.publish(messages)

    sweepers.append(quick.sweeper(chunking(), engine=with_bus(quick.engine, publish=publish)))
    await sweepers[0].run()
    (ended,) = quick.facts.of(SweepEnded)
    assert ended.collections[0].requeued in {PAGE, 2 * PAGE}, "one, perhaps another meanwhile"
    assert ended.status is Status.SUCCESS
    documents = await quick.all("messages")
    assert [each["_id"] for each in documents if each.get("claimToken")] == []
    assert await sweeping_of(quick.engine).leases.held("sweep/leader") == []
    held = await sweeping_of(quick.engine).leases.held("sweep/ran/")
    assert held == [], "it did not come to its end"


async def test_a_stop_does_not_wait_for_the_rate(quick: Yard) -> None:
    """A page at a rate may take hours: whoever is told to stop is killed long before."""
    await quick.put("messages", *stuck(quick, 100))
    sweeper = quick.sweeper(chunking(), rate=0.01)
    running = asyncio.create_task(sweeper.run())
    await passed(quick, 3 * MINUTE)
    sweeper.stop()
    told = quick.now
    await running
    assert quick.now - told <= timedelta(seconds=2)
    (ended,) = quick.facts.of(SweepEnded)
    assert 0 < ended.collections[0].requeued < 5
    documents = await quick.all("messages")
    assert [each["_id"] for each in documents if each.get("claimToken")] == []


async def test_a_rebuild_that_takes_long_costs_neither_the_lead_nor_a_claim(quick: Yard) -> None:
    """Events are made before documents are claimed, some at a time, and others have their turn."""
    service = Service("chunking")

    def rebuild(document: dict[str, Any]) -> Any:
        quick.clock.advance(timedelta(seconds=25))
        return {"message_doc_ids": [document["_id"]]}

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"), rebuild=rebuild)
    async def chunk(event: Any, work: Any) -> None: ...

    inner = sweeping_of(quick.engine).candidates
    claims: list[Any] = []

    async def claim(rule: Any, some: Any, token: str, now: Any, lease: timedelta) -> frozenset[str]:
        claims.append(now + lease)
        assert await sweeping_of(quick.engine).leases.held("sweep/leader"), "it was not renewed"
        return await inner.claim(rule, some, token, now, lease)

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        assert quick.now < claims[-1], "its claim is over"
        return await quick.engine.bus.publish(messages)

    await quick.put("messages", *stuck(quick, 20))
    engine = with_bus(with_candidates(quick.engine, claim=claim), publish=publish)
    sweeper = quick.sweeper(service, engine=engine)
    running = asyncio.create_task(sweeper.run())
    await passed(quick, timedelta(minutes=12))
    sweeper.stop()
    await running
    assert quick.facts.of(SweepEnded)[0].collections[0].requeued == 20


async def test_a_rebuild_that_takes_longer_than_the_lead_lasts_ends_no_run(quick: Yard) -> None:
    """It is not renewed meanwhile, but asked for again: nobody else has taken it."""
    service = Service("chunking")

    def rebuild(document: dict[str, Any]) -> Any:
        quick.clock.advance(timedelta(seconds=90))
        return {"message_doc_ids": [document["_id"]]}

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"), rebuild=rebuild)
    async def chunk(event: Any, work: Any) -> None: ...

    await quick.put("messages", *stuck(quick, 4))
    sweeper = quick.sweeper(service)
    running = asyncio.create_task(sweeper.run())
    await passed(quick, timedelta(minutes=8))
    sweeper.stop()
    await running
    (ended, *_) = quick.facts.of(SweepEnded)
    assert ended.collections[0].requeued == 4


async def test_a_run_that_takes_long_is_not_followed_at_once(quick: Yard) -> None:
    await quick.put("messages", *stuck(quick, 100))
    sweeper = quick.sweeper(chunking(), rate=0.1, leader=False)
    running = asyncio.create_task(sweeper.run())
    await passed(quick, timedelta(seconds=1300))
    sweeper.stop()
    await running
    first, second = quick.facts.of(SweepEnded)
    assert (second.ended - first.ended) == INTERVAL / 10


# At the start of a worker


async def test_a_worker_requeues_at_its_start_only_if_told(quick: Yard) -> None:
    done: list[str] = []
    service = Service("chunking")

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"))
    async def chunk(event: Any, work: Any) -> None:
        done.extend(event.data["message_doc_ids"])

    await quick.put("messages", *stuck(quick, 3))
    for told in (False, True):
        worker = a_worker(quick, service, requeue_at_start=told)
        running = asyncio.create_task(worker.run())
        await passed(quick, MINUTE)
        worker.stop()
        await running
        assert len(done) == 3 * told
    assert {each["attemptCount"] for each in await quick.all("messages")} == {2}
    assert runs(quick) == 1


async def test_many_workers_that_start_at_once_requeue_once(quick: Yard) -> None:
    done: list[str] = []
    service = Service("chunking")

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"))
    async def chunk(event: Any, work: Any) -> None:
        done.extend(event.data["message_doc_ids"])

    await quick.put("messages", *stuck(quick, 30))
    workers = [a_worker(quick, service, requeue_at_start=True) for _ in range(4)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    await passed(quick, MINUTE)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*tasks)
    assert sorted(done) == [f"{n:05}" for n in range(30)]
