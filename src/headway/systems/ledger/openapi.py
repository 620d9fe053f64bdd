"""The description of the API: shapes come from the event types, answers from what is answered."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from headway.systems.ledger import answers
from headway.systems.ledger.entities import Entity
from headway.systems.ledger.events import Event
from headway.systems.ledger.rows import totals_from
from headway.systems.ledger.settings import MAX_BULK_EVENTS

Responses = dict[int | str, dict[str, Any]]

ABOUT = (
    "Takes events in and stores each one once, together with its effect on the car or loan that "
    "it is about, or not at all. Conflicts between transactions are "
    "retried before you hear of them. Send the same event again whenever you got no answer; with "
    "the same `Idempotency-Key` you are told that your own write is there."
)

EXAMPLE: dict[str, Any] = {
    "event_type": "LoanPaymentSubmitted",
    "event_id": "pay-0001",
    "timestamp": "2026-01-31T12:00:00Z",
    "entity_id": "loan-7",
    "data": {"amount_cents": 25000},
}
_SECOND = EXAMPLE | {"event_id": "pay-0002", "timestamp": "2026-02-28T12:00:00Z"}
_STORED_AT = "2026-01-31T12:00:01Z"
_LISTED = {
    "event_id": "pay-0001",
    "event_type": "LoanPaymentSubmitted",
    "entity_id": "loan-7",
    "amount_cents": 25000,
    "stored_at": _STORED_AT,
}
_LOAN = Entity(
    entity_id="loan-7",
    kind="loan",
    provisional=False,
    opening_cents=500_000,
    movements=1,
    moved_cents=25_000,
).described()
_TOTALS = totals_from(
    [
        {"name": name, "number": number, "cents": cents}
        for name, number, cents in (
            ("LoanCreated", 1, 500_000),
            ("loan_opened", 1, 500_000),
            ("LoanPaymentSubmitted", 1, 25_000),
            ("loan_moved", 1, 25_000),
        )
    ]
)
_METRICS = 'ledger_events_total{event_type="CarCreated",outcome="stored"} 1.0'

_SHAPES = "#/components/schemas/{name}"
_EVENT, SHAPES = msgspec.json.schema_components([Event], ref_template=_SHAPES)

_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 200},
    "description": "Makes it safe to send the request again: your own write is answered 201.",
}


def _taking(schema: dict[str, Any], example: object) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, "example": example}}
    return {"parameters": [_KEY], "requestBody": {"required": True, "content": content}}


ONE_EVENT = _taking(_EVENT[0], EXAMPLE)
BULK = _taking(
    {
        "type": "object",
        "required": ["events"],
        "properties": {"events": {"type": "array", "items": _EVENT[0]}},
        "additionalProperties": False,
    },
    {"events": [EXAMPLE, _SECOND]},
)


def _told(description: str, example: object, kind: str = "application/json") -> dict[str, Any]:
    return {"description": description, "content": {kind: {"example": example}}}


_STORED = answers.stored("pay-0001", already=False)
_DUPLICATE = answers.duplicate("pay-0002", identical=True)
_AWAY = ConnectionRefusedError()
_WELL = {"status": "well"}
_UNWELL = {
    "status": "unwell",
    "error": "unreachable",
    "reason": "the database could not be reached",
}
_NOT_FOUND = {"error": "not_found", "message": "there is none with this id"}

_BODY_REFUSED: Responses = {
    400: _told(
        "The body is not JSON.",
        answers.malformed("the body is not JSON that can be read: Input data was truncated").body,
    ),
    403: _told(
        "A page of another site sent it (`Origin`).",
        {"error": "forbidden", "message": "pages of other sites may not write here: ..."},
    ),
    413: _told("The body is too large.", answers.too_large(262_144).body),
    415: _told(
        "The `Content-Type` is not `application/json`.",
        {
            "error": "unsupported_media_type",
            "message": "send JSON, with Content-Type: application/json",
        },
    ),
}
ANSWERS: Responses = {
    201: _told("Stored. `already` is true if an earlier request of yours did it.", _STORED.body),
    **_BODY_REFUSED,
    409: _told(
        "Somebody else's event has this id; `identical` compares the content.",
        answers.duplicate("pay-0001", identical=True).body,
    ),
    422: _told(
        "The event cannot be stored as it is; `field` names what is wrong.",
        answers.refused("must be at least 1", field="data.amount_cents").body,
    ),
    500: _told(
        "Not stored, or unknown whether stored: the body says which. With `Retry-After`, send it "
        "again. `LEDGER_EXHAUSTED_STATUS=503` makes those 503.",
        answers.not_stored(
            "pay-0001", _AWAY, status=500, transaction_id="0b8f6f0e7c5d4a51a3c9d2e4f6a7b8c9"
        ).body,
    ),
}
BULK_ANSWERS: Responses = {
    201: _told(
        "All events are stored.",
        answers.together([_STORED, answers.stored("pay-0002", already=False)]).body,
    ),
    207: _told(
        "Not all are stored: `results` says for each what became of it. With `Retry-After`, some "
        "may be sent again.",
        answers.together([_STORED, _DUPLICATE]).body,
    ),
    **_BODY_REFUSED,
    413: _told(
        "The body is too large, or has too many events.",
        answers.too_many(10_000, MAX_BULK_EVENTS).body,
    ),
    422: _told(
        "The request is no list of events.", answers.refused("is missing", field="events").body
    ),
}


_UNREADABLE: Responses = {
    500: _told(
        "The database did not answer. With `Retry-After`, ask again. "
        "`LEDGER_EXHAUSTED_STATUS=503` makes those 503.",
        answers.unreadable(_AWAY, status=500).body,
    )
}
_QUERY_REFUSED: Responses = {
    422: _told(
        "`after` or `limit` cannot be used.",
        answers.refused("use a whole number from 1 to 1000", field="limit").body,
    )
}
_NONE: Responses = {404: _told("There is none with this id.", _NOT_FOUND)}

EVENTS_LISTED: Responses = {
    200: _told("Up to `limit` events; none: that was all.", {"events": [_LISTED]}),
    **_QUERY_REFUSED,
    **_UNREADABLE,
}
EVENT_SHOWN: Responses = {
    200: _told(
        "The event.",
        {**EXAMPLE, "event_name": "Loan Payment Submitted", "stored_at": _STORED_AT},
    ),
    **_NONE,
    **_UNREADABLE,
}
ENTITIES_LISTED: Responses = {
    200: _told("Up to `limit` cars and loans; none: that was all.", {"entities": [_LOAN]}),
    **_QUERY_REFUSED,
    **_UNREADABLE,
}
ENTITY_SHOWN: Responses = {
    200: _told(
        "The car or loan; `provisional` is true until its Created event has arrived.", _LOAN
    ),
    **_NONE,
    **_UNREADABLE,
}
TOTALS_SHOWN: Responses = {
    200: _told("The sums; `exact` is true if both sides are the same.", _TOTALS),
    **_UNREADABLE,
}
HEALTH: Responses = {
    200: _told("The database answers.", _WELL),
    503: _told("It does not; `reason` says why.", _UNWELL),
}
METRICS: Responses = {200: _told("Text, one line for each counter.", _METRICS, "text/plain")}


def described(app: FastAPI) -> dict[str, Any]:
    """Give the OpenAPI document, with the event shapes among its components."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    # FastAPI adds answers of its own, in its own shape, that the ledger never gives.
    document["components"] = {"schemas": SHAPES}
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"] = {
                status: answer
                for status, answer in sorted(operation["responses"].items())
                if answer["description"] not in {"Successful Response", "Validation Error"}
            }
    return document
