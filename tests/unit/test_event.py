"""Events on the wire, and their identity."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import Event
from headway.core.event import idempotency_key
from headway.errors import MalformedEventError
from headway.testing.ports import DoneKey, decode, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


def test_a_hand_written_event_needs_only_its_type() -> None:
    assert decode(b'{"event_type": "JSONParsed"}') == Event(event_type="JSONParsed", data={})


def test_an_event_may_carry_more_than_we_know_of() -> None:
    event = decode(b'{"event_type": "A", "event_id": "1", "trace": "x", "data": {"n": 1}}')
    assert (event.event_id, event.data) == ("1", {"n": 1})


@given(
    event_type=st.text(min_size=1, max_size=30),
    event_id=st.text(max_size=30),
    data=st.dictionaries(st.text(max_size=8), JSON, max_size=5),
)
def test_what_is_encoded_is_decoded(event_type: str, event_id: str, data: dict[str, Any]) -> None:
    event = Event(event_type=event_type, event_id=event_id, timestamp="t", data=data)
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "truncated"),
        (b"not json", "malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `event_type`"),
        (b'{"event_type": 5}', "event_type"),
        (b'{"event_type": ""}', "event_type is empty"),
        (b'{"event_type": "A", "data": []}', "Expected `object`"),
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


def test_a_key_names_the_service_and_up_to_three_ids() -> None:
    assert idempotency_key("chunking", ["123", "456", "789"]) == "chunking-123-456-789"


def test_batches_that_begin_alike_have_different_keys() -> None:
    first = idempotency_key("chunking", ["1", "2", "3", "4"])
    second = idempotency_key("chunking", ["1", "2", "3", "5"])
    assert first != second
    assert first.startswith("chunking-1-2-3-")


def test_ids_are_not_run_together() -> None:
    assert idempotency_key("s", ["a", "b", "c", "de", "f"]) != idempotency_key(
        "s", ["a", "b", "c", "d", "ef"]
    )


def test_a_replay_is_remembered_under_another_key() -> None:
    first = DoneKey("chunking", "JSONParsed", "k")
    assert first == DoneKey("chunking", "JSONParsed", "k", "0")
    assert first != DoneKey("chunking", "JSONParsed", "k", "letter.1")
