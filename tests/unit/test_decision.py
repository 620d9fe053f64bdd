"""What a person may decide about a document in which state."""

from datetime import UTC, datetime

import pytest

from headway import Lifecycle
from headway.core.decision import not_stuck, refusal, reset, scheduled
from headway.core.unreadable import stand_in
from headway.operations import Decision
from headway.testing.ports import SweepRule

MESSAGES = Lifecycle("messages")
CHUNKS = Lifecycle("chunks", flag="embedding_generated", max_attempts=5)

ALLOWED = {
    ("pending", 0): {Decision.RETRY, Decision.RESTORE},
    ("pending", 3): {Decision.RESTORE},
    ("failed", 1): {Decision.RESET, Decision.RETRY, Decision.RESTORE},
    ("failed", 3): {Decision.RESET, Decision.RESTORE},
    ("failed_max_retries", 3): set(Decision) - {Decision.RETRY},
    # Given up by hand, with attempts left: it still takes a reset.
    ("failed_max_retries", 0): set(Decision) - {Decision.RETRY},
    ("processed", 1): set[Decision](),
    ("on holiday", 1): set[Decision](),
}


@pytest.mark.parametrize(("status", "attempts"), ALLOWED)
def test_every_decision_is_allowed_or_refused_with_a_reason(status: str, attempts: int) -> None:
    document = {"_id": "m", "status": status, "attemptCount": attempts}
    answers = {decision: refusal(decision, document, MESSAGES) for decision in Decision}
    assert {one for one, reason in answers.items() if reason is None} == ALLOWED[status, attempts]
    assert all(reason for reason in answers.values() if reason is not None)


def test_what_failed_permanently_is_a_persons_to_decide() -> None:
    failure = {"rule": "shop.declined", "version": "1"}
    document = {"_id": "m", "status": "failed", "attemptCount": 1, "permanentFailure": failure}
    assert [refusal(decision, document, MESSAGES) for decision in Decision] == [None] * 5
    rule, now = SweepRule(lifecycle=MESSAGES), datetime(2030, 1, 1, tzinfo=UTC)
    for decision in (Decision.PURGE, Decision.ARCHIVE):
        assert not_stuck(decision, document, rule, now) is None
    for changes in (reset(MESSAGES, None), scheduled(now)):
        assert changes["permanentFailure"] is None


@pytest.mark.parametrize("lifecycle", [MESSAGES, CHUNKS], ids=["plain", "flagged"])
def test_what_nobody_can_read_can_be_removed_and_nothing_else(lifecycle: Lifecycle) -> None:
    lost, now = stand_in("m", "not json"), datetime(2030, 1, 1, tzinfo=UTC)
    for decision in Decision:
        reason = refusal(decision, lost, lifecycle)
        assert (reason is None) == (decision is Decision.PURGE)
        assert reason is None or "purge it by its id" in reason
        assert not_stuck(decision, lost, SweepRule(lifecycle=lifecycle), now)


def test_a_reset_says_when_and_touches_neither_the_flag_nor_the_generation() -> None:
    changes = reset(CHUNKS, None)
    assert not changes.keys() & {"embedding_generated", "sweepGeneration", "lastError"}
    assert reset(MESSAGES, None)["retryAt"] is None
    at = datetime(2030, 1, 31, 6, 0, tzinfo=UTC)
    assert reset(MESSAGES, at)["retryAt"].startswith("2030-01-31T06:00:00")
