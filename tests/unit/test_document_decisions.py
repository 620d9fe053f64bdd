"""What decides about a document, where its borders are: each of these was once changed unseen."""

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from headway import ConfigurationError, Event, Lifecycle, Service, Work
from headway.operations import Choice, Decision, StoredDocuments
from headway.testing.ports import Leave, State, SweepRule, instant, judge, moment
from headway.testing.trial import Trial
from tests.unit.documents import DAY, HOUR, MINUTE, NOW

SECOND = timedelta(seconds=1)
MESSAGES = SweepRule(lifecycle=Lifecycle("messages"))
AWAY = (Decision.PURGE, Decision.ARCHIVE)


def operator_of(trial: Trial, rule: SweepRule) -> StoredDocuments:
    return StoredDocuments(
        trial.engine, trial.clock, trial.chance, who="ann@desk", rule_of=lambda _: rule
    )


async def refused(fields: dict[str, Any], decision: Decision, rule: SweepRule) -> Sequence[str]:
    """Say for which reasons a document is left as it is, though a person insists."""
    trial = Trial(Service("chunking"))
    operator = operator_of(trial, rule)
    now = trial.clock.now()
    document = {
        name: instant(now + value) if isinstance(value, timedelta) else value
        for name, value in fields.items()
    }
    await trial.put("messages", {"_id": "m", **document})
    choice = Choice(ids=["m"], stuck=True)
    report = await operator.decide(decision, "messages", choice, dry_run=True)
    assert report.chosen + sum(report.refused.values()) == 1
    return list(report.refused)


IN_HANDS: list[dict[str, Any]] = [
    {"status": "pending", "attemptCount": 1, "lastAttemptTime": -HOUR},
    {"status": "pending", "attemptCount": 1, "leaseToken": "t", "leaseUntil": MINUTE},
    {"status": "pending", "claimToken": "t", "claimUntil": MINUTE},
    {"status": "pending", "createdAt": -MINUTE},
    {"status": "processed"},
    {"status": "on holiday"},
    {"$unreadable": "not json"},
]
STUCK: list[dict[str, Any]] = [
    {"status": "pending"},
    {"status": "pending", "retryAt": HOUR},
    {"status": "pending", "attemptCount": 1, "lastAttemptTime": -DAY},
    {"status": "failed", "attemptCount": 1, "lastAttemptTime": -MINUTE},
    {"status": "failed", "attemptCount": 3, "lastAttemptTime": -MINUTE},
    {"status": "failed_max_retries", "attemptCount": 3},
]


@pytest.mark.parametrize("decision", AWAY)
async def test_what_may_be_in_hands_is_not_put_away_though_a_person_insists(
    decision: Decision,
) -> None:
    reasons = [await refused(fields, decision, MESSAGES) for fields in IN_HANDS]
    assert all(len(each) == 1 and each[0] for each in reasons)
    assert len({each[0] for each in reasons}) == len(IN_HANDS)


@pytest.mark.parametrize("decision", AWAY)
@pytest.mark.parametrize("fields", STUCK, ids=str)
async def test_what_is_stuck_is_put_away_if_a_person_insists(
    fields: dict[str, Any], decision: Decision
) -> None:
    assert await refused(fields, decision, MESSAGES) == []


async def test_what_a_sweeper_died_over_is_removed_and_not_put_away() -> None:
    claim = {"status": "pending", "claimToken": "t", "claimUntil": -MINUTE}
    assert await refused(claim, Decision.PURGE, MESSAGES) == []
    assert len(await refused(claim, Decision.ARCHIVE, MESSAGES)) == 1


async def test_what_is_no_document_is_refused_in_words_of_its_own() -> None:
    purged, archived = [await refused(IN_HANDS[-1], each, MESSAGES) for each in AWAY]
    assert "--stuck" in purged[0]
    assert "purge it by its id" in archived[0]


async def test_only_a_purge_is_for_an_archive() -> None:
    trial = Trial(Service("chunking"))
    operator = operator_of(trial, MESSAGES)
    choice = Choice(everything=True)
    with pytest.raises(ConfigurationError, match="archive of messages,"):
        await operator.decide(Decision.RESET, "messages_dead_letter", choice)
    for collection in ("messages", "_dead_letter"):
        await operator.decide(Decision.RESET, collection, choice)
    await operator.decide(Decision.PURGE, "messages_dead_letter", choice)


async def test_a_reset_of_a_flagged_document_says_that_it_never_failed() -> None:
    trial = Trial(Service("chunking"))
    rule = SweepRule(lifecycle=Lifecycle("messages", flag="embedded"))
    operator = operator_of(trial, rule)
    failed = {"_id": "m", "status": "failed", "lastFailedAt": instant(trial.clock.now())}
    await trial.put("messages", failed)
    await operator.decide(Decision.RESET, "messages", Choice(ids=["m"]))
    document = (await trial.engine.documents.fetch("messages", ["m"]))["m"]
    assert document["lastFailedAt"] is None
    assert rule.lifecycle.state(document) is State.PENDING


# The lifecycle


def test_the_narrowest_lifecycle_is_accepted() -> None:
    lifecycle = Lifecycle("docs", max_attempts=1, lease=SECOND)
    assert (lifecycle.most_attempts, lifecycle.lease) == (1, SECOND)


def test_a_failure_says_by_which_rule_it_is_permanent_if_it_is() -> None:
    lifecycle, cause = Lifecycle("docs"), {"rule": "shop.declined", "version": "1"}
    assert "permanentFailure" not in lifecycle.on_failure("E", "", NOW)
    assert lifecycle.on_failure("E", "", NOW, cause)["permanentFailure"] == cause


async def test_documents_are_counted_by_their_state() -> None:
    trial = Trial(Service("chunking"))
    statuses = ("pending", None, "failed", "completed")
    await trial.put("docs", *({"_id": f"{n}", "status": s} for n, s in enumerate(statuses)))
    assert await trial.engine.documents.tally(Lifecycle("docs")) == {
        State.PENDING: 2, State.FAILED: 1, State.PROCESSED: 1
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "is_lost"),
    [
        ({"note": 1}, False),
        ({"status": "processed"}, False),
        ({"status": "pending"}, True),
        ({"embedded": True}, False),
        ({"embedded": False}, True),
        ({"lastOperation": "mine"}, True),
        ({"leaseToken": None}, True),
        ({"note": 1, "leaseUntil": None}, True),
    ],
)
@pytest.mark.parametrize("deferred", [False, True])
async def test_a_handler_cannot_write_what_the_commit_would_write_over(
    changes: dict[str, Any], *, is_lost: bool, deferred: bool
) -> None:
    if deferred and "status" in changes:
        is_lost = not is_lost  # the commit leaves it pending
    is_lost = is_lost and not (deferred and "embedded" in changes)
    said: list[bool] = []
    orders = Service("orders", lifecycles=[Lifecycle("docs", flag="embedded")])

    @orders.on("Placed", documents=("docs", "ids"))
    async def handle(event: Event, work: Work) -> None:
        if deferred:
            work.put_off("1")
        try:
            work.documents("docs").update("1", changes)
        except ValueError:
            said.append(True)
        else:
            said.append(False)

    trial = Trial(orders)
    await trial.put("docs", {"_id": "1"})
    await trial.publish("Placed", {"ids": ["1"]})
    await trial.run()
    assert said == [is_lost]


@pytest.fixture
def far_west(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock shows another time than UTC."""
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_west")
def test_a_time_without_a_zone_is_utc_wherever_it_is_read() -> None:
    assert moment("2026-03-01T12:00:00") == NOW
    assert moment(NOW.replace(tzinfo=None)) == NOW


# Sweeps


def test_what_has_begun_and_was_not_counted_may_be_in_hand() -> None:
    begun = {"_id": "1", "status": "pending", "lastAttemptTime": instant(NOW - HOUR)}
    judgement = judge(begun, MESSAGES, NOW)
    assert isinstance(judgement, Leave)
    assert judgement.why == "in hand"


def test_the_longest_delay_is_reached_and_not_passed() -> None:
    rule = SweepRule(lifecycle=Lifecycle("docs"), base_delay=MINUTE, max_delay=4 * MINUTE)
    assert [rule.delay(attempts) / MINUTE for attempts in (1, 2, 3, 4)] == [1, 2, 4, 4]
