"""How much a sweep does at once, and when it waits: limits, outages, leases, and the leader."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headway import Event, Lifecycle, Service, Work
from headway.facts import (
    CollectionLeftAlone,
    DocumentsHeldBack,
    HealthChanged,
    LeasesDoubted,
    Skip,
    Status,
    SweepEnded,
)
from headway.testing.ports import Message, instant
from tests.behaviour.sweeps import (
    DAY,
    HOUR,
    MINUTE,
    Spied,
    Yard,
    chunking,
    sweeping_of,
    with_bus,
    with_candidates,
    working,
)

INTERVAL = timedelta(seconds=900)
PAGE = 1000
"""Documents that a sweep reads at once."""


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


# Limit, order, rate


@pytest.mark.parametrize(
    ("newest_first", "expected"), [(True, ["00008", "00009"]), (False, ["00000", "00001"])]
)
async def test_a_run_sends_no_more_than_its_limit_and_in_its_order(
    quick: Yard, *, newest_first: bool, expected: list[str]
) -> None:
    spent = {**stuck(quick, 1, first=100)[0], "attemptCount": 3}
    await quick.put("messages", *stuck(quick, 10), spent)
    ended = await quick.sweep(chunking(), limit=2, newest_first=newest_first)
    assert sorted(await quick.sent_ids()) == expected
    (swept,) = ended.collections
    assert (swept.requeued, swept.held_back, swept.skipped) == (2, 8, {Skip.HELD_BACK: 8})
    assert swept.given_up == 1, "a limit is about events"
    (fact,) = quick.facts.of(DocumentsHeldBack)
    assert (fact.count, fact.limit, fact.after_downtime) == (8, 2, False)
    assert ended.status is Status.SUCCESS
    await quick.sweep(chunking(), limit=8)
    assert len(await quick.sent_ids()) == 8


async def test_a_limit_holds_while_earlier_events_are_on_their_way(quick: Yard) -> None:
    await quick.put("messages", *stuck(quick, PAGE + 200))
    (swept,) = (await quick.sweep(chunking(), limit=PAGE + 100)).collections
    assert (swept.requeued, swept.held_back) == (PAGE + 100, 100)
    assert len(await quick.sent_ids()) == PAGE + 100


@pytest.mark.parametrize(("rate", "count", "last"), [(4, 21, 5.0), (0.1, 3, 20.0)])
async def test_a_rate_spreads_what_is_sent(
    quick: Yard, rate: float, count: int, last: float
) -> None:
    times: list[float] = []
    start = quick.now

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        times.extend([(quick.now - start).total_seconds()] * len(messages))
        return await quick.engine.bus.publish(messages)

    await quick.put("messages", *stuck(quick, count))
    engine = with_bus(quick.engine, publish=publish)
    # A claim that waited for the rate would end before its event is sent.
    await quick.sweep(chunking(), rate=rate, engine=engine, claim=timedelta(seconds=2))
    assert (len(times), max(times)) == (count, last)
    for second in range(int(last)):
        assert sum(second <= at < second + 1 for at in times) <= max(rate, 1)
    assert {each["claimToken"] for each in await quick.all("messages")} == {None}


# After a downtime of the sweeper itself


async def test_the_first_runs_are_careful_and_each_may_send_twice_as_much(yard: Yard) -> None:
    await yard.put("messages", *stuck(yard, 40))
    sent, held = [], []
    for _ in range(4):
        ended = await yard.sweep(chunking(), cap=5)
        sent.append(len(await yard.sent_ids()))
        held.append(ended.collections[0].held_back)
        yard.clock.advance(INTERVAL)
    assert (sent, held) == ([5, 10, 20, 5], [35, 25, 5, 0])
    assert [fact.after_downtime for fact in yard.facts.of(DocumentsHeldBack)] == [True] * 3
    await yard.put("messages", *stuck(yard, 40, first=1000))
    await yard.sweep(chunking(), cap=5)
    assert len(await yard.sent_ids()) == 40, "nothing was held back, so there is no cap any more"


@pytest.mark.parametrize(("intervals", "sent"), [(3.9, 40), (4.1, 5)])
async def test_a_downtime_is_more_than_four_intervals(
    quick: Yard, intervals: float, sent: int
) -> None:
    """In memory only: leases go by the clock of the store, and that of a server does not jump."""
    await quick.sweep(chunking(), cap=5)
    quick.clock.advance(intervals * INTERVAL)
    await quick.put("messages", *stuck(quick, 40))
    await quick.sweep(chunking(), cap=5)
    assert len(await quick.sent_ids()) == sent


async def test_a_run_that_was_broken_off_is_none_that_ended(quick: Yard) -> None:
    await quick.sweep(chunking(), cap=5)
    await quick.put("messages", *stuck(quick, 40))

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        raise ConnectionError("no answer")

    engine = with_bus(quick.engine, publish=publish)
    for _ in range(5):
        quick.clock.advance(INTERVAL)
        await quick.sweep(chunking(), cap=5, engine=engine)
    ended = await quick.sweep(chunking(), cap=5)
    assert ended.collections[0].requeued <= 5


async def nothing(event: Event, work: Work) -> None: ...


# Leases that are over


def leased(**more: Any) -> Service:
    lifecycle = Lifecycle("messages", lease=timedelta(seconds=30))
    service = Service("chunking", lifecycles=[lifecycle])
    service.on("JSONParsed", documents=("messages", "message_doc_ids"), **more)(nothing)
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


async def test_many_leases_over_at_once_are_doubted(yard: Yard) -> None:
    over = [in_hand(yard, n, -MINUTE) for n in range(101)]
    await yard.put("messages", *over, *(in_hand(yard, n, MINUTE) for n in range(200, 300)))
    await yard.put("messages", *stuck(yard, 1, first=900))
    ended = await yard.sweep(leased())
    assert await yard.sent_ids() == ["00900"], "what failed is not in doubt"
    (swept,) = ended.collections
    assert swept.skipped == {Skip.CIRCUIT: 101}
    (fact,) = yard.facts.of(LeasesDoubted)
    assert (fact.over, fact.leased) == (101, 100)
    yard.clock.advance(INTERVAL)
    ended = await yard.sweep(leased())
    assert ended.collections[0].requeued >= 101, "they have been over for long, so it was true"


# An outage of what events depend on


NOTE = "down/chunking/JSONParsed"


async def test_a_collection_is_left_alone_while_what_it_needs_is_down(yard: Yard) -> None:
    leases = sweeping_of(yard.engine).leases
    spent = {"_id": "spent", "status": "failed", "attemptCount": 3}
    await yard.put("messages", *stuck(yard, 3), spent)
    await leases.hold(NOTE, "w", 10 * DAY)
    sweeper = yard.sweeper(chunking())
    ended = await sweeper.sweep_once()
    assert await yard.sent_ids() == ["00002"], "a probe, and no more"
    (swept,) = ended.collections
    assert (swept.requeued, swept.skipped) == (1, {Skip.DOWN: 2})
    assert (swept.given_up, swept.held_back) == (1, 0), "no event is sent for what is given up"
    assert swept.tally is not None
    assert ended.status is Status.SUCCESS
    reason = "retry_job_documents_skipped_total|reason=down|collection=messages"
    assert (await yard.totals())[reason] == 2
    (swept,) = (await sweeper.sweep_once()).collections
    assert (swept.requeued, swept.skipped) == (0, {Skip.DOWN: 2}), "it has been probed just now"
    await leases.let_go(NOTE, "w")
    await sweeper.sweep_once()
    assert len(await yard.sent_ids()) == 2, "the pause ends with the outage"


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
    # Each run tells how long it still is; while there is nothing to send, one interval.
    assert pauses == [1, 1, 1, 1, 2, 1, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1, 8]
    assert [n for n, fact in enumerate(told) if fact.probes] == [3, 4, 6, 10, 18]
    assert len(await quick.sent_ids()) == 5
    await leases.let_go(NOTE, "w")
    assert (await sweeper.sweep_once()).collections[0].requeued == 25
    await leases.hold(NOTE, "w", DAY)
    await quick.put("messages", *stuck(quick, 1, first=100))
    await sweeper.sweep_once()
    assert quick.facts.of(CollectionLeftAlone)[-1].pause == INTERVAL, "it begins anew"


async def test_a_worker_tells_sweepers_what_is_down_and_what_it_noted_ends_with_it(
    quick: Yard,
) -> None:
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
    async with working(quick, service, engine=quick.new_engine()):
        await quick.passed(timedelta(seconds=30))
    assert await leases.held("down/") == [NOTE]
    quick.clock.advance(2 * MINUTE)
    assert await leases.held("down/") == [], "no worker lives that renews it"
    async with working(quick, service, engine=quick.new_engine()):
        await quick.passed(5 * MINUTE)
        assert quick.facts.of(HealthChanged)[-1].down
        assert await leases.held("down/") == [NOTE], "it is renewed"
        await quick.put("messages", *stuck(quick, 3, first=100))
        assert (await quick.sweep(service)).collections[0].skipped[Skip.DOWN] == 2
        broken = False
        while quick.facts.of(HealthChanged)[-1].down:
            await quick.clock.wait(timedelta(seconds=1))
        await quick.clock.wait(timedelta(seconds=1))
        assert await leases.held("down/") == [], "it is released, and does not only end"
        assert (await quick.sweep(service)).collections[0].requeued == 2
        await quick.passed(MINUTE)
    assert {each["status"] for each in await quick.all("messages")} == {"processed"}


# The leader


def runs(yard: Yard) -> int:
    return len(yard.facts.of(SweepEnded))


async def test_of_two_that_run_one_sweeps_and_the_other_takes_over(quick: Yard) -> None:
    async def killed(name: str, token: str) -> None:
        """It releases nothing."""

    sweeping = sweeping_of(quick.engine)
    leases: Any = Spied(sweeping.leases, let_go=killed)
    dying = replace(quick.engine, sweeping=replace(sweeping, leases=leases))
    first = asyncio.create_task(quick.sweeper(chunking(), engine=dying).run())
    await quick.passed(MINUTE)
    async with quick.sweeping(chunking(), engine=quick.new_engine()):
        await quick.passed(HOUR)
        assert runs(quick) == 5
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await quick.passed(2 * MINUTE)
        assert runs(quick) == 6, "its lease ended, and not only when the next run was due"
    assert await sweeping_of(quick.engine).leases.held("sweep/leader") == []


async def test_a_sweeper_that_loses_the_lead_stops_between_two_pages(quick: Yard) -> None:
    """Its lease was not renewed in time: another may be leading by now."""
    await quick.put("messages", *stuck(quick, PAGE + 200))
    inner = sweeping_of(quick.engine).candidates
    claimed = 0

    async def claim(*given: Any) -> frozenset[str]:
        nonlocal claimed
        claimed += 1
        quick.clock.advance(2 * MINUTE)  # the process was stopped for a while
        await sweeping_of(quick.engine).leases.hold("sweep/leader", "another", DAY)
        return await inner.claim(*given)

    async with quick.sweeping(chunking(), engine=with_candidates(quick.engine, claim=claim)):
        await quick.passed(HOUR)
        assert claimed == 1


async def test_a_stop_ends_the_run_between_two_pages(quick: Yard) -> None:
    await quick.put("messages", *stuck(quick, 2 * PAGE + 1))

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        sweeper.stop()
        return await quick.engine.bus.publish(messages)

    sweeper = quick.sweeper(chunking(), engine=with_bus(quick.engine, publish=publish))
    await sweeper.run()
    (ended,) = quick.facts.of(SweepEnded)
    assert ended.collections[0].requeued in {PAGE, 2 * PAGE}, "one, perhaps another meanwhile"
    assert ended.status is Status.SUCCESS
    documents = await quick.all("messages")
    assert [each["_id"] for each in documents if each.get("claimToken")] == []
    held = await sweeping_of(quick.engine).leases.held("sweep/")
    assert held == [], "it leads no longer, and the run did not come to its end"


async def test_a_stop_does_not_wait_for_the_rate(quick: Yard) -> None:
    """A page at a rate may take hours: a process that is told to stop is killed long before."""
    await quick.put("messages", *stuck(quick, 100))
    async with quick.sweeping(chunking(), rate=0.01):
        await quick.passed(3 * MINUTE)
        told = quick.now
    assert quick.now - told <= timedelta(seconds=2)
    (ended,) = quick.facts.of(SweepEnded)
    assert 0 < ended.collections[0].requeued < 5
    documents = await quick.all("messages")
    assert [each["_id"] for each in documents if each.get("claimToken")] == []


@pytest.mark.parametrize(("seconds", "count"), [(25, 20), (90, 4)])
async def test_a_rebuild_that_takes_long_costs_neither_the_run_nor_a_claim(
    quick: Yard, seconds: int, count: int
) -> None:
    """Events are made before documents are claimed, some at a time; a lead that ends is resumed."""

    def rebuild(document: dict[str, Any]) -> Any:
        quick.clock.advance(timedelta(seconds=seconds))
        return {"message_doc_ids": [document["_id"]]}

    inner = sweeping_of(quick.engine).candidates
    claims: list[Any] = []

    async def claim(rule: Any, some: Any, token: str, now: Any, lease: timedelta) -> frozenset[str]:
        claims.append(now + lease)
        if seconds < 60:
            assert await sweeping_of(quick.engine).leases.held("sweep/leader"), "not renewed"
        return await inner.claim(rule, some, token, now, lease)

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        assert quick.now < claims[-1], "its claim is over"
        return await quick.engine.bus.publish(messages)

    await quick.put("messages", *stuck(quick, count))
    engine = with_bus(with_candidates(quick.engine, claim=claim), publish=publish)
    async with quick.sweeping(leased(rebuild=rebuild), engine=engine):
        await quick.passed(12 * MINUTE)
    assert quick.facts.of(SweepEnded)[0].collections[0].requeued == count


async def test_workers_that_start_at_once_requeue_once_and_only_if_told(quick: Yard) -> None:
    done: list[str] = []
    service = Service("chunking")

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"))
    async def chunk(event: Any, work: Any) -> None:
        done.extend(event.data["message_doc_ids"])

    await quick.put("messages", *stuck(quick, 30))
    for told in (False, True):
        async with (
            working(quick, service, engine=quick.new_engine(), requeue_at_start=told),
            working(quick, service, engine=quick.new_engine(), requeue_at_start=told),
        ):
            await quick.passed(MINUTE)
        assert sorted(done) == [f"{n:05}" for n in range(30 * told)]
    assert {each["attemptCount"] for each in await quick.all("messages")} == {2}
