"""Sweeps in trouble: whatever fails, nothing is lost, burned or sent twice for one attempt."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from headway import ConfigurationError, Lifecycle, Service
from headway.facts import CollectionFailed, DocumentsNotRebuilt, Status, SweepEnded
from headway.testing.engines import without_store
from headway.testing.ports import Engine, Message, decode, sweep_operation, sweep_run
from tests.behaviour.sweeps import (
    CHUNKING,
    DAY,
    MINUTE,
    Yard,
    chunking,
    in_memory,
    lost,
    parsing,
    sweeping_of,
    with_bus,
    with_candidates,
)

SECOND = timedelta(seconds=1)

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
    began = yard.now
    ended = await yard.sweep(chunking(), engine=with_bus(yard.engine, publish=publish))
    assert ended.status is Status.FAILURE
    assert ended.collections[0].errors == {"ConnectionError": 1}
    assert ended.collections[0].tally is not None, "the store was there all the time"
    first = await yard.sent(CHUNKING)
    assert len(first) == stored
    yard.clock.advance(30 * SECOND)
    await yard.sweep(chunking())
    assert await yard.sent(CHUNKING) == [], "the claim still runs"
    yard.clock.advance(31 * SECOND)
    ended = await yard.sweep(chunking())
    assert (ended.status, ended.collections[0].requeued) == (Status.SUCCESS, 1)
    sent = [*first, *await yard.sent(CHUNKING)]  # some engines recognise the second
    operation = sweep_operation("messages", "m", 1, began)
    assert {each.travel.operation for each in sent} == {operation}
    assert {each.travel.generation for each in sent} == {sweep_run(operation)}
    assert len({decode(each.body).event_id for each in sent}) == 1
    document = await yard.get("messages", "m")
    assert (document["attemptCount"], document["lastOperation"]) == (1, operation)
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
    quick.clock.advance(2 * MINUTE)
    ended = await quick.sweep(chunking())
    assert ended.collections[0].requeued == 100
    assert {one["attemptCount"] for one in await quick.all("messages")} == {1}


# Documents of which no event can be made


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    message_doc_ids: list[str]
    count: int


def strict(rebuild: Any, **more: Any) -> Service:
    service = Service("chunking")
    options = {"documents": ("messages", "message_doc_ids"), "data": Strict, "rebuild": rebuild}

    @service.on("JSONParsed", **{**options, **more})
    async def chunk(event: Any, work: Any) -> None: ...

    return service


def counted(document: dict[str, Any]) -> Any:
    return {"message_doc_ids": [document["_id"]], "count": document["count"]}


async def _later(document: dict[str, Any]) -> Any: ...


def raising(error: BaseException) -> Any:
    def rebuild(_: dict[str, Any]) -> Any:
        raise error

    return rebuild


class EndOfProcess(BaseException):
    """What a library raises that would rather end the process."""


INVALID: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a field that is missing": (counted, {}, "KeyError"),
    "a field of another type": (counted, {"count": "many"}, "ValidationError"),
    "about another document": (
        lambda _: {"message_doc_ids": ["x"], "count": 1}, {}, "ValueError",
    ),
    "about several documents": (
        lambda d: {"message_doc_ids": [d["_id"], "x"], "count": 1}, {}, "ValueError",
    ),
    "about none": (lambda _: {"message_doc_ids": [], "count": 1}, {}, "ValueError"),
    "no JSON": (
        lambda d: {"message_doc_ids": [d["_id"]], "count": object()}, {}, "UnsendableError",
    ),
    "a coroutine": (lambda d: _later({**d}), {}, "TypeError"),
    **{
        type(error).__name__: (raising(error), {}, type(error).__name__)
        for error in (
            SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), EndOfProcess(),
            MemoryError(),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("how", INVALID)
async def test_a_document_of_which_no_event_can_be_made_is_isolated(quick: Yard, how: str) -> None:
    rebuild, fields, error = INVALID[how]

    def careful(document: dict[str, Any]) -> Any:
        return counted(document) if document["_id"] == "good" else rebuild(document)

    await quick.put("messages", lost("bad", **fields), lost("good", count=3))
    for run in (1, 2):
        ended = await quick.sweep(strict(careful))
        assert ended.status is Status.FAILURE
        assert ended.collections[0].errors == {error: 1}
        fact = quick.facts.of(DocumentsNotRebuilt)[-1]
        assert (fact.error_type, fact.count, fact.first_id) == (error, 1, "bad")
        assert await quick.sent_ids() == (["good"] if run == 1 else [])
        totals = await quick.totals()
        assert totals[f"retry_job_errors_total|error_type={error}"] == run
        assert totals["retry_job_runs_total|status=failure"] == run
    bad = await quick.get("messages", "bad")
    assert (bad["attemptCount"], bad.get("claimToken"), bad.get("sweepGeneration")) == (
        0, None, None,
    )  # fmt: skip


# Stores and buses that are unavailable


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
    assert totals["retry_job_runs_total|status=failure"] == 1
    assert totals["retry_job_errors_total|error_type=OSError"] == 1
    assert "retry_job_runs_total|status=success" not in totals
    assert (await yard.sweep(parsing(), chunking())).status is Status.SUCCESS


class Unavailable:
    """A store that does not answer until it is back."""

    def __init__(self, engine: Engine) -> None:
        self.is_back = False
        inner = sweeping_of(engine)
        parts = {name: _Gone(self, getattr(inner, name)) for name in _PARTS}
        self.engine = replace(engine, sweeping=replace(inner, **parts))


_PARTS = ("candidates", "leases", "totals")


class _Gone:
    def __init__(self, store: Unavailable, inner: Any) -> None:
        self._store = store
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if not self._store.is_back:
            raise ConnectionRefusedError("no answer")
        return getattr(self._inner, name)


class UnavailableBus:
    """A bus that cannot be opened until it is back."""

    def __init__(self, engine: Engine, yard: Yard) -> None:
        self.is_back = False
        self.tries: list[datetime] = []
        self._bus = engine.bus
        self._yard = yard
        self.engine = with_bus(engine, open=self._open)

    async def _open(self, queues: Any, on_routed: Any = None) -> None:
        self.tries.append(self._yard.now)
        if not self.is_back:
            raise ConnectionRefusedError("no answer from amqp://me:s3cret@there")
        await self._bus.open(queues, on_routed)


async def test_an_unavailable_store_leaves_every_gauge_unknown_and_is_counted_later(
    quick: Yard,
) -> None:
    await quick.put("archives", lost("a", source="x"))
    store = Unavailable(quick.engine)
    sweeper = quick.sweeper(parsing(), chunking(), engine=store.engine)
    ended = await sweeper.sweep_once()
    assert ended.status is Status.FAILURE
    assert ([one.tally for one in ended.collections], ended.totals) == ([None, None], None)
    assert ended.errors == {"ConnectionRefusedError": 1}
    store.is_back = True
    ended = await sweeper.sweep_once()
    assert (ended.status, ended.collections[0].requeued) == (Status.SUCCESS, 1)
    assert ended.totals is not None
    assert ended.totals["retry_job_runs_total|status=failure"] == 1
    assert ended.totals["retry_job_errors_total|error_type=ConnectionRefusedError"] == 1
    assert ended.totals["retry_job_runs_total|status=success"] == 1


async def runs(yard: Yard, broken: Any, back: timedelta, **settings: Any) -> list[SweepEnded]:
    """Let a sweeper run until an engine is back and it has swept; give its runs."""
    async with yard.sweeping(chunking(), engine=broken.engine, interval=15 * MINUTE, **settings):
        await yard.passed(back)
        broken.is_back = True
        while not any(each.status is Status.SUCCESS for each in yard.facts.of(SweepEnded)):
            await yard.clock.wait(SECOND)
    return yard.facts.of(SweepEnded)


@pytest.mark.parametrize("leader", [True, False])
async def test_a_store_that_restarts_is_swept_when_it_answers(quick: Yard, *, leader: bool) -> None:
    await quick.put("messages", lost())
    began = quick.now
    ended = await runs(quick, Unavailable(quick.engine), 20 * SECOND, leader=leader)
    assert [each.status for each in ended] == [Status.FAILURE, Status.SUCCESS]  # no run between
    assert ended[-1].ended - began < 25 * SECOND
    assert ended[-1].collections[0].requeued == 1


async def test_an_unavailable_bus_is_tried_with_growing_pauses(quick: Yard) -> None:
    bus = UnavailableBus(quick.engine, quick)
    await runs(quick, bus, 10 * MINUTE, leader=False)
    waits = [b - a for a, b in zip(bus.tries, bus.tries[1:], strict=False)]
    assert waits[:6] == [n * SECOND for n in (1, 2, 4, 8, 16, 32)]
    assert max(waits) == MINUTE


# What is refused before anything starts


def service(*handlers: Any, lifecycles: Sequence[Lifecycle] = ()) -> Service:
    """Give a service with one handler of messages for each rebuild."""
    made = Service("orders", lifecycles=lifecycles)
    for event_type, rebuild in zip(("MessageStored", "MessageRead"), handlers, strict=False):

        @made.on(event_type, documents=("messages", "ids"), rebuild=rebuild)
        async def handle(event: Any, work: Any) -> None: ...

    return made


REFUSED: dict[str, tuple[Service, dict[str, Any], str]] = {
    "two handlers without rebuild": (service(None, None), {}, "'messages'.*2 handlers"),
    "two handlers with rebuild": (service(counted, counted), {}, "several.*rebuild="),
    "no documents": (service(), {}, "nothing to sweep"),
    "a misspelt lifecycle": (
        service(None, lifecycles=[Lifecycle("mesages")]), {}, "'mesages'.*'messages'",
    ),
    "a misspelt collection": (
        service(None), {"more": {"collections": ["mesages"]}}, "'mesages'.*messages",
    ),
    "a misspelt limit": (service(None), {"max_attempts": {"MESAGES": 3}}, "_MESAGES.*_MESSAGES"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_services_that_cannot_be_swept_are_refused(case: str) -> None:
    given, settings, named = REFUSED[case]
    with pytest.raises(ConfigurationError, match=named):
        Yard(in_memory()).sweeper(given, **settings)


def test_a_bus_without_a_store_cannot_be_swept() -> None:
    yard = Yard(in_memory())
    with pytest.raises(ConfigurationError, match="store"):
        yard.sweeper(chunking(), engine=without_store(yard.engine))
