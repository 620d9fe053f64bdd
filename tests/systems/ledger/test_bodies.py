"""Whatever comes in is answered with what is wrong with it, and never breaks the service."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

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
    ("entity_id", without("entity_id")),
    ("entity_id", an_event(entity_id="loan-1\n")),
    ("event_id", an_event(event_id="a b")),
    ("event_id", an_event(event_id="x" * 129)),
    ("event_id", an_event(event_id=None)),
    ("event_name", an_event(event_name="a\u0000")),
    ("data", without("data")),
    ("data.amount_cents", an_event(data={"amount_cents": -1})),
    ("data.amount_cents", an_event(data={"amount_cents": 1.5})),
    ("data.amount_cents", an_event(data={"amount_cents": "100"})),
    ("data.amount_cents", an_event(data={"amount_cents": 10**30})),
    ("data.amount_euros", an_event(data={"amount_cents": 1, "amount_euros": 1})),
    ("amount", an_event(amount=1)),
    ("body", []),
]


@pytest.mark.parametrize(("field", "event"), FIELDS)
async def test_a_wrong_field_is_named(sqlite_ledger: Ledger, field: str, event: Any) -> None:
    answer = await sqlite_ledger.send(event)
    assert answer.status_code == 422
    body = answer.json()
    assert (body["error"], body["field"]) == ("invalid", field)
    assert await sqlite_ledger.is_empty()


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
        assert allowed.status_code == 400


@pytest.mark.parametrize("key", ["", "a b", "k" * 201])
async def test_a_key_that_cannot_be_kept_is_refused(sqlite_ledger: Ledger, key: str) -> None:
    answer = await sqlite_ledger.send(an_event(), key=key)
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")


async def test_a_wrong_query_is_refused_by_name(sqlite_ledger: Ledger) -> None:
    for query, field in (("limit=0", "limit"), ("limit=x", "limit"), ("after=a%00", "after")):
        answer = await sqlite_ledger.http.get(f"/api/v1/events?{query}")
        assert (answer.status_code, answer.json()["field"]) == (422, field)
