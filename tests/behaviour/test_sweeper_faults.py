"""Sweeps in trouble: whatever fails, nothing is lost, burned or sent twice for one attempt."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headway import ConfigurationError, Event, Lifecycle, Service, Work
from headway.core.beginning import is_sweep_of
from headway.core.sweep_totals import key
from headway.facts import CollectionFailed, DocumentsNotRebuilt, Status, SweepEnded
from headway.runtime.sweep_events import rebuilt
from headway.runtime.sweeper import Sweeper
from headway.settings import SweepSettings
from headway.testing.engines import memory_engine, without_store
from headway.testing.facts import Recorder
from headway.testing.ports import (
    Engine,
    Message,
    Requeue,
    Travel,
    decode,
    sweep_operation,
    sweep_run,
)
from tests.behaviour.sweeps import (
    CHUNKING,
    DAY,
    MINUTE,
    PARSING,
    Yard,
    chunking,
    data_of,
    parsing,
    sweeping_of,
    with_bus,
    with_candidates,
)

ERRORS = "retry_job_errors_total"


def lost(one: str = "m", **fields: Any) -> dict[str, Any]:
    return {"_id": one, "status": "pending", "attemptCount": 0, **fields}


# Publishing


@pytest.mark.parametrize("stored", [True, False])
async def test_an_unknown_outcome_is_sent_again_under_the_same_operation(
    yard: Yard, *, stored: bool
) -> None:
    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        if stored:
            await yard.engine.bus.publish(messages)
        raise ConnectionError("no answer")

    await yard.put("messages", lost())
    ended = await yard.sweep(chunking(), engine=with_bus(yard.engine, publish=publish))
    assert ended.status is Status.FAILURE
    assert ended.collections[0].errors == {"ConnectionError": 1}
    assert ended.collections[0].tally is not None, "the store was there all the time"
    first = await yard.sent(CHUNKING)
    assert len(first) == stored
    yard.clock.advance(timedelta(seconds=30))
    await yard.sweep(chunking())
    assert await yard.sent(CHUNKING) == [], "the claim still runs"
    yard.clock.advance(timedelta(seconds=31))
    ended = await yard.sweep(chunking())
    assert (ended.status, ended.collections[0].requeued) == (Status.SUCCESS, 1)
    sent = [*first, *await yard.sent(CHUNKING)]  # some engines recognise the second
    (operation,) = {each.travel.operation for each in sent}
    assert is_sweep_of(operation, "messages", "m", 1)
    assert {each.travel.generation for each in sent} == {sweep_run(operation)}
    assert len({decode(each.body).event_id for each in sent}) == 1
    document = await yard.get("messages", "m")
    assert document["attemptCount"] == 1
    assert document["lastOperation"] == operation
    assert document.get("claimToken") is None
    yard.clock.advance(10 * MINUTE)
    await yard.sweep(chunking())
    assert await yard.sent(CHUNKING) == []


async def test_a_definite_refusal_gives_the_attempt_back(yard: Yard) -> None:
    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        raise ConfigurationError("queue='x' was never declared")

    before = lost(attemptCount=1, status="failed", lastAttemptTime=yard.ago(DAY))
    await yard.put("messages", before, {**before, "_id": "n"})
    ended = await yard.sweep(chunking(), engine=with_bus(yard.engine, publish=publish))
    assert ended.collections[0].errors == {"ConfigurationError": 1}
    (fact,) = yard.facts.of(CollectionFailed)
    assert fact.collection == "messages"
    after = await yard.get("messages", "m")
    for field in ("status", "attemptCount", "lastAttemptTime"):
        assert after[field] == before[field]
    ended = await yard.sweep(chunking())
    assert ended.collections[0].requeued == 2
    operations = [delivery.travel.operation for delivery in await yard.sent(CHUNKING)]
    assert sorted(operations) == [
        sweep_operation("messages", one, 2, yard.now) for one in ("m", "n")
    ]
    assert (await yard.get("messages", "m"))["attemptCount"] == 2


async def test_one_message_that_is_refused_does_not_keep_the_others(yard: Yard) -> None:
    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        if any(b'"bad"' in message.body for message in messages):
            raise TypeError("it does not fit")
        return await yard.engine.bus.publish(messages)

    await yard.put("messages", lost("bad"), lost("m"), lost("n"))
    ended = await yard.sweep(chunking(), engine=with_bus(yard.engine, publish=publish))
    assert ended.collections[0].errors == {"TypeError": 1}
    assert ended.collections[0].requeued == 2
    ids = [data_of(each)["message_doc_ids"] for each in await yard.sent(CHUNKING)]
    assert sorted(ids) == [["m"], ["n"]]
    bad = await yard.get("messages", "bad")
    assert (bad["attemptCount"], bad.get("claimToken")) == (0, None)


async def test_a_bus_that_refuses_everything_is_not_asked_for_every_document(
    quick: Yard,
) -> None:
    asked = 0

    async def publish(messages: Sequence[Message]) -> Sequence[int]:
        nonlocal asked
        asked += 1
        raise PermissionError(13, "not yours")

    await quick.put("messages", *(lost(str(n)) for n in range(100)))
    ended = await quick.sweep(chunking(), engine=with_bus(quick.engine, publish=publish))
    assert ended.status is Status.FAILURE
    assert asked < 20
    assert {one["attemptCount"] for one in await quick.all("messages")} <= {0, 1}
    quick.clock.advance(2 * MINUTE)
    ended = await quick.sweep(chunking())
    assert ended.collections[0].requeued == 100
    assert {one["attemptCount"] for one in await quick.all("messages")} == {1}


# Documents of which no event can be made


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    message_doc_ids: list[str]
    count: int


def strict(rebuild: Any) -> Service:
    service = Service("chunking")

    @service.on(
        "JSONParsed", documents=("messages", "message_doc_ids"), data=Strict, rebuild=rebuild
    )
    async def chunk(event: Any, work: Any) -> None: ...

    return service


def counted(document: dict[str, Any]) -> Any:
    return {"message_doc_ids": [document["_id"]], "count": document["count"]}


UNFIT = {
    "a field that is missing": (counted, {}, "KeyError"),
    "a field of another type": (counted, {"count": "many"}, "ValidationError"),
    "about another document": (
        lambda _: {"message_doc_ids": ["x"], "count": 1},
        {},
        "ValueError",
    ),
    "about several documents": (
        lambda d: {"message_doc_ids": [d["_id"], "x"], "count": 1},
        {},
        "ValueError",
    ),
    "about none": (lambda _: {"message_doc_ids": [], "count": 1}, {}, "ValueError"),
    "no JSON": (
        lambda d: {"message_doc_ids": [d["_id"]], "count": object()},
        {},
        "UnsendableError",
    ),
}


@pytest.mark.parametrize("how", UNFIT)
async def test_a_document_of_which_no_event_can_be_made_is_isolated(yard: Yard, how: str) -> None:
    rebuild, fields, error = UNFIT[how]

    def careful(document: dict[str, Any]) -> Any:
        return counted(document) if document["_id"] == "good" else rebuild(document)

    await yard.put("messages", lost("bad", **fields), lost("good", count=3))
    ended = await yard.sweep(strict(careful))
    assert ended.status is Status.FAILURE
    assert ended.collections[0].errors == {error: 1}
    (fact,) = yard.facts.of(DocumentsNotRebuilt)
    assert (fact.error_type, fact.count, fact.first_id) == (error, 1, "bad")
    assert [data_of(each)["message_doc_ids"] for each in await yard.sent(CHUNKING)] == [["good"]]
    bad = await yard.get("messages", "bad")
    assert (bad["attemptCount"], bad.get("claimToken"), bad.get("sweepGeneration")) == (
        0,
        None,
        None,
    )
    totals = await yard.totals()
    assert totals[key(ERRORS, error_type=error)] == 1
    assert totals[key("retry_job_runs_total", status="failure")] == 1
    await yard.sweep(strict(careful))
    assert (await yard.get("messages", "bad"))["attemptCount"] == 0


async def test_without_rebuild_the_event_holds_the_id_and_must_fit_the_schema(
    quick: Yard,
) -> None:
    await quick.put("messages", lost())
    ended = await quick.sweep(strict(None))
    assert ended.collections[0].errors == {"ValidationError": 1}


class Order(msgspec.Struct):
    order_id: str


async def test_without_rebuild_the_event_holds_one_id_where_its_type_does(quick: Yard) -> None:
    service = Service("orders")

    @service.on("OrderPlaced", documents=("orders", "order_id"), data=Order)
    async def place(event: Event[Order], work: Work) -> None: ...

    await quick.put("orders", lost("o-1"))
    ended = await quick.sweep(service)
    assert ended.collections[0].requeued == 1
    assert [data_of(each) for each in await quick.sent("orders.order.placed")] == [
        {"order_id": "o-1"}
    ]


async def test_rebuild_cannot_change_the_document_under_the_claim(quick: Yard) -> None:
    def spoil(document: dict[str, Any]) -> Any:
        data = counted(document)
        document["status"] = "processed"
        document["tags"].append("x")
        return data

    await quick.put("messages", lost(count=1, tags=["y"]))
    ended = await quick.sweep(strict(spoil))
    assert ended.collections[0].requeued == 1
    assert (await quick.get("messages", "m"))["tags"] == ["y"]


async def test_a_rebuild_that_gives_back_a_coroutine_is_refused(quick: Yard) -> None:
    async def rebuild(document: dict[str, Any]) -> Any: ...

    await quick.put("messages", lost())
    ended = await quick.sweep(strict(lambda document: rebuild({**document})))
    assert ended.collections[0].errors == {"TypeError": 1}


async def test_what_dedup_raises_is_found_before_anything_is_sent(quick: Yard) -> None:
    service = Service("chunking")

    def name(event: Event) -> str:
        raise LookupError("no name for it")

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"), dedup=name)
    async def chunk(event: Any, work: Any) -> None: ...

    await quick.put("messages", lost())
    ended = await quick.sweep(service)
    assert ended.collections[0].errors == {"LookupError": 1}
    assert await quick.sent(CHUNKING) == []


async def test_the_same_attempt_has_the_same_event_whenever_it_is_made(quick: Yard) -> None:
    (target,) = quick.sweeper(chunking()).targets
    requeue = Requeue("sweep-2@20260301T120000.000Z:messages:m", 2, 3)
    first = rebuilt(target, lost(), requeue, quick.now)
    second = rebuilt(target, lost(), requeue, quick.now)
    other = rebuilt(target, lost(), Requeue("sweep-3:messages:m", 3, 4), quick.now)
    assert first.message == second.message
    assert first.message.travel == Travel(
        operation=requeue.operation, generation="s2@20260301T120000.000Z"
    )
    assert first.message.queue == CHUNKING
    ids = [msgspec.json.decode(each.message.body)["event_id"] for each in (first, other)]
    assert ids[0] != ids[1]


# Stores


async def test_one_bad_collection_does_not_end_the_run(yard: Yard) -> None:
    inner = sweeping_of(yard.engine).candidates

    def scan(rule: Any, *args: Any, **settings: Any) -> Any:
        if rule.collection == "archives":
            raise OSError("the index is corrupt: token=s3cret")
        return inner.scan(rule, *args, **settings)

    await yard.put("messages", lost())
    engine = with_candidates(yard.engine, scan=scan)
    ended = await yard.sweep(parsing(), chunking(), engine=engine)
    archives, messages = ended.collections
    assert archives.errors == {"OSError": 1}
    assert archives.broken_by == "OSError: the index is corrupt: token=***"
    assert (messages.requeued, messages.errors) == (1, {})
    assert ended.status is Status.FAILURE
    totals = await yard.totals()
    assert totals[key("retry_job_runs_total", status="failure")] == 1
    assert totals[key(ERRORS, error_type="OSError")] == 1
    assert key("retry_job_runs_total", status="success") not in totals
    ended = await yard.sweep(parsing(), chunking())
    assert ended.status is Status.SUCCESS


async def test_a_store_that_is_away_leaves_every_gauge_unknown(quick: Yard) -> None:
    await quick.put("archives", {"_id": "a", "source": "x", "status": "pending"})
    away = Away(quick.engine)
    sweeper = quick.sweeper(parsing(), chunking(), engine=away.engine)
    ended = await sweeper.sweep_once()
    assert ended.status is Status.FAILURE
    assert [one.tally for one in ended.collections] == [None, None]
    assert ended.totals is None
    assert ended.errors == {"ConnectionRefusedError": 1}
    away.is_back = True
    ended = await sweeper.sweep_once()
    assert (ended.status, ended.collections[0].requeued) == (Status.SUCCESS, 1)
    assert ended.totals is not None
    # What it could not count then, it counts now.
    assert ended.totals[key("retry_job_runs_total", status="failure")] == 1
    assert ended.totals[key(ERRORS, error_type="ConnectionRefusedError")] == 1
    assert ended.totals[key("retry_job_runs_total", status="success")] == 1


async def test_a_bus_that_is_away_leaves_the_gauges_known(quick: Yard) -> None:
    async def open_bus(queues: Any, on_routed: Any = None) -> None:
        raise ConnectionRefusedError("nobody is at amqp://me:s3cret@there")

    await quick.put("messages", lost())
    ended = await quick.sweep(chunking(), engine=with_bus(quick.engine, open=open_bus))
    assert ended.status is Status.FAILURE
    assert ended.collections[0].broken_by == (
        "ConnectionRefusedError: nobody is at amqp://me:***@there"
    )
    assert ended.errors == {"ConnectionRefusedError": 1}
    assert ended.collections[0].tally is not None
    assert ended.collections[0].tally.stuck == 1
    assert ended.totals is not None
    assert (await quick.get("messages", "m"))["attemptCount"] == 0


class Away:
    """A store that does not answer until it is back."""

    def __init__(self, engine: Engine) -> None:
        self.is_back = False
        inner = sweeping_of(engine)
        sweeping = replace(
            inner,
            candidates=_Gone(self, inner.candidates),
            leases=_Gone(self, inner.leases),
            totals=_Gone(self, inner.totals),
        )
        self.engine = replace(engine, sweeping=sweeping)


class _Gone:
    def __init__(self, away: Away, inner: Any) -> None:
        self._away = away
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if not self._away.is_back:
            raise ConnectionRefusedError("nobody is there")
        return getattr(self._inner, name)


async def test_observers_and_pushes_that_fail_do_not_end_the_run(quick: Yard) -> None:
    class Broken(Recorder):
        def tell(self, fact: Any) -> None:
            super().tell(fact)
            raise RuntimeError("no")

    async def push() -> None:
        raise OSError("nobody is there")

    broken = Broken()
    await quick.put("messages", lost())
    sweeper = Sweeper(
        [chunking()],
        quick.engine,
        clock=quick.clock,
        chance=quick.chance,
        observer=broken,
        after_run=push,
    )
    assert (await sweeper.sweep_once()).collections[0].requeued == 1
    assert broken.of(SweepEnded)


# What is refused before anything starts


def two_handlers(*rebuilds: Any) -> list[Service]:
    services = [Service(f"s{n}") for n in range(len(rebuilds))]
    for service, rebuild in zip(services, rebuilds, strict=True):

        @service.on("JSONParsed", documents=("messages", "ids"), rebuild=rebuild)
        async def handle(event: Any, work: Any) -> None: ...

    return services


def test_two_handlers_of_one_collection_need_one_rebuild() -> None:
    yard = Yard(_memory)
    with pytest.raises(ConfigurationError, match=r"'messages' are worked on by 2 handlers.*none"):
        yard.sweeper(*two_handlers(None, None))
    with pytest.raises(ConfigurationError, match=r"several of them have rebuild="):
        yard.sweeper(*two_handlers(counted, counted))
    (target,) = yard.sweeper(*two_handlers(None, counted)).targets
    assert target.subscription.service == "s1"


def _memory(clock: Any, chance: Any) -> Engine:
    return memory_engine(clock, chance)


def test_services_without_documents_are_refused() -> None:
    service = Service("orders")

    @service.on("OrderPlaced")
    async def handle(event: Any, work: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=r"nothing to sweep.*orders.*documents="):
        Yard(_memory).sweeper(service)


def test_a_lifecycle_of_a_collection_that_is_nearly_one_of_a_handler_is_refused() -> None:
    service = Service("orders", lifecycles=[Lifecycle("mesages"), Lifecycle("parcels")])

    @service.on("OrderPlaced", documents=("messages", "ids"))
    async def handle(event: Any, work: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=r"'mesages'.*did you mean 'messages'"):
        Yard(_memory).sweeper(service)


def test_a_collection_that_is_not_swept_is_refused() -> None:
    yard = Yard(_memory)
    with pytest.raises(ConfigurationError, match=r"'mesages' is not swept here: did you mean"):
        Sweeper(
            [chunking()],
            yard.engine,
            clock=yard.clock,
            chance=yard.chance,
            observer=yard.facts,
            collections=["mesages"],
        )


def test_a_limit_for_a_collection_that_is_misspelt_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"_MESAGES is for no collection.*_MESSAGES"):
        Yard(_memory).sweeper(chunking(), max_attempts={"MESAGES": 3})


def test_a_bus_without_a_store_cannot_be_swept() -> None:
    yard = Yard(_memory)
    engine = without_store(yard.engine)
    with pytest.raises(ConfigurationError, match="a sweep needs a store"):
        yard.sweeper(chunking(), engine=engine)


def test_settings_of_a_rule_reach_the_rule() -> None:
    settings = SweepSettings(base_delay=MINUTE, max_delay=2 * MINUTE, grace=DAY, stuck_after=DAY)
    (target,) = Yard(_memory).sweeper(chunking(), **_fields(settings)).targets
    rule = target.rule
    assert (rule.base_delay, rule.max_delay, rule.grace) == (MINUTE, 2 * MINUTE, DAY)


def _fields(settings: SweepSettings) -> dict[str, Any]:
    return {
        "base_delay": settings.base_delay,
        "max_delay": settings.max_delay,
        "grace": settings.grace,
        "stuck_after": settings.stuck_after,
    }


async def test_archives_are_told_from_messages(quick: Yard) -> None:
    await quick.put("archives", {"_id": "x", "source": "s", "status": "pending"})
    await quick.put("messages", lost("x"))
    await quick.sweep(parsing(), chunking())
    for queue, collection in ((PARSING, "archives"), (CHUNKING, "messages")):
        operations = [each.travel.operation for each in await quick.sent(queue)]
        assert operations == [sweep_operation(collection, "x", 1, quick.now)]
