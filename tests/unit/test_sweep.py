from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import Lifecycle
from headway.core.beginning import begun
from headway.core.document import ATTEMPT_COUNT, LAST_OPERATION, MOST, WAITING
from headway.core.prospect import prospect
from headway.core.stuck import is_stuck
from headway.core.sweep import Why, claimed, given_back, given_up, watched
from headway.testing.ports import (
    Beginning,
    Document,
    GiveUp,
    How,
    Judgement,
    Leave,
    Requeue,
    State,
    SweepRule,
    instant,
    judge,
    moment,
    sweep_operation,
)
from tests.unit.documents import DAY, DOCUMENTS, GARBAGE_TIMES, HOUR, MINUTE, NOW, ago, modest

RULE = SweepRule(lifecycle=Lifecycle("docs", max_attempts=5))
FLAGGED = SweepRule(lifecycle=Lifecycle("docs", max_attempts=5, flag="embedded"))
LEASED = SweepRule(lifecycle=Lifecycle("docs", max_attempts=5, lease=MINUTE))
RULES = st.sampled_from([RULE, FLAGGED, LEASED])
TICK = timedelta(milliseconds=1)
REQUEUED = "requeued"


def doc(**fields: Any) -> Document:
    return {"_id": "1", "status": "pending", **fields}


def swept(generation: int, *, ago: timedelta = timedelta()) -> str:
    """Name a sweep of that document."""
    return sweep_operation("docs", "1", generation, NOW - ago)


def said(judgement: Judgement) -> str:
    return judgement.why if isinstance(judgement, Leave) else REQUEUED


# The backoff


def test_attempts_are_five_ten_twenty_forty_and_sixty_minutes_apart() -> None:
    minutes = [RULE.delay(attempts) / MINUTE for attempts in range(-1, 8)]
    assert minutes == [0, 0, 5, 10, 20, 40, 60, 60, 60]


@modest
@given(
    st.integers(0, 10_000),
    st.timedeltas(timedelta(), timedelta.max),
    st.timedeltas(timedelta(), timedelta.max),
)
def test_a_delay_is_never_longer_than_the_longest(
    attempts: int, base: timedelta, longest: timedelta
) -> None:
    rule = SweepRule(lifecycle=RULE.lifecycle, base_delay=base, max_delay=longest)
    assert timedelta() <= rule.delay(attempts) <= longest
    assert rule.delay(attempts) <= rule.delay(attempts + 1)


# The two gates


@pytest.mark.parametrize(
    ("status", "attempts", "waits", "why"),
    [
        ("failed", 1, 5 * MINUTE, Why.BACKOFF),
        ("failed", 2, 10 * MINUTE, Why.BACKOFF),
        ("failed", 3, 20 * MINUTE, Why.BACKOFF),
        ("failed", 4, 40 * MINUTE, Why.BACKOFF),
        # What may be in hand is due when it has not moved for a day.
        ("pending", 1, DAY, Why.IN_HAND),
        ("processing", 1, DAY, Why.IN_HAND),
        (None, 1, DAY, Why.IN_HAND),
    ],
)
def test_what_was_attempted_is_due_when_its_wait_is_over(
    status: str | None, attempts: int, waits: timedelta, why: Why
) -> None:
    early = doc(status=status, attemptCount=attempts, lastAttemptTime=ago(waits - TICK))
    due = doc(status=status, attemptCount=attempts, lastAttemptTime=ago(waits))
    assert judge(early, RULE, NOW) == Leave(why)
    assert judge(due, RULE, NOW) == Requeue(swept(1), 1, attempts + 1)


def test_with_a_threshold_of_nothing_only_the_backoff_counts() -> None:
    rule = SweepRule(lifecycle=RULE.lifecycle, stuck_after=timedelta())
    skipped = doc(attemptCount=2, lastAttemptTime=ago(5 * MINUTE))
    assert judge(skipped, rule, NOW) == Leave(Why.BACKOFF)
    assert said(judge(skipped, rule, NOW + 10 * MINUTE)) == REQUEUED


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (doc(), REQUEUED),
        ({"_id": "1"}, REQUEUED),
        (doc(attemptCount=0, lastAttemptTime=None), REQUEUED),
        (doc(createdAt=ago(15 * MINUTE)), REQUEUED),
        (doc(createdAt=ago(15 * MINUTE - TICK)), Why.YOUNG),
        (doc(createdAt=instant(NOW + MINUTE)), Why.YOUNG),
        (doc(createdAt=instant(NOW + DAY)), REQUEUED),
        (doc(createdAt="some day"), REQUEUED),
        (doc(status="failed", createdAt=instant(NOW)), REQUEUED),
        (doc(attemptCount=1, createdAt=instant(NOW)), REQUEUED),
    ],
)
def test_what_was_never_attempted_is_due_unless_it_is_young(
    document: Document, expected: str
) -> None:
    assert said(judge(document, RULE, NOW)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("processed", Why.PROCESSED),
        ("completed", Why.PROCESSED),
        ("failed_max_retries", Why.GIVEN_UP),
        ("archived", Why.FOREIGN),
        (["pending"], Why.FOREIGN),
        (7, Why.FOREIGN),
    ],
)
def test_what_is_settled_is_left_alone(status: Any, expected: Why) -> None:
    claim = {"claimToken": "t", "claimUntil": ago(DAY)}
    for more in ({}, claim, {"attemptCount": 99, "lastAttemptTime": ago(9 * DAY)}):
        assert judge(doc(status=status, **more), RULE, NOW) == Leave(expected)


# What failed permanently

BUG = {"rule": "python.programming", "version": "1"}


@pytest.mark.parametrize(
    ("failure", "version", "expected"),
    [
        ({"rule": "shop.declined", "version": "1"}, "2", Why.PERMANENT),
        ({"rule": "data", "version": "1"}, "2", Why.PERMANENT),
        ({"rule": "python.validation", "version": "1"}, "2", Why.PERMANENT),
        (BUG, None, Why.PERMANENT),
        (BUG, "1", Why.PERMANENT),
        (BUG, "2", REQUEUED),
        (BUG, "", REQUEUED),
        ({"rule": "python.programming"}, "", Why.PERMANENT),
        ({"rule": "headway.misuse", "version": "1"}, "2", REQUEUED),
        (None, "2", REQUEUED),
        ({}, "2", Why.PERMANENT),
        ("declined", "2", Why.PERMANENT),
        ([BUG], "2", Why.PERMANENT),
        (7, "2", Why.PERMANENT),
        ({"rule": "python.programming", "version": 1}, "2", Why.PERMANENT),
    ],
)
def test_what_failed_permanently_is_left_alone(
    failure: Any, version: str | None, expected: str
) -> None:
    rule = replace(RULE, version=version)
    document = doc(
        status="failed", attemptCount=1, lastAttemptTime=ago(DAY), permanentFailure=failure
    )
    assert said(judge(document, rule, NOW)) == expected
    assert is_stuck(document, rule, NOW) is (expected == REQUEUED)
    assert said(judge({**document, "status": "pending"}, rule, NOW)) == REQUEUED
    spent = {**document, "attemptCount": 5}
    left = expected is Why.PERMANENT
    assert judge(spent, rule, NOW) == (Leave(Why.PERMANENT) if left else GiveUp(5))


# Leases, claims and what a person said


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        (ago(-TICK), Why.LEASED),
        (ago(-DAY), Why.LEASED),
        (ago(timedelta()), REQUEUED),
        (ago(HOUR), REQUEUED),
        (None, REQUEUED),
        *((garbage, REQUEUED) for garbage in GARBAGE_TIMES),
    ],
)
def test_a_lease_is_respected_until_it_ends(until: Any, expected: str) -> None:
    leased = doc(attemptCount=1, lastAttemptTime=ago(6 * MINUTE), leaseToken="t", leaseUntil=until)
    assert said(judge(leased, LEASED, NOW)) == expected
    assert judge({**leased, "leaseToken": None}, LEASED, NOW) == Leave(Why.IN_HAND)


def test_a_lease_may_be_as_long_as_its_lifecycle_says() -> None:
    weeks = SweepRule(lifecycle=Lifecycle("docs", lease=14 * DAY))
    leased = doc(attemptCount=1, leaseToken="t", leaseUntil=ago(-14 * DAY))
    assert judge(leased, weeks, NOW) == Leave(Why.LEASED)
    assert said(judge(leased, LEASED, NOW)) == REQUEUED


@pytest.mark.parametrize(
    ("until", "is_over"),
    [
        (ago(-TICK), False),
        (ago(-DAY), False),
        (ago(-DAY - TICK), True),
        (ago(timedelta()), True),
        (None, True),
        *((garbage, True) for garbage in GARBAGE_TIMES),
    ],
)
@pytest.mark.parametrize("status", ["pending", "failed"])
def test_a_claim_that_is_over_is_published_again_under_the_same_operation(
    until: Any,
    is_over: bool,  # noqa: FBT001 (pytest gives it)
    status: str,
) -> None:
    document = doc(
        status=status, attemptCount=5, sweepGeneration=3, claimToken="t", claimUntil=until,
        lastAttemptTime=ago(timedelta()), lastOperation=swept(3, ago=HOUR),
    )  # fmt: skip
    again = Requeue(swept(3, ago=HOUR), 3, 5, again=True)
    assert judge(document, RULE, NOW) == (again if is_over else Leave(Why.CLAIMED))


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("sweep-3:docs:1", "sweep-3:docs:1"),
        ("sweep-2:docs:1", "sweep-3@20260301T110000.000Z:docs:1"),
        ("sweep-3:docs:2", "sweep-3@20260301T110000.000Z:docs:1"),
        (["odd"], "sweep-3@20260301T110000.000Z:docs:1"),
        (None, "sweep-3@20260301T110000.000Z:docs:1"),
    ],
)
def test_where_nobody_knows_the_operation_of_a_claim_all_make_the_same(
    last: Any, expected: str
) -> None:
    claim = {"claimToken": "t", "claimUntil": ago(MINUTE), "lastOperation": last}
    document = doc(sweepGeneration=3, lastAttemptTime=ago(HOUR), **claim)
    for later in (NOW, NOW + DAY):
        judgement = judge(document, RULE, later)
        assert isinstance(judgement, Requeue)
        assert judgement.operation == expected


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_the_time_that_a_person_said_goes_before_everything(status: str) -> None:
    document = doc(status=status, attemptCount=1, lastAttemptTime=ago(2 * DAY))
    later = {**document, "retryAt": instant(NOW + TICK)}
    assert judge(later, RULE, NOW) == Leave(Why.SCHEDULED)
    assert said(judge(later, RULE, NOW + TICK)) == REQUEUED
    exhausted = {**later, "attemptCount": 5}
    assert judge(exhausted, RULE, NOW) == Leave(Why.SCHEDULED)
    far = {**document, "retryAt": instant(NOW + 366 * DAY)}  # a year ahead is the farthest
    assert judge(far, RULE, NOW) == Leave(Why.SCHEDULED)
    assert said(judge(far, RULE, NOW - TICK)) == REQUEUED
    document = doc(status="failed", attemptCount=4, lastAttemptTime=ago(MINUTE))
    assert judge(document, RULE, NOW) == Leave(Why.BACKOFF)
    assert said(judge({**document, "retryAt": instant(NOW)}, RULE, NOW)) == REQUEUED


# The end


@pytest.mark.parametrize("attempts", [5, 6, 5.0, 10**9])
def test_what_has_had_all_its_attempts_is_given_up(attempts: Any) -> None:
    failed = doc(status="failed", attemptCount=attempts, lastAttemptTime=ago(timedelta()))
    assert isinstance(judge(failed, RULE, NOW), GiveUp)
    unmoved = doc(attemptCount=attempts, lastAttemptTime=ago(DAY))
    assert isinstance(judge(unmoved, RULE, NOW), GiveUp)
    in_hand = doc(attemptCount=attempts, lastAttemptTime=ago(HOUR))
    assert judge(in_hand, RULE, NOW) == Leave(Why.IN_HAND)
    after = {**unmoved, **given_up(RULE, NOW)}
    assert judge(after, RULE, NOW + 99 * DAY) == Leave(Why.GIVEN_UP)
    assert after["givenUpAt"] == instant(NOW)


@pytest.mark.parametrize(
    ("token", "patience"), [("t", 60 * MINUTE), (WAITING, DAY)], ids=["in hand", "waiting"]
)
def test_the_last_attempt_has_time_to_come_back_before_it_is_given_up(
    token: str, patience: timedelta
) -> None:
    held = doc(attemptCount=5, lastAttemptTime=ago(9 * DAY), leaseToken=token, leaseUntil=ago(HOUR))
    then = NOW - HOUR + patience
    assert judge(held, LEASED, then - TICK) == Leave(Why.BACKOFF)
    assert judge(held, LEASED, then) == GiveUp(5)
    found = prospect(held, LEASED, NOW - HOUR)
    assert (found.due, found.then) == (then, GiveUp(5))
    assert judge({**held, "status": "failed"}, LEASED, NOW) == GiveUp(5)
    assert said(judge({**held, "attemptCount": 4}, LEASED, NOW)) == REQUEUED


@pytest.mark.parametrize("garbage", GARBAGE_TIMES)
@pytest.mark.parametrize(
    "field", ["lastAttemptTime", "createdAt", "leaseUntil", "claimUntil", "retryAt"]
)
@pytest.mark.parametrize("status", ["pending", "failed"])
def test_no_time_strands_a_document(garbage: Any, field: str, status: str) -> None:
    tokens = {"leaseUntil": "leaseToken", "claimUntil": "claimToken"}
    document = doc(status=status, attemptCount=1, **{field: garbage})
    if field in tokens:
        document[tokens[field]] = "t"
    assert said(judge(document, RULE, NOW)) == REQUEUED


# Whatever there is


@modest
@given(DOCUMENTS, RULES)
def test_every_document_gets_an_answer(document: Document, rule: SweepRule) -> None:
    before = dict(document)
    assert isinstance(judge(document, rule, NOW), Leave | Requeue | GiveUp)
    assert document == before


@modest
@given(DOCUMENTS, RULES, st.timedeltas(TICK, DAY), st.sampled_from(["lease", "claim"]))
def test_what_is_in_living_hands_is_left_alone(
    document: Document, rule: SweepRule, left: timedelta, kind: str
) -> None:
    held: Document = {f"{kind}Token": "t", f"{kind}Until": instant(NOW + left)}
    if kind == "lease":
        held["claimToken"] = None
    assert isinstance(judge({**document, **held}, rule, NOW), Leave)


@modest
@given(DOCUMENTS, RULES, st.timedeltas(TICK, DAY))
def test_what_was_claimed_is_left_alone_until_the_claim_ends(
    document: Document, rule: SweepRule, lease: timedelta
) -> None:
    judgement = judge(document, rule, NOW)
    if not isinstance(judgement, Requeue):
        return
    until = NOW + lease
    changes = claimed(document, judgement, token="t", until=until, now=NOW)
    after = {**document, **changes}
    assert judge(after, rule, NOW) == Leave(Why.CLAIMED)
    again = judge(after, rule, until)
    assert isinstance(again, Requeue)
    assert again.again
    assert (again.generation, again.attempt) == (judgement.generation, judgement.attempt)
    assert again.operation == judgement.operation
    taken_over = {**after, **claimed(after, again, token="u", until=until + lease, now=until)}
    for field in watched(rule):
        if field not in {"claimToken", "claimUntil"}:
            assert taken_over.get(field) == after.get(field)


@modest
@given(DOCUMENTS, RULES)
def test_what_is_given_back_is_as_it_was_but_for_its_generation(
    document: Document, rule: SweepRule
) -> None:
    document = {**document, "claimToken": None, "claimUntil": None}
    judgement = judge(document, rule, NOW)
    if not isinstance(judgement, Requeue):
        return
    after = {**document, **claimed(document, judgement, token="t", until=NOW + HOUR, now=NOW)}
    back = {**after, **given_back(after)}
    for field in watched(rule):
        expected = judgement.generation if field == "sweepGeneration" else document.get(field)
        assert back.get(field) == expected
    assert back["claimBefore"] is None
    then = judge(back, rule, NOW)
    assert isinstance(then, Requeue)
    assert then.attempt == judgement.attempt


RELEASED = {"claimToken": None, "claimUntil": None, "claimBefore": None}


def after_claim(document: Document) -> tuple[Requeue, Document]:
    judgement = judge(document, RULE, NOW)
    assert isinstance(judgement, Requeue)
    changes = claimed(document, judgement, token="t", until=NOW + HOUR, now=NOW)
    assert (moment(changes["lastAttemptTime"]), moment(changes["claimUntil"])) == (NOW, NOW + HOUR)
    return judgement, {**document, **changes}


@pytest.mark.parametrize("status", ["processed", "failed", "failed_max_retries", "archived", None])
def test_what_was_settled_meanwhile_is_only_released(status: str | None) -> None:
    _, after = after_claim(doc(status="failed", attemptCount=1, lastAttemptTime=ago(DAY)))
    assert given_back(after)["status"] == "failed"
    assert given_back({**after, "status": status}) == RELEASED


def test_what_a_person_scheduled_meanwhile_stays_scheduled() -> None:
    _, after = after_claim(doc(retryAt=ago(HOUR)))
    assert given_back(after)["retryAt"] == ago(HOUR)
    assert given_back({**after, "retryAt": ago(-HOUR)})["retryAt"] == ago(-HOUR)


@pytest.mark.parametrize("before", [None, "garbage", [], 7])
def test_a_claim_that_says_nothing_of_before_is_only_released(before: Any) -> None:
    assert given_back({"claimToken": "t", "claimBefore": before}) == RELEASED


def test_at_the_highest_generation_a_claim_is_still_found_again() -> None:
    judgement, after = after_claim(doc(sweepGeneration=MOST))
    assert judgement.generation == MOST
    again = judge(after, RULE, NOW + HOUR)
    assert isinstance(again, Requeue)
    assert (again.generation, again.operation) == (MOST, judgement.operation)
    assert set(watched(FLAGGED)) - set(watched(RULE)) == {"embedded"}


# What awaits a document, obstacle by obstacle, until a sweep does something

USUAL = SweepRule(lifecycle=Lifecycle("messages"))


def at(offset: timedelta) -> str:
    return instant(NOW + offset)


FAILED = {"status": "failed", "attemptCount": 1}
TRIED = {"attemptCount": 1, "lastAttemptTime": at(-HOUR)}
HELD = {"leaseToken": "w", "leaseUntil": at(MINUTE)}


@pytest.mark.parametrize(
    ("fields", "why", "due"),
    [
        ({}, None, 0 * HOUR),
        ({**FAILED, "lastAttemptTime": at(-DAY)}, None, 0 * HOUR),
        ({**FAILED, "lastAttemptTime": at(-MINUTE)}, Why.BACKOFF, 4 * MINUTE),
        (TRIED, Why.IN_HAND, 23 * HOUR),
        ({"createdAt": at(-MINUTE)}, Why.YOUNG, 14 * MINUTE),
        ({"status": "failed", "retryAt": at(2 * HOUR)}, Why.SCHEDULED, 2 * HOUR),
        (HELD, Why.LEASED, MINUTE),
        ({"claimToken": "s", "claimUntil": at(MINUTE)}, Why.CLAIMED, MINUTE),
        # Behind the time that a person set, a worker may still have it.
        ({**TRIED, "retryAt": at(HOUR)}, Why.SCHEDULED, 23 * HOUR),
        # Behind its lease there is its backoff.
        ({"attemptCount": 2, "lastAttemptTime": at(-MINUTE), **HELD}, Why.LEASED, 9 * MINUTE),
    ],
)
def test_a_document_is_due_when_nothing_is_in_the_way(
    fields: dict[str, Any], why: Why | None, due: timedelta
) -> None:
    found = prospect({"_id": "m", **fields}, USUAL, NOW)
    assert found.due == NOW + due
    assert isinstance(found.then, Requeue)
    assert found.judgement == (found.then if why is None else Leave(why))


def test_what_has_had_its_attempts_is_given_up_a_backoff_after_its_lease() -> None:
    found = prospect({"_id": "m", "attemptCount": 3, **HELD}, USUAL, NOW)
    assert (found.judgement, found.then) == (Leave(Why.LEASED), GiveUp(3))
    assert found.due == NOW + MINUTE + 20 * MINUTE


@pytest.mark.parametrize("status", ["processed", "failed_max_retries", "on holiday"])
def test_what_is_settled_is_never_due(status: str) -> None:
    found = prospect({"_id": "m", "status": status}, USUAL, NOW)
    assert (found.due, found.then) == (None, None)


# Through a whole life

ACTIONS = st.lists(
    st.sampled_from(
        ["sweep", "deliver", "late", "again", "fail", "wait", "die", "refused", "unknown"]
    ),
    max_size=60,
)


class Life:
    """One document, the events about it that are on their way, and how often each began."""

    def __init__(self, rule: SweepRule) -> None:
        self.rule = rule
        self.now: datetime = NOW
        self.document: Document = rule.lifecycle.born({"_id": "1"}, NOW)
        self.events = ["first"]
        self.begun: set[str] = set()

    def act(self, action: str) -> None:
        match action:
            case "sweep" | "refused" | "unknown":
                self._sweep(action)
            case "again" if self.events:
                self._begin(self.events[0], again=True)
            case "deliver" if self.events:
                self._begin(self.events[-1])
            case "late" if self.events:
                self._begin(self.events[0])
            case "fail" if self.document.get(LAST_OPERATION) in self.begun:
                self.document |= self.rule.lifecycle.on_failure("ValueError", "no", self.now)
            case "wait":
                self.now += HOUR
            case _:
                self.now += DAY

    def _sweep(self, then: str) -> None:
        judgement = judge(self.document, self.rule, self.now)
        if isinstance(judgement, GiveUp):
            self.document |= given_up(self.rule, self.now)
        if not isinstance(judgement, Requeue):
            return
        until = self.now + 5 * MINUTE
        changes = claimed(self.document, judgement, token="t", until=until, now=self.now)
        self.document |= changes
        if then == "refused" and not judgement.again:
            self.document |= given_back(self.document)
            return
        self.events.append(judgement.operation)
        if then != "unknown":
            self.document |= {"claimToken": None, "claimUntil": None, "claimBefore": None}

    def _begin(self, operation: str, *, again: bool = False) -> None:
        lifecycle = self.rule.lifecycle
        beginning = Beginning(
            lifecycle=lifecycle, ids=("1",), operation=operation, now=self.now, token=operation,
            again=again,
        )  # fmt: skip
        answer = begun(self.document, beginning)
        self.document = answer.document
        if answer.how is How.BEGUN:
            self.begun.add(operation)


@modest
@given(ACTIONS, RULES)
def test_no_document_is_attempted_more_often_than_allowed_and_generations_only_rise(
    actions: list[str], rule: SweepRule
) -> None:
    life, generation = Life(rule), 0
    for action in actions:
        life.act(action)
        assert life.document.get(ATTEMPT_COUNT, 0) <= rule.lifecycle.most_attempts
        assert len(life.begun) <= rule.lifecycle.most_attempts
        assert life.document.get("sweepGeneration", 0) >= generation
        generation = life.document.get("sweepGeneration", 0)


@modest
@given(ACTIONS, RULES)
def test_every_document_that_nobody_finishes_is_given_up_in_the_end(
    actions: list[str], rule: SweepRule
) -> None:
    life = Life(rule)
    for action in (*actions, *["die", "sweep"] * 12):
        life.act(action)
    assert rule.lifecycle.state(life.document) is State.GIVEN_UP
