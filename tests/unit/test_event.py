"""Events on the wire, their identity, and dead letters that keep them byte for byte."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway import Event
from headway.core.event import idempotency_key
from headway.core.letter import letter_id, write_letter
from headway.errors import MalformedEventError
from headway.retrying import Reason
from headway.testing.ports import DoneKey, Letter, Travel, decode, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


def test_a_hand_written_event_needs_only_its_type_and_may_carry_more() -> None:
    assert decode(b'{"event_type": "JSONParsed"}') == Event(event_type="JSONParsed", data={})
    event = decode(b'{"event_type": "A", "event_id": "1", "trace": "x", "data": {"n": 1}}')
    assert (event.event_id, event.data) == ("1", {"n": 1})


@settings(max_examples=50)
@given(
    event_type=st.text(min_size=1, max_size=30),
    event_id=st.text(max_size=30),
    data=st.dictionaries(st.text(max_size=8), JSON, max_size=3),
)
def test_what_is_encoded_is_decoded(event_type: str, event_id: str, data: dict[str, Any]) -> None:
    event = Event(event_type=event_type, event_id=event_id, timestamp="t", data=data)
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "truncated"),
        (b"not json", "malformed"),
        (b"[]", "object"),
        (b"{}", "event_type"),
        (b'{"event_type": 5}', "event_type"),
        (b'{"event_type": ""}', "event_type"),
        (b'{"event_type": "A", "data": []}', "object"),
        (b'{"event_type": "A", "data": {"n": NaN}}', "malformed"),
        (b'{"event_type": "\xff"}', "utf-8"),
        (b'{"event_type": "A", "data": {"x": "\xff"}}', "utf-8"),
        (b'{"event_type": "A"} trailing', "trailing"),
        (b'{"event_type": "A", "data": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}", "deep"),
    ],
)
def test_bytes_that_are_no_event_are_refused_with_the_reason(body: bytes, why: str) -> None:
    with pytest.raises(MalformedEventError, match=f"(?i){why}"):
        decode(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_refused(body: bytes) -> None:
    try:
        event = decode(body)
    except MalformedEventError:
        return
    assert event.event_type == json.loads(body)["event_type"]


def test_work_that_differs_has_keys_that_differ() -> None:
    assert idempotency_key("chunking", ["123", "456", "789"]) == "chunking-123-456-789"
    keys = [idempotency_key("s", list(ids)) for ids in ("1234", "1235", "123")]
    apart = [idempotency_key("s", ["a", "b", "c", *ids]) for ids in (("de", "f"), ("d", "ef"))]
    assert len({*keys, *apart}) == 5
    assert keys[0].startswith("s-1-2-3-")
    assert DoneKey("s", "A", "k") == DoneKey("s", "A", "k", "0") != DoneKey("s", "A", "k", "l.1")
    ends = [
        ("q", "op", "0"),
        ("q", "op", "1"),
        ("r", "op", "0"),
        ("q", "op1", "0"),
        ("qo", "p", "0"),
    ]
    assert len({letter_id(*end) for end in ends}) == len(ends)
    assert letter_id("q", "op1", "0") != letter_id("q", "op", "10")
    assert letter_id(*ends[0]) == letter_id(*ends[0])


def letter_for(body: bytes) -> Letter:
    return write_letter(
        body,
        queue="chunking.json.parsed",
        travel=Travel(operation="op", failures=0, history=()),
        idempotency_key="chunking-a",
        service="chunking",
        event_type="JSONParsed",
        reason=Reason.MAX_ATTEMPTS_EXCEEDED,
        last_error="DocumentNotFoundError: not found in messages: a",
        error_type="DocumentNotFoundError",
        now=datetime(2026, 1, 17, 5, tzinfo=UTC),
    )


@given(st.binary(max_size=300))
@example(b'{"a":NaN}')
@example(b'{ "a": 1 }')
@example(b'{"a":1,"a":2}')
@example(b'{"a":123456789012345678901234567890}')
@example(b'{"a":1e2}')
@example(b'"\\ud800"')
@example(b"\xff\xfe")
def test_a_dead_letter_keeps_the_original_byte_for_byte(body: bytes) -> None:
    kept = msgspec.json.decode(msgspec.json.encode(letter_for(body)), type=Letter)
    assert kept.body == body


def test_a_dead_letter_has_the_documented_fields() -> None:
    found = msgspec.to_builtins(letter_for(b'{"event_type":"JSONParsed"}'))
    expected = {
        "original_event": {"event_type": "JSONParsed"},
        "idempotency_key": "chunking-a",
        "last_error": "DocumentNotFoundError: not found in messages: a",
        "error_type": "DocumentNotFoundError",
        "abandoned_reason": "max_attempts_exceeded",
        "service_name": "chunking",
        "timestamp": "2026-01-17T05:00:00Z",
    }
    assert found.items() >= expected.items()
    spaced = letter_for(b'{ "a": 1 }')  # a person reads JSON where the bytes are kept apart
    assert (spaced.original_event, spaced.original_base64 is None) == ({"a": 1}, False)
