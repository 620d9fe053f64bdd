"""What operators do with documents, on the memory engine and a clock that stands still."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from headway import ConfigurationError, Lifecycle, Service
from headway.operations import Choice, Decision, DocumentsReport, StoredDocuments
from headway.testing.ports import (
    Document,
    DocumentDesk,
    Engine,
    History,
    Requeue,
    State,
    SweepRule,
    instant,
    judge,
    sweep_operation,
)
from headway.testing.trial import Trial

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
ALL = Choice(everything=True)
GONE = "failed_max_retries"
ARCHIVE = "messages_dead_letter"
PAGE = 500
"""Documents that a change reads at once."""


class Bench:
    """A collection of documents in every state, and an operator."""

    def __init__(self) -> None:
        self.trial = Trial(Service("chunking"))
        self.rule = SweepRule(lifecycle=Lifecycle("messages"))
        self.operator = self.on(self.trial.engine)

    def on(self, engine: Engine) -> StoredDocuments:
        return StoredDocuments(
            engine,
            self.trial.clock,
            self.trial.chance,
            who="ann@desk",
            rule_of=lambda collection: replace(
                self.rule, lifecycle=replace(self.rule.lifecycle, collection=collection)
            ),
        )

    def ago(self, age: timedelta) -> str:
        return instant(self.trial.clock.now() - age)

    async def put(self, *ids: str, collection: str = "messages", **fields: Any) -> None:
        await self.trial.put(collection, *({"_id": one, **fields} for one in ids))

    async def give_up(self, *ids: str, error: str = "ValueError", **fields: Any) -> None:
        await self.put(
            *ids,
            status=GONE,
            attemptCount=3,
            lastAttemptTime=self.ago(2 * HOUR),
            lastOperation="sweep-2:messages:x",
            sweepGeneration=2,
            lastError={"type": error, "message": "no", "at": self.ago(2 * HOUR)},
            givenUpAt=self.ago(HOUR),
            **fields,
        )

    async def get(self, one: str, collection: str = "messages") -> Document:
        return (await self.trial.engine.documents.fetch(collection, [one]))[one]

    async def ids(self, collection: str = "messages", **where: Any) -> list[str]:
        return [each["_id"] for each in await self.trial.documents(collection, where)]

    async def decide(
        self, decision: Decision, choice: Choice = ALL, **options: Any
    ) -> DocumentsReport:
        return await self.operator.decide(decision, "messages", choice, **options)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_what_is_listed_is_what_is_counted(bench: Bench) -> None:
    now, later = bench.ago(timedelta()), instant(bench.trial.clock.now() + HOUR)
    lease, claim = {"leaseToken": "w"}, {"claimToken": "s", "sweepGeneration": 1}
    tried = {"attemptCount": 1, "lastAttemptTime": bench.ago(HOUR)}
    just_now = {"attemptCount": 1, "lastAttemptTime": now}
    kinds: dict[str, dict[str, Any]] = {
        "lease over": {**tried, **lease, "leaseUntil": now},
        "lease over, backoff": {**just_now, **lease, "leaseUntil": now},
        "lease runs": {**tried, **lease, "leaseUntil": later},
        "lease runs, unmoved": {"attemptCount": 1, **lease, "leaseUntil": later},
        "claim over": {**just_now, **claim, "claimUntil": now},
        "both over": {**tried, **lease, "leaseUntil": now, **claim, "claimUntil": now},
        "claim runs": {**just_now, **claim, "claimUntil": later},
        "in hand": tried,
        "in hand, scheduled": {**tried, "retryAt": later},
        "lost, scheduled": {"retryAt": later},
        "lost": {},
        "young": {"createdAt": now},
        "failed": {**just_now, "status": "failed"},
        "failed, leased": {**just_now, "status": "failed", **lease, "leaseUntil": later},
        "processed": {"status": "processed"},
    }
    for one, fields in kinds.items():
        await bench.put(one, **{"status": "pending", **fields})
    await bench.give_up("given up")
    report = await bench.operator.stuck("messages")
    assert {each.document_id for each in report.first_stuck} == {
        "lease over", "lease over, backoff", "claim over", "both over", "lost", "lost, scheduled",
        "failed", "failed, leased",
    }  # fmt: skip
    sweeps = {each.document_id: (each.sweep, each.why) for each in report.first_stuck}
    assert sweeps["lost"] == ("requeue", "")
    assert sweeps["failed"] == ("leave", "backoff")
    assert sweeps["lost, scheduled"] == ("leave", "scheduled")
    due = {each.document_id: each.prospect.due for each in report.first_stuck}
    assert due["lost"] == bench.trial.clock.now()
    assert due["failed"] == bench.trial.clock.now() + timedelta(minutes=5)
    assert due["lost, scheduled"] == bench.trial.clock.now() + HOUR
    sweeping = bench.trial.engine.sweeping
    assert sweeping is not None
    tally = await sweeping.candidates.tally(
        bench.operator.rule_of("messages"), bench.trial.clock.now()
    )
    assert (tally.stuck, tally.given_up) == (report.stuck, report.given_up) == (8, 1)


async def test_a_reset_lets_a_document_begin_anew(bench: Bench) -> None:
    later = bench.trial.clock.now() + DAY
    await bench.give_up("m", text="kept", retryAt=instant(later))
    report = await bench.decide(Decision.RESET)
    assert (report.chosen, report.done, report.meanwhile) == (1, 1, 0)
    found = await bench.get("m")
    begins_anew = {"status": "pending", "attemptCount": 0, "lastAttemptTime": None}
    assert begins_anew.items() <= found.items()
    assert found["lastOperation"] is None  # so that its dead letter does not look superseded
    assert found["sweepGeneration"] == 2  # never lowered: the next operation has a name of its own
    assert (found["lastError"]["type"], found["text"]) == ("ValueError", "kept")
    now = bench.trial.clock.now()
    operation = sweep_operation("messages", "m", 3, now)
    assert judge(found, bench.rule, now) == Requeue(operation, generation=3, attempt=1)


async def test_states_ids_errors_and_limits_choose(bench: Bench) -> None:
    await bench.give_up("a", "b", "c", error="KeyError")
    await bench.give_up("d", "e", error="OSError")
    await bench.put("f", status="failed", attemptCount=1)
    for choice, pending in (
        (Choice(ids=["a"]), "a"),
        (Choice(error_type="OSError"), "ade"),
        (Choice(everything=True, limit=1), "abde"),
        (ALL, "abcde"),
        (Choice(states=[State.FAILED]), "abcdef"),
    ):
        await bench.decide(Decision.RESET, choice)
        assert await bench.ids(status="pending") == list(pending)


async def test_a_choice_that_says_nothing_or_too_much_is_refused(bench: Bench) -> None:
    await bench.give_up("a")
    for decision in (Decision.RESET, Decision.PURGE, Decision.ARCHIVE, Decision.RESTORE):
        for choice in (Choice(), Choice(ids=["a"], everything=True)):
            with pytest.raises(ConfigurationError):
                await bench.decide(decision, choice)
    with pytest.raises(ConfigurationError, match="time"):
        await bench.decide(Decision.RETRY, Choice(ids=["a"]))
    assert (await bench.get("a"))["status"] == GONE


@pytest.mark.parametrize(
    ("decision", "done"),
    [
        (Decision.RESET, {"given up", "failed", "spent"}),
        (Decision.RETRY, {"failed", "pending"}),
        (Decision.PURGE, {"given up"}),
        (Decision.ARCHIVE, {"given up"}),
    ],
)
async def test_what_a_decision_does_not_fit_is_refused_by_its_id(
    bench: Bench, decision: Decision, done: set[str]
) -> None:
    await bench.give_up("given up")
    await bench.put("pending", status="pending", attemptCount=1, lastAttemptTime=bench.ago(HOUR))
    await bench.put("processed", status="processed")
    await bench.put("of others", status="on holiday")
    await bench.put("failed", status="failed", attemptCount=2, lastAttemptTime=bench.ago(HOUR / 60))
    await bench.put("spent", status="failed", attemptCount=3)
    everything = {"given up", "pending", "processed", "of others", "failed", "spent"}
    at = bench.trial.clock.now() if decision is Decision.RETRY else None
    report = await bench.decide(decision, Choice(ids=[*everything, "unknown"]), at=at)
    assert {each.document_id for each in report.first_refused} == everything - done
    assert (report.done, list(report.missing)) == (len(done), ["unknown"])
    if decision is Decision.RETRY:
        assert report.later == 1, "a worker may still have what is pending"
        found = await bench.get("failed")
        assert (found["attemptCount"], found["status"]) == (2, "failed")
        assert isinstance(judge(found, bench.rule, bench.trial.clock.now()), Requeue)
    if decision in {Decision.PURGE, Decision.ARCHIVE}:
        assert await bench.ids() == sorted(everything - done)
        archived = ["given up"] if decision is Decision.ARCHIVE else []
        assert await bench.ids(ARCHIVE) == archived


@pytest.mark.parametrize("decision", [Decision.ARCHIVE, Decision.RESTORE])
async def test_neither_archive_nor_restore_overwrites_another_under_the_same_id(
    bench: Bench, decision: Decision
) -> None:
    await bench.give_up("a", collection=ARCHIVE, text="archived")
    await bench.give_up("a", text="here")
    report = await bench.decide(decision)
    assert (report.done, report.refused.total()) == (0, 1)
    assert (await bench.get("a"))["text"] == "here"
    assert (await bench.get("a", ARCHIVE))["text"] == "archived"


@pytest.mark.parametrize("decision", list(Decision))
async def test_a_dry_run_changes_nothing_and_says_what_would_be(
    bench: Bench, decision: Decision
) -> None:
    await bench.give_up("a", "b")
    await bench.give_up("c", collection=ARCHIVE)
    await bench.put("f", status="failed", attemptCount=1)
    before = [await bench.trial.documents(name) for name in ("messages", ARCHIVE)]
    at = bench.trial.clock.now() if decision is Decision.RETRY else None
    report = await bench.decide(decision, dry_run=True, at=at)
    meant = {Decision.RETRY: ["f"], Decision.RESTORE: ["c"]}.get(decision, ["a", "b"])
    assert (report.ids, report.done) == (meant, len(meant))
    assert [each.document_id for each in report.first] == meant
    after = [await bench.trial.documents(name) for name in ("messages", ARCHIVE)]
    assert after == before
    assert await bench.operator.history() == []


class Meddling:
    """A desk at which something happens between the look and the change."""

    def __init__(self, desk: DocumentDesk | History, meddle: Callable[[str], Any]) -> None:
        self._desk = desk
        self._meddle = meddle

    def browse(self, *args: Any, **options: Any) -> Any:
        return cast(DocumentDesk, self._desk).browse(*args, **options)

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any) -> Any:
            if (meddled := self._meddle(name)) is not None:
                await meddled
            return await getattr(self._desk, name)(*args)

        return call


def meddled(bench: Bench, meddle: Callable[[str], Any]) -> None:
    """Let a bench's operator work at a desk at which something happens."""
    engine = bench.trial.engine
    assert engine.sweeping is not None
    desk: Any = Meddling(engine.sweeping.desk, meddle)
    history: Any = Meddling(engine.history, meddle)
    bench.operator = bench.on(
        replace(engine, sweeping=replace(engine.sweeping, desk=desk), history=history)
    )


@pytest.mark.parametrize("decision", [Decision.RESET, Decision.PURGE, Decision.ARCHIVE])
async def test_what_changed_meanwhile_is_left_alone_and_counted(
    bench: Bench, decision: Decision
) -> None:
    await bench.give_up("a", "b", "c")

    def meddle(call: str) -> Any:
        if call in {"change", "remove", "move"}:
            return bench.put("b", status="processed")
        return None

    meddled(bench, meddle)
    report = await bench.decide(decision)
    assert (report.chosen, report.done, report.meanwhile) == (3, 2, 1)
    assert (await bench.get("b"))["status"] == "processed"


async def test_what_is_given_up_after_the_question_is_not_removed(bench: Bench) -> None:
    await bench.give_up("old")

    def answer_slowly(_: DocumentsReport) -> None:
        bench.trial.clock.advance(HOUR)
        now = instant(bench.trial.clock.now())
        stored = bench.trial.state.documents["messages"]
        stored["new"] = stored["old"].replace(b'"old"', b'"new"')
        stored["new"] = stored["new"].replace(bench.ago(2 * HOUR).encode(), now.encode())

    report = await bench.decide(Decision.PURGE, before=answer_slowly)
    assert (report.chosen, report.done) == (1, 1)
    assert await bench.ids() == ["new"]


async def test_a_limit_means_the_ones_that_were_shown(bench: Bench) -> None:
    await bench.give_up("a", "b", "c")

    def another_resets_a(_: DocumentsReport) -> None:
        stored = bench.trial.state.documents["messages"]
        stored["a"] = stored["a"].replace(GONE.encode(), b"pending")

    choice = Choice(everything=True, limit=2)
    report = await bench.decide(Decision.PURGE, choice, before=another_resets_a)
    assert (report.chosen, report.done, report.meanwhile) == (2, 1, 1)
    assert await bench.ids() == ["a", "c"]


class PowerCut(BaseException):
    """Nothing that runs gets to say anything any more."""


STEPS: Mapping[Decision, Sequence[str]] = {
    Decision.RESET: ("append", "change", "append"),
    Decision.RETRY: ("append", "change", "append"),
    Decision.PURGE: ("append", "remove", "append"),
    Decision.ARCHIVE: ("append", "move", "append"),
    Decision.RESTORE: ("append", "change", "move", "append"),
}


@pytest.mark.parametrize(
    ("decision", "step"),
    [(decision, step) for decision, steps in STEPS.items() for step in range(len(steps))],
)
async def test_a_change_that_is_killed_leaves_a_trace_and_is_completed_by_the_next(
    bench: Bench, decision: Decision, step: int
) -> None:
    """Killed before each of its durable steps; the one before was stored."""
    if decision is Decision.RESTORE:
        await bench.give_up("a", "b", collection=ARCHIVE)
    elif decision is Decision.RETRY:
        await bench.put("a", "b", status="failed", attemptCount=1)
    else:
        await bench.give_up("a", "b")
    at = bench.trial.clock.now() if decision is Decision.RETRY else None
    usual = bench.operator
    done = 0

    def meddle(_: str) -> None:
        nonlocal done
        done += 1
        if done > step:
            raise PowerCut

    meddled(bench, meddle)
    with pytest.raises(PowerCut):
        await bench.decide(decision, at=at)
    bench.operator = usual
    before = await bench.operator.history()
    assert [note["outcome"] for note in before] == ["intended"] * (step > 0)
    report = await bench.decide(decision, at=at)
    assert not report.refused
    match decision:
        case Decision.RESET | Decision.RESTORE:
            assert await bench.ids(status="pending", attemptCount=0) == ["a", "b"]
        case Decision.RETRY:
            assert await bench.ids(retryAt=instant(bench.trial.clock.now())) == ["a", "b"]
        case Decision.PURGE:
            assert await bench.ids() == []
        case Decision.ARCHIVE:
            assert await bench.ids(ARCHIVE) == ["a", "b"]
    both = [*await bench.ids(), *await bench.ids(ARCHIVE)]
    assert both == ([] if decision is Decision.PURGE else ["a", "b"])


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot be said")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionError("no password=s3cret here"), "ConnectionError: no password=*** here"),
        (UnspeakableError(), "UnspeakableError: "),
        (asyncio.CancelledError(), None),
    ],
    ids=["secret", "unspeakable", "cancelled"],
)
async def test_what_ends_a_change_in_the_middle_is_noted_without_secrets(
    bench: Bench, error: BaseException, why: str | None
) -> None:
    await bench.give_up(*(f"m{n:04}" for n in range(PAGE + 1)))
    changes = notes = 0

    def meddle(call: str) -> None:
        nonlocal changes, notes
        changes += call == "change"
        notes += call == "append"
        if (call == "change" and changes > 1) or notes == 4:
            raise error

    meddled(bench, meddle)
    with pytest.raises(type(error)):
        await bench.decide(Decision.RESET)
    (note,) = await bench.operator.history()
    assert (note["outcome"], note["done"], note["chosen"]) == ("stopped", PAGE, PAGE + 1)
    assert why is None or note["error"] == why
    assert len(await bench.ids(status="pending")) == PAGE
    with pytest.raises(type(error)) as ended:  # and this time not even that can be noted
        await bench.decide(Decision.RESET)
    assert why is None or why in ended.value.__notes__[0]


async def test_an_engine_without_a_store_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="HEADWAY_STORE"):
        bench.on(replace(bench.trial.engine, sweeping=None))
