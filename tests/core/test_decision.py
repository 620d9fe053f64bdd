"""What a person may decide about a document in which state."""

from datetime import UTC, datetime

import pytest

from headway.core.decision import Decision, refusal, reset
from headway.core.lifecycle import Lifecycle

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


def test_a_reset_never_touches_the_flag_nor_the_generation() -> None:
    changes = reset(CHUNKS, None)
    assert "embedding_generated" not in changes
    assert "sweepGeneration" not in changes
    assert "lastError" not in changes


def test_a_reset_says_when() -> None:
    assert reset(MESSAGES, None)["retryAt"] is None
    at = datetime(2030, 1, 31, 6, 0, tzinfo=UTC)
    assert reset(MESSAGES, at)["retryAt"].startswith("2030-01-31T06:00:00")
