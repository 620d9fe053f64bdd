"""The description of the API: the shapes come from the event types themselves."""

import html
import json
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from headway.systems.ledger.events import Event

ABOUT = (
    "Takes events in and stores each one once, together with its effect on the car or loan that "
    "it is about, or not at all. Conflicts between transactions are "
    "retried before you hear of them. Send the same event again whenever you got no answer; with "
    "the same Idempotency-Key you are told that your own write is there."
)

EXAMPLE = {
    "event_type": "LoanPaymentSubmitted",
    "event_id": "pay-0001",
    "timestamp": "2026-01-31T12:00:00Z",
    "entity_id": "loan-7",
    "data": {"amount_cents": 25000},
}

_SHAPES = "#/components/schemas/{name}"
_EVENT, _COMPONENTS = msgspec.json.schema_components([Event], ref_template=_SHAPES)

_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 200},
    "description": "Makes it safe to send the request again: your own write is answered 201.",
}

ONE_EVENT: dict[str, Any] = {
    "parameters": [_KEY],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": _EVENT[0], "example": EXAMPLE}},
    },
}
BULK: dict[str, Any] = {
    "parameters": [_KEY],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["events"],
                    "properties": {"events": {"type": "array", "items": _EVENT[0]}},
                },
                "example": {"events": [EXAMPLE]},
            }
        },
    },
}
_BODY_REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not JSON."},
    413: {"description": "The body is too large."},
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    201: {"description": "Stored. `already` is true if an earlier request of yours did it."},
    **_BODY_REFUSED,
    409: {"description": "Somebody else's event has this id; `identical` compares the content."},
    422: {"description": "The event cannot be stored as it is; `field` names what is wrong."},
    500: {
        "description": "Not stored, or unknown whether stored: the body says which. With "
        "Retry-After, send it again. LEDGER_EXHAUSTED_STATUS=503 makes those 503."
    },
}
BULK_ANSWERS: dict[int | str, dict[str, Any]] = {
    201: {"description": "All events are stored."},
    207: {"description": "Not all are stored: `results` says for each what became of it."},
    **_BODY_REFUSED,
    422: {"description": "The request is no list of events."},
}


def described(app: FastAPI) -> dict[str, Any]:
    """Give the OpenAPI document, with the event shapes among its components."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    document.setdefault("components", {}).setdefault("schemas", {}).update(_COMPONENTS)
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("200", None) if "201" in operation["responses"] else None
    return document


def page(document: dict[str, Any]) -> str:
    """Write the description as one page that needs nothing from anywhere else."""
    operations = "".join(
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    shapes = "".join(
        f"<details><summary>{html.escape(name)}</summary>{_json(shape)}</details>"
        for name, shape in document["components"]["schemas"].items()
        if name in _COMPONENTS
    )
    curl = (
        "curl -i http://127.0.0.1:8080/api/v1/events -H 'Idempotency-Key: my-key-1' \\\n"
        f"  -d '{json.dumps(EXAMPLE)}'"
    )
    return _PAGE.format(
        title=html.escape(document["info"]["title"]),
        about=html.escape(document["info"]["description"]),
        curl=html.escape(curl),
        operations=operations,
        shapes=shapes,
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    said = operation.get("description") or operation["summary"]
    answers = "".join(
        f"<li><b>{html.escape(status)}</b> {html.escape(answer['description'])}</li>"
        for status, answer in operation["responses"].items()
    )
    return (
        f"<section><h3><code>{method.upper()} {html.escape(path)}</code></h3>"
        f"<p>{html.escape(said)}</p><ul>{answers}</ul></section>"
    )


def _json(value: object) -> str:
    return f"<pre>{html.escape(json.dumps(value, indent=2))}</pre>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff }}
pre {{ background: #f4f4f2; padding: .8rem; overflow-x: auto; border-radius: 4px }}
h3 {{ border-top: 1px solid #ddd; padding-top: 1rem }} summary {{ cursor: pointer }}
</style></head><body>
<h1>{title}</h1><p>{about}</p>
<p>The same for machines: <a href="/openapi.json">openapi.json</a>. To look at:
<a href="/api/v1/totals">totals</a>, <a href="/api/v1/events">events</a>,
<a href="/api/v1/entities">entities</a>, <a href="/health">health</a>,
<a href="/metrics">metrics</a>.</p>
<h2>Try it</h2><pre>{curl}</pre>
<h2>What you can ask</h2>{operations}
<h2>Shapes of the events</h2>{shapes}
</body></html>
"""
