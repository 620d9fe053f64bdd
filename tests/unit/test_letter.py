"""Letters keep what came in, byte for byte, and say why it ended."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.core.letter import letter_id, write_letter
from headway.core.travel import record
from headway.operations import Letter
from headway.retrying import DEFAULT_CLASSIFIER, Failure, Reason
from headway.testing.ports import AttemptRecord, Travel

NOW = datetime(2026, 1, 17, 5, tzinfo=UTC)


def letter_for(body: bytes, attempts: tuple[AttemptRecord, ...] = ()) -> Letter:
    return write_letter(
        body,
        queue="chunking.json.parsed",
        travel=Travel(operation="op", failures=len(attempts), history=attempts),
        idempotency_key="chunking-a",
        service="chunking",
        event_type="JSONParsed",
        reason=Reason.MAX_ATTEMPTS_EXCEEDED,
        last_error="DocumentNotFoundError: not found in messages: a",
        error_type="DocumentNotFoundError",
        now=NOW,
    )


@given(st.binary(max_size=300))
@example(b'{"a":NaN}')
@example(b'{"a": 1}')
@example(b'{"a":1,"a":2}')
@example(b'{"a":123456789012345678901234567890}')
@example(b'{"a":1e2}')
@example(b'"\\ud800"')
@example(b"\xff\xfe")
def test_the_original_comes_back_byte_for_byte(body: bytes) -> None:
    kept = msgspec.json.decode(msgspec.json.encode(letter_for(body)), type=Letter)
    assert kept.body == body


def test_a_letter_has_the_documented_fields() -> None:
    found = msgspec.to_builtins(letter_for(b'{"event_type":"JSONParsed"}'))
    assert found["original_event"] == {"event_type": "JSONParsed"}
    assert found["idempotency_key"] == "chunking-a"
    assert found["last_error"] == "DocumentNotFoundError: not found in messages: a"
    assert found["error_type"] == "DocumentNotFoundError"
    assert found["abandoned_reason"] == "max_attempts_exceeded"
    assert found["service_name"] == "chunking"
    assert found["timestamp"] == "2026-01-17T05:00:00Z"


def test_a_person_can_read_json_even_where_the_bytes_are_kept_apart() -> None:
    letter = letter_for(b'{ "a": 1 }')
    assert letter.original_event == {"a": 1}
    assert letter.original_base64 is not None


def test_the_same_end_of_the_same_work_is_one_letter() -> None:
    assert letter_id("q", "op", "0") == letter_id("q", "op", "0")
    assert letter_id("q", "op", "0") != letter_id("q", "op", "1")
    assert letter_id("q", "op", "0") != letter_id("r", "op", "0")
    assert letter_id("q", "op1", "0") != letter_id("q", "op", "10")
    assert letter_id("qo", "p", "0") != letter_id("q", "op", "0")


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [TimeoutError("late"), UnspeakableError()])
def test_an_attempt_is_taken_down_with_the_rule_that_matched(error: Exception) -> None:
    failure = Failure(attempt=3, at=NOW, error=error, diagnosis=DEFAULT_CLASSIFIER.classify(error))
    taken = record(failure, worker="host-1", traceback="...")
    assert (taken.number, taken.worker, taken.error_type) == (3, "host-1", type(error).__name__)
    assert taken.at == "2026-01-17T05:00:00Z"
