"""Whatever comes in is answered with what is wrong with it, and never breaks the service."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.systems.ledger.decoding import MalformedBodyError, RefusedEventError, decode_event
from headway.systems.ledger.events import Envelope
from tests.systems.ledger.ledgers import BULK, EVENTS, Ledger, a_ledger, an_event


def without(field: str) -> dict[str, Any]:
    event = an_event()
    del event[field]
    return event


FIELDS: list[tuple[str, Any]] = [
    ("event_type", without("event_type")),
    ("event_type", an_event(event_type="CarStolen")),
    ("timestamp", without("timestamp")),
    ("timestamp", an_event(timestamp="2026-01-31T12:00:00")),
    ("timestamp", an_event(timestamp="yesterday")),
    ("entity_id", without("entity_id")),
    ("entity_id", an_event(entity_id="")),
    ("entity_id", an_event(entity_id="loan-1\n")),
    ("event_id", an_event(event_id="a b")),
    ("event_id", an_event(event_id="\u0000")),
    ("event_id", an_event(event_id="x" * 129)),
    ("event_id", an_event(event_id=None)),
    ("event_name", an_event(event_name="a\u0000")),
    ("data", without("data")),
    ("data.amount_cents", an_event(data={})),
    ("data.amount_cents", an_event(data={"amount_cents": -1})),
    ("data.amount_cents", an_event(data={"amount_cents": 0})),
    ("data.amount_cents", an_event(data={"amount_cents": 1.5})),
    ("data.amount_cents", an_event(data={"amount_cents": "100"})),
    ("data.amount_cents", an_event(data={"amount_cents": 10**30})),
    ("data.amount_euros", an_event(data={"amount_cents": 1, "amount_euros": 1})),
    ("amount", an_event(amount=1)),
    ("body", []),
    ("body", "text"),
    ("body", 17),
]


@pytest.mark.parametrize(("field", "event"), FIELDS)
async def test_a_wrong_field_is_named(sqlite_ledger: Ledger, field: str, event: Any) -> None:
    answer = await sqlite_ledger.send(event)
    assert answer.status_code == 422
    body = answer.json()
    assert (body["error"], body["field"]) == ("invalid", field)
    assert body["message"].startswith(f"{field}: ")
    assert await sqlite_ledger.is_empty()


TYPES = "CarCreated, LoanCreated, LoanPaymentSubmitted, CarServiceDone"
IN_WORDS: list[tuple[str, Any]] = [
    (f"event_type: is missing: use one of {TYPES}", without("event_type")),
    (f"event_type: 'Foo' is no event type: use one of {TYPES}", an_event(event_type="Foo")),
    (f"event_type: must be a text: use one of {TYPES}", an_event(event_type=5)),
    ("timestamp: is missing", without("timestamp")),
    ("timestamp: is no time: write it like 2026-11-15T12:00:00Z", an_event(timestamp="now")),
    (
        "timestamp: has no time zone: write it like 2026-11-15T12:00:00Z",
        an_event(timestamp="2026-01-31T12:00:00"),
    ),
    (
        "timestamp: is a whole number and must be a time: write it like 2026-11-15T12:00:00Z",
        an_event(timestamp=5),
    ),
    (
        "event_id: use 1 to 128 letters, digits and the signs . _ : -",
        an_event(event_id="a b"),
    ),
    (
        "event_name: leave out line breaks and other control characters",
        an_event(event_name="a\nb"),
    ),
    ("event_name: is empty and must not be", an_event(event_name="")),
    ("event_name: is longer than 200 characters", an_event(event_name="x" * 201)),
    ("data.amount_cents: must be at least 1", an_event(data={"amount_cents": 0})),
    (
        "data.amount_cents: must be at most 100000000000",
        an_event(data={"amount_cents": 10**12}),
    ),
    (
        "data.amount_cents: is a text and must be a whole number",
        an_event(data={"amount_cents": "1"}),
    ),
    (
        "colour: is not known here: mend its spelling or leave it out",
        an_event(colour="red"),
    ),
    ("body: is a list and must be an object", []),
]


@pytest.mark.parametrize(("message", "event"), IN_WORDS)
async def test_what_is_wrong_is_said_in_plain_words_with_its_cure(
    sqlite_ledger: Ledger, message: str, event: Any
) -> None:
    assert (await sqlite_ledger.send(event)).json()["message"] == message


GARBAGE = {
    "nothing": b"",
    "no JSON": b"event",
    "half of it": json.dumps(an_event()).encode()[:-5],
    "NaN": b'{"event_type": "LoanPaymentSubmitted", "data": {"amount_cents": NaN}}',
    "no UTF-8": b'{"event_type": "LoanPaymentSubmitted", "event_id": "\xff\xfe"}',
    "half a surrogate": b'{"event_type": "LoanPaymentSubmitted", "event_id": "\\ud800"}',
    "deep arrays": b'{"event_type": ' + b"[" * 100_000,
    "deep unknown field": b'{"zzz": ' + b'{"a":' * 20_000,
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("path", [EVENTS, BULK])
@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_refused(sqlite_ledger: Ledger, path: str, body: bytes) -> None:
    answer = await sqlite_ledger.http.post(path, content=body)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["error"] in {"malformed", "invalid"}
    assert await sqlite_ledger.is_empty()


@pytest.mark.parametrize("field", ["events", "events[0]", "events[0].data.amount_cents"])
async def test_a_bulk_names_place_and_field(sqlite_ledger: Ledger, field: str) -> None:
    bulk = {
        "events": {},
        "events[0]": {"events": [5]},
        "events[0].data.amount_cents": {"events": [an_event(data={})]},
    }
    answer = await sqlite_ledger.http.post(BULK, json=bulk[field])
    body = answer.json()
    assert (body if field == "events" else body["results"][0])["field"] == field


async def chunks(number: int) -> AsyncIterator[bytes]:
    for _ in range(number):
        yield b" " * 1024


@pytest.mark.parametrize(("path", "limit"), [(EVENTS, 4096), (BULK, 8192)])
async def test_a_body_that_is_too_large_is_refused(
    sqlite_database: str, path: str, limit: int
) -> None:
    async with a_ledger(sqlite_database, max_body_bytes=4096, max_bulk_bytes=8192) as ledger:
        declared = await ledger.http.post(path, content=b" " * (limit + 1))
        streamed = await ledger.http.post(path, content=chunks(limit // 1024 + 1))
        allowed = await ledger.http.post(path, content=b" " * limit)
        for answer in (declared, streamed):
            assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
            assert str(limit) in answer.json()["message"]
        assert allowed.status_code == 400


async def test_a_body_that_says_it_will_be_too_large_is_not_read(sqlite_ledger: Ledger) -> None:
    said = {"Content-Length": str(256 * 1024 + 1)}
    answer = await sqlite_ledger.http.post(EVENTS, content=b"{}", headers=said)
    assert answer.status_code == 413


async def test_the_default_limits_are_a_quarter_of_a_mebibyte_and_five(
    sqlite_ledger: Ledger,
) -> None:
    for path, limit in ((EVENTS, 256 * 1024), (BULK, 5 * 1024 * 1024)):
        assert (await sqlite_ledger.http.post(path, content=b" " * limit)).status_code == 400
        assert (await sqlite_ledger.http.post(path, content=b" " * (limit + 1))).status_code == 413


@pytest.mark.parametrize("key", ["", "a b", "k" * 201])
async def test_a_key_that_cannot_be_kept_is_refused(sqlite_ledger: Ledger, key: str) -> None:
    answer = await sqlite_ledger.send(an_event(), key=key)
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")


async def test_a_wrong_query_is_refused_by_name(sqlite_ledger: Ledger) -> None:
    for query, field in (("limit=0", "limit"), ("limit=x", "limit"), ("after=a%00", "after")):
        answer = await sqlite_ledger.http.get(f"/api/v1/events?{query}")
        assert (answer.status_code, answer.json()["field"]) == (422, field)
        assert answer.json()["message"].startswith(f"{field}: use ")


async def test_a_wrong_method_is_refused(sqlite_ledger: Ledger) -> None:
    answer = await sqlite_ledger.http.delete(EVENTS)
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
near_misses = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys((*an_event(), "event_name", "other"), any_json),
).map(lambda changes: an_event() | changes)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.binary()
    | any_json.map(lambda value: json.dumps(value).encode())
    | near_misses.map(lambda event: json.dumps(event).encode())
)
def test_any_bytes_are_an_event_or_refused(body: bytes) -> None:
    with contextlib.suppress(RefusedEventError, MalformedBodyError):
        assert isinstance(decode_event(body), Envelope)
