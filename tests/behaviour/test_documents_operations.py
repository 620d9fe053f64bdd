"""What operators do with documents, on the memory engine and a clock that stands still."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from headway import ConfigurationError, Lifecycle, Service
from headway.operations import Choice, Decision, DocumentsReport, StoredDocuments
from headway.runtime.documents_choosing import PAGE
from headway.runtime.history import Subject, read_history
from headway.testing.ports import (
    Beginning,
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


class Bench:
    """A collection of documents in every state, and an operator."""

    def __init__(self, rule: SweepRule | None = None) -> None:
        self.trial = Trial(Service("chunking"))
        self.rule = rule or SweepRule(lifecycle=Lifecycle("messages"))
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

    @property
    def desk(self) -> DocumentDesk:
        assert self.trial.engine.sweeping is not None
        return self.trial.engine.sweeping.desk

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


async def test_what_is_stuck_is_listed_with_what_a_sweep_would_do(bench: Bench) -> None:
    await bench.put("lost", status="pending", attemptCount=0, lastAttemptTime=None)
    await bench.put("born", status="pending", createdAt=bench.ago(timedelta(minutes=1)))
    await bench.put("dead", status="pending", attemptCount=1, lastAttemptTime=bench.ago(2 * DAY))
    await bench.put("busy", status="pending", attemptCount=1, lastAttemptTime=bench.ago(HOUR))
    await bench.put("soon", status="failed", attemptCount=2, lastAttemptTime=bench.ago(HOUR / 12))
    await bench.put("over", status="failed", attemptCount=3, lastAttemptTime=bench.ago(HOUR / 12))
    await bench.put(
        "set", status="failed", attemptCount=1, retryAt=instant(bench.trial.clock.now() + HOUR)
    )
    await bench.put("done", status="processed", attemptCount=1, lastAttemptTime=bench.ago(2 * DAY))
    await bench.give_up("gone", error="KeyError")
    report = await bench.operator.stuck("messages")
    now = bench.trial.clock.now()
    assert {each.document_id: (each.sweep, each.why) for each in report.first_stuck} == {
        "lost": ("requeue", ""),
        "dead": ("requeue", ""),
        "soon": ("leave", "backoff"),
        "over": ("give up", ""),
        "set": ("leave", "scheduled"),
    }
    due = {each.document_id: each.prospect.due for each in report.first_stuck}
    assert due["lost"] == due["dead"] == due["over"] == now
    assert due["soon"] == now + timedelta(minutes=5)  # 10 minutes after the second attempt
    assert due["set"] == now + HOUR
    assert (report.stuck, report.given_up, report.young) == (5, 1, 1)
    assert report.reasons == {"requeue": 2, "backoff": 1, "give up": 1, "scheduled": 1}
    assert report.given_up_errors == {"KeyError": 1}
    (gone,) = report.first_given_up
    assert (gone.document_id, gone.sweep, gone.why) == ("gone", "leave", "given up")
    assert gone.prospect.due is None
    assert gone.last_error["type"] == "KeyError"


async def test_a_document_in_two_views_is_counted_once(bench: Bench) -> None:
    old = bench.ago(3 * DAY)
    leases: dict[str, dict[str, Any]] = {
        "leased": {"leaseToken": "w", "leaseUntil": old},
        "claimed": {"claimToken": "s", "claimUntil": old, "sweepGeneration": 1},
        "both": {"leaseToken": "w", "leaseUntil": old, "claimToken": "s", "claimUntil": old},
    }
    for one, fields in leases.items():
        await bench.put(one, status="pending", attemptCount=1, lastAttemptTime=old, **fields)
    report = await bench.operator.stuck("messages")
    assert sorted(each.document_id for each in report.first_stuck) == ["both", "claimed", "leased"]
    assert report.stuck == 3


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
        "lease over", "lease over, backoff", "claim over", "lost", "lost, scheduled", "failed",
        "failed, leased",
    }  # fmt: skip
    sweeping = bench.trial.engine.sweeping
    assert sweeping is not None
    tally = await sweeping.candidates.tally(
        bench.operator.rule_of("messages"), bench.trial.clock.now()
    )
    assert (tally.stuck, tally.given_up) == (report.stuck, report.given_up) == (7, 1)


async def test_the_list_has_a_limit_and_the_numbers_have_none(bench: Bench) -> None:
    for n in range(30):
        await bench.put(f"s{n:02}", status="failed", attemptCount=1)
        await bench.give_up(f"g{n:02}")
    report = await bench.operator.stuck("messages", limit=4)
    assert (len(report.first_stuck), len(report.first_given_up)) == (4, 4)
    assert (report.stuck, report.given_up) == (30, 30)


async def test_the_oldest_are_listed_first_whatever_is_wrong_with_them(bench: Bench) -> None:
    for age in (3, 1, 5):
        at = bench.ago(age * DAY)
        await bench.put(f"f{age}", status="failed", attemptCount=1, lastAttemptTime=at)
        await bench.put(f"p{age}", status="pending", attemptCount=1, lastAttemptTime=at)
    await bench.put("nobody knows", status="pending")
    await bench.put("made", status="pending", createdAt=bench.ago(4 * DAY))
    report = await bench.operator.stuck("messages", limit=5)
    found = [each.document_id for each in report.first_stuck]
    assert found == ["nobody knows", "f5", "p5", "made", "f3"]


async def test_a_reset_lets_a_document_begin_anew(bench: Bench) -> None:
    await bench.give_up("m", text="kept")
    report = await bench.decide(Decision.RESET)
    assert (report.chosen, report.done, report.meanwhile) == (1, 1, 0)
    found = await bench.get("m")
    assert (found["status"], found["attemptCount"], found["lastAttemptTime"]) == (
        "pending",
        0,
        None,
    )
    assert found["lastOperation"] is None  # so that its letter is not taken for overtaken
    assert found["sweepGeneration"] == 2  # never lowered: the next operation has a name of its own
    assert (found["lastError"]["type"], found["text"]) == ("ValueError", "kept")
    now = bench.trial.clock.now()
    operation = sweep_operation("messages", "m", 3, now)
    assert judge(found, bench.rule, now) == Requeue(operation, generation=3, attempt=1)


async def test_a_reset_can_wait_for_a_time(bench: Bench) -> None:
    await bench.give_up("m")
    at = bench.trial.clock.now() + HOUR
    await bench.decide(Decision.RESET, at=at)
    found = await bench.get("m")
    assert found["retryAt"] == instant(at)
    assert not isinstance(judge(found, bench.rule, at - timedelta(seconds=1)), Requeue)
    assert isinstance(judge(found, bench.rule, at), Requeue)


async def test_a_reset_without_a_time_takes_an_older_one_back(bench: Bench) -> None:
    await bench.give_up("m", retryAt=instant(bench.trial.clock.now() + DAY))
    await bench.decide(Decision.RESET)
    assert isinstance(judge(await bench.get("m"), bench.rule, bench.trial.clock.now()), Requeue)


async def test_a_flag_stays_false_and_the_document_is_pending_again() -> None:
    lifecycle = Lifecycle("messages", flag="embedded", max_attempts=5)
    bench = Bench(SweepRule(lifecycle=lifecycle))
    await bench.give_up("m", embedded=False, lastFailedAt=bench.ago(HOUR))
    await bench.decide(Decision.RESET)
    found = await bench.get("m")
    assert found["embedded"] is False
    assert lifecycle.state(found) is State.PENDING
    assert isinstance(judge(found, bench.rule, bench.trial.clock.now()), Requeue)


async def test_a_reset_of_all_means_what_was_given_up(bench: Bench) -> None:
    await bench.give_up("g")
    await bench.put("f", status="failed", attemptCount=1)
    await bench.decide(Decision.RESET)
    assert (await bench.get("f"))["status"] == "failed"
    report = await bench.decide(Decision.RESET, Choice(states=[State.FAILED]))
    assert (report.done, (await bench.get("f"))["attemptCount"]) == (1, 0)


async def test_ids_errors_and_limits_choose(bench: Bench) -> None:
    await bench.give_up("a", "b", "c", error="KeyError")
    await bench.give_up("d", "e", error="OSError")
    await bench.decide(Decision.RESET, Choice(ids=["a"]))
    assert await bench.ids(status="pending") == ["a"]
    await bench.decide(Decision.RESET, Choice(error_type="OSError"))
    assert await bench.ids(status="pending") == ["a", "d", "e"]
    await bench.decide(Decision.RESET, Choice(everything=True, limit=1))
    assert await bench.ids(status="pending") == ["a", "b", "d", "e"]


async def test_nothing_said_means_nothing(bench: Bench) -> None:
    await bench.give_up("a")
    for decision in (Decision.RESET, Decision.PURGE, Decision.ARCHIVE, Decision.RESTORE):
        with pytest.raises(ConfigurationError, match="not said which documents are meant"):
            await bench.decide(decision, Choice())
    with pytest.raises(ConfigurationError, match="not accepted together"):
        await bench.decide(Decision.RESET, Choice(ids=["a"], everything=True))
    assert (await bench.get("a"))["status"] == GONE


async def test_what_cannot_be_reset_is_refused_with_the_reason(bench: Bench) -> None:
    await bench.put("p", status="pending")
    await bench.put("d", status="processed")
    await bench.put("x", status="on holiday")
    await bench.give_up("g")
    report = await bench.decide(Decision.RESET, Choice(ids=["p", "d", "x", "g", "nobody"]))
    assert {each.document_id: each.reason[:16] for each in report.first_refused} == {
        "p": "it is pending, s",
        "d": "it is processed:",
        "x": "its status is no",
    }
    assert (report.done, list(report.missing)) == (1, ["nobody"])


async def test_a_retry_sets_a_time_and_counts_nothing(bench: Bench) -> None:
    await bench.put("f", status="failed", attemptCount=2, lastAttemptTime=bench.ago(HOUR / 60))
    at = bench.trial.clock.now()
    report = await bench.decide(Decision.RETRY, Choice(ids=["f"]), at=at)
    found = await bench.get("f")
    assert (report.done, found["attemptCount"], found["status"]) == (1, 2, "failed")
    assert isinstance(judge(found, bench.rule, at), Requeue)  # its backoff would be 10 minutes


async def test_a_retry_without_an_attempt_left_is_refused_with_the_cure(bench: Bench) -> None:
    await bench.put("f", status="failed", attemptCount=3)
    await bench.give_up("g")
    report = await bench.decide(Decision.RETRY, Choice(ids=["f", "g"]), at=bench.trial.clock.now())
    assert report.done == 0
    assert report.refused == {"it has no attempts left: reset it (headway documents reset)": 2}
    with pytest.raises(ConfigurationError, match="needs the time"):
        await bench.decide(Decision.RETRY, Choice(ids=["f"]))


async def test_a_retry_says_which_may_still_be_in_a_workers_hands(bench: Bench) -> None:
    await bench.put("p", status="pending", attemptCount=1, lastAttemptTime=bench.ago(HOUR))
    await bench.put("f", status="failed", attemptCount=1, lastAttemptTime=bench.ago(HOUR))
    at = bench.trial.clock.now() + HOUR
    report = await bench.decide(Decision.RETRY, Choice(ids=["p", "f"]), at=at)
    assert (report.done, report.later) == (2, 1)


@pytest.mark.parametrize("decision", [Decision.PURGE, Decision.ARCHIVE])
async def test_only_what_was_given_up_is_removed_or_put_away(
    bench: Bench, decision: Decision
) -> None:
    await bench.give_up("g1", "g2")
    await bench.put("f", status="failed", attemptCount=1)
    await bench.put("p", status="pending")
    report = await bench.decide(decision, Choice(ids=["g1", "f", "p"]))
    assert (report.done, report.refused.total()) == (1, 2)
    assert await bench.ids() == ["f", "g2", "p"]
    assert (await bench.decide(decision)).done == 1
    assert await bench.ids() == ["f", "p"]
    archived = ["g1", "g2"] if decision is Decision.ARCHIVE else []
    assert await bench.ids("messages_dead_letter") == archived


async def test_what_was_put_away_comes_back_pending(bench: Bench) -> None:
    await bench.give_up("a", "b", text="kept")
    await bench.decide(Decision.ARCHIVE)
    assert await bench.ids() == []
    report = await bench.decide(Decision.RESTORE, Choice(ids=["a", "nobody"]))
    assert (report.done, list(report.missing)) == (1, ["nobody"])
    assert await bench.ids("messages_dead_letter") == ["b"]
    found = await bench.get("a")
    assert (found["status"], found["attemptCount"], found["text"]) == ("pending", 0, "kept")
    assert found["sweepGeneration"] == 2
    assert (await bench.decide(Decision.RESTORE)).done == 1
    assert await bench.ids() == ["a", "b"]


async def test_what_was_put_away_does_not_overwrite_what_came_since(bench: Bench) -> None:
    await bench.give_up("a")
    await bench.decide(Decision.ARCHIVE)
    await bench.put("a", status="processed", text="newer")
    report = await bench.decide(Decision.RESTORE)
    assert (report.done, report.refused.total()) == (0, 1)
    assert (await bench.get("a"))["text"] == "newer"
    assert (await bench.get("a", "messages_dead_letter"))["status"] == GONE


async def test_what_was_put_away_before_under_the_same_id_stays_what_it_is(bench: Bench) -> None:
    await bench.give_up("a", collection="messages_dead_letter", text="older")
    await bench.give_up("a", "b")
    report = await bench.decide(Decision.ARCHIVE)
    reason = "there is one with its id in messages_dead_letter: keep one of the two"
    assert (report.done, report.refused) == (1, {reason: 1})
    assert await bench.ids() == ["a"]
    assert (await bench.get("a", "messages_dead_letter"))["text"] == "older"


@pytest.mark.parametrize("decision", list(Decision))
async def test_a_dry_run_changes_nothing_and_says_what_would_be(
    bench: Bench, decision: Decision
) -> None:
    await bench.give_up("a", "b")
    await bench.give_up("c", collection="messages_dead_letter")
    await bench.put("f", status="failed", attemptCount=1)
    before = [await bench.trial.documents(name) for name in ("messages", "messages_dead_letter")]
    at = bench.trial.clock.now() if decision is Decision.RETRY else None
    report = await bench.decide(decision, dry_run=True, at=at)
    meant = {Decision.RETRY: ["f"], Decision.RESTORE: ["c"]}.get(decision, ["a", "b"])
    assert (report.ids, report.done) == (meant, len(meant))
    assert [each.document_id for each in report.first] == meant
    after = [await bench.trial.documents(name) for name in ("messages", "messages_dead_letter")]
    assert after == before
    assert await bench.operator.history() == []


class Meddling:
    """A desk at which something happens between the look and the change."""

    def __init__(self, desk: DocumentDesk | History, meddle: Callable[[str], Any]) -> None:
        self._desk = desk
        self._meddle = meddle
        self.calls: list[str] = []
        self.pages: list[int] = []

    async def browse(self, *args: Any, **options: Any) -> Any:
        async for page in cast(DocumentDesk, self._desk).browse(*args, **options):
            self.calls.append("page")
            self.pages.append(len(page))
            yield page

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any) -> Any:
            self.calls.append(name)
            if (meddled := self._meddle(name)) is not None:
                await meddled
            return await getattr(self._desk, name)(*args)

        return call


def meddled(bench: Bench, meddle: Callable[[str], Any]) -> Meddling:
    """Let a bench's operator work at a desk at which something happens."""
    engine = bench.trial.engine
    assert engine.sweeping is not None
    desk = Meddling(engine.sweeping.desk, meddle)
    history: Any = Meddling(engine.history, meddle)
    history.calls = desk.calls
    bench.operator = bench.on(
        replace(engine, sweeping=replace(engine.sweeping, desk=desk), history=history)
    )
    return desk


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


async def test_an_event_that_began_meanwhile_is_not_disturbed(bench: Bench) -> None:
    await bench.put("f", status="failed", attemptCount=1, lastAttemptTime=bench.ago(HOUR))

    def meddle(call: str) -> Any:
        lifecycle = Lifecycle("messages")
        now = bench.trial.clock.now()
        begins = Beginning(lifecycle=lifecycle, ids=("f",), operation="op", now=now)
        return bench.trial.engine.documents.begin([begins]) if call == "change" else None

    meddled(bench, meddle)
    report = await bench.decide(Decision.RESET, Choice(ids=["f"]))
    assert (report.done, report.meanwhile) == (0, 1)
    found = await bench.get("f")
    assert (found["attemptCount"], found["lastOperation"]) == (2, "op")


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

    def somebody_resets_a(_: DocumentsReport) -> None:
        stored = bench.trial.state.documents["messages"]
        stored["a"] = stored["a"].replace(GONE.encode(), b"pending")

    choice = Choice(everything=True, limit=2)
    report = await bench.decide(Decision.PURGE, choice, before=somebody_resets_a)
    assert (report.chosen, report.done, report.meanwhile) == (2, 1, 1)
    assert await bench.ids() == ["a", "c"]


async def test_a_no_to_the_question_changes_nothing_and_is_no_change(bench: Bench) -> None:
    await bench.give_up("a")

    def no(_: DocumentsReport) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await bench.decide(Decision.PURGE, before=no)
    assert await bench.ids() == ["a"]
    assert await bench.operator.history() == []


async def test_who_did_what_is_noted_before_and_after(bench: Bench) -> None:
    await bench.give_up("a", "b")
    desk = meddled(bench, lambda _: None)
    await bench.decide(Decision.RESET, Choice(error_type="ValueError"))
    assert desk.calls == ["page", "append", "page", "change", "append"]
    intended, complete = reversed(await bench.trial.engine.history.latest(10))
    assert (intended["outcome"], intended["chosen"], intended["done"]) == ("intended", 2, 0)
    assert (complete["outcome"], complete["chosen"], complete["done"]) == ("complete", 2, 2)
    for note in (intended, complete):
        assert (note["who"], note["what"], note["collection"]) == ("ann@desk", "reset", "messages")
        assert note["selection"] == "status=failed_max_retries error=ValueError"
        assert note["ids"] == ["a", "b"]
    (only,) = await bench.operator.history()
    assert only == complete


async def test_the_history_is_of_changes_the_newest_first(bench: Bench) -> None:
    for n in range(5):
        await bench.give_up(f"m{n}")
        await bench.decide(Decision.RESET)
        bench.trial.clock.advance(HOUR)
    latest = await bench.operator.history(limit=3)
    assert [note["ids"] for note in latest] == [["m4"], ["m3"], ["m2"]]
    assert {note["outcome"] for note in latest} == {"complete"}
    killed = {**latest[0], "change": "x", "outcome": "intended", "at": bench.ago(timedelta())}
    await bench.trial.engine.history.append(killed)  # of which there is one note only
    latest = await bench.operator.history(limit=2)
    assert [note["outcome"] for note in latest] == ["intended", "complete"]


async def test_notes_of_one_instant_may_come_in_any_order(bench: Bench) -> None:
    class Mixed(Meddling):
        async def latest(self, limit: int) -> Sequence[Document]:
            found = await bench.trial.engine.history.latest(limit)
            return [found[1], found[0]]

    await bench.give_up("a")
    await bench.decide(Decision.RESET)
    mixed: Any = Mixed(bench.trial.engine.history, lambda _: None)
    (note,) = await read_history(mixed, 20, Subject.COLLECTION)
    assert note["outcome"] == "complete"


async def test_a_note_names_a_hundred_documents_and_not_all(bench: Bench) -> None:
    await bench.give_up(*(f"m{n:04}" for n in range(1200)))
    await bench.decide(Decision.RESET)
    (note,) = await bench.operator.history()
    assert (note["done"], len(note["ids"])) == (1200, 100)


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
        await bench.give_up("a", "b", collection="messages_dead_letter")
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
            assert await bench.ids("messages_dead_letter") == ["a", "b"]
    both = [*await bench.ids(), *await bench.ids("messages_dead_letter")]
    assert both == ([] if decision is Decision.PURGE else ["a", "b"])


async def test_an_error_in_the_middle_is_noted_as_such(bench: Bench) -> None:
    await bench.give_up(*(f"m{n:04}" for n in range(PAGE + 1)))
    changes = 0

    def meddle(call: str) -> None:
        nonlocal changes
        changes += call == "change"
        if changes == 2:
            changes = 3  # and the note about it gets through
            raise ConnectionError("the store is away")

    meddled(bench, meddle)
    with pytest.raises(ConnectionError, match="the store is away"):
        await bench.decide(Decision.RESET)
    (note,) = await bench.operator.history()
    assert (note["outcome"], note["done"], note["chosen"]) == ("stopped", PAGE, PAGE + 1)
    assert note["error"] == "ConnectionError: the store is away"
    assert len(await bench.ids(status="pending")) == PAGE


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot be said")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionError("no password=s3cret here"), "ConnectionError: no password=*** here"),
        (UnspeakableError(), "UnspeakableError: "),
    ],
    ids=["secret", "unspeakable"],
)
async def test_whatever_ends_a_change_is_noted_without_secrets(
    bench: Bench, error: Exception, why: str
) -> None:
    await bench.give_up("a")
    notes = 0

    def meddle(call: str) -> None:
        nonlocal notes
        notes += call == "append"
        if call == "change" or notes == 4:
            raise error

    meddled(bench, meddle)
    with pytest.raises(type(error)):
        await bench.decide(Decision.RESET)
    (note,) = await bench.operator.history()
    assert note["error"] == why
    with pytest.raises(type(error)) as ended:  # and this time not even that can be noted
        await bench.decide(Decision.RESET)
    assert ended.value.__notes__ == [f"Recording the outcome failed too: {why}"]


async def test_who_put_documents_away_is_found_among_all_changes(bench: Bench) -> None:
    for one in "abcdefg":
        await bench.give_up(one)
        await bench.decide(Decision.ARCHIVE, Choice(ids=[one]))
        bench.trial.clock.advance(HOUR)
    await bench.give_up("z")
    await bench.decide(Decision.RESET)
    found = await bench.operator.archivings("messages")
    assert [(each["who"], each["ids"]) for each in found] == [
        ("ann@desk", [one]) for one in "gfedc"
    ]
    assert await bench.operator.archivings("chunks") == []


async def test_a_change_that_is_cancelled_is_noted_as_such(bench: Bench) -> None:
    await bench.give_up("a")

    def meddle(call: str) -> None:
        if call == "remove":
            raise asyncio.CancelledError

    meddled(bench, meddle)
    with pytest.raises(asyncio.CancelledError):
        await bench.decide(Decision.PURGE)
    (note,) = await bench.operator.history()
    assert (note["outcome"], note["done"]) == ("stopped", 0)


async def test_large_sets_are_changed_page_by_page(bench: Bench) -> None:
    await bench.give_up(*(f"m{n:05}" for n in range(4 * PAGE)))
    desk = meddled(bench, lambda _: None)
    told: list[tuple[bool, int, int]] = []

    def tell(report: DocumentsReport) -> None:
        told.append((report.planned, report.done, report.chosen))

    report = await bench.decide(Decision.PURGE, on_progress=tell)
    assert report.done == 4 * PAGE
    assert max(desk.pages) == PAGE
    # One page is read, removed, and only then the next one is read.
    assert desk.calls == ["page"] * 4 + ["append"] + ["page", "remove"] * 4 + ["append"]
    assert told[:4] == [(False, 0, n * PAGE) for n in range(1, 5)]
    assert told[4:] == [(True, n * PAGE, 4 * PAGE) for n in range(1, 5)]


async def test_an_export_gives_every_document_once(bench: Bench) -> None:
    await bench.give_up("g")
    await bench.put("f", status="failed", attemptCount=1)
    await bench.put("p", "q", status="pending")
    await bench.put("d", status="processed")
    await bench.put("x", status="on holiday")

    async def export(choice: Choice) -> list[str]:
        found = bench.operator.export("messages", choice)
        return [each["_id"] async for each in found]

    assert await export(Choice()) == ["d", "f", "g", "p", "q", "x"]
    assert await export(Choice(states=[State.GIVEN_UP, State.FAILED])) == ["f", "g"]
    assert await export(Choice(ids=["p", "g", "nobody"])) == ["p", "g"]
    assert await export(Choice(error_type="ValueError")) == ["g"]
    assert await export(Choice(limit=2)) == ["d", "f"]


async def test_an_engine_without_a_store_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="HEADWAY_STORE"):
        bench.on(replace(bench.trial.engine, sweeping=None))
