"""What the ledger answers: one small shape for everything that can become of an event."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from headway import classify_dsql_error
from headway.systems.ledger.metrics import Outcome

RETRY_AFTER_SECONDS = 1
_RESOURCES = "53"
"""The SQLSTATE class of a server that has no connection, memory or disk left just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status, a body, and whether it is worth asking again."""

    status: int
    body: dict[str, Any] = field(default_factory=dict)
    outcome: Outcome
    retry: bool = False

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(RETRY_AFTER_SECONDS)} if self.retry else {}


def stored(event_id: str, *, already: bool) -> Answer:
    body = {"status": "stored", "event_id": event_id, "already": already}
    return Answer(status=HTTPStatus.CREATED, body=body, outcome="stored")


def duplicate(event_id: str, *, identical: bool | None) -> Answer:
    """`identical`: whether what is stored says the same; None where that could not be read."""
    content = {True: "the same content", False: "different content", None: "unknown content"}
    return Answer(
        status=HTTPStatus.CONFLICT,
        body=_error(
            "duplicate",
            f"an event with this id is stored already, with {content[identical]}; "
            "nothing was changed",
            event_id=event_id,
            identical=identical,
        ),
        outcome="duplicate",
    )


def refused(message: str, *, field: str, event_id: str | None = None) -> Answer:
    return Answer(
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        body=_error("invalid", f"{field}: {message}", event_id=event_id, field=field),
        outcome="invalid",
    )


def malformed(message: str) -> Answer:
    return Answer(
        status=HTTPStatus.BAD_REQUEST, body=_error("malformed", message), outcome="invalid"
    )


def too_large(limit: int) -> Answer:
    return Answer(
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        body=_error("too_large", f"the body is larger than {limit} bytes: send less at a time"),
        outcome="invalid",
    )


def too_many(limit: int, setting: str) -> Answer:
    return Answer(
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        body=_error(
            "too_many",
            f"a bulk has at most {limit} events: send fewer at a time, or raise {setting}",
        ),
        outcome="invalid",
    )


def outcome_unknown(event_id: str, *, key: str, status: int) -> Answer:
    """Name the key even to a sender that gave none: only with it is the write known as its own."""
    return Answer(
        status=status,
        body=_error(
            "outcome_unknown",
            "the database was lost during the commit, so it is UNKNOWN whether the event was "
            "stored: send it again with the same event_id and Idempotency-Key",
            event_id=event_id,
            stored=None,
            idempotency_key=key,
        ),
        outcome="unknown",
        retry=True,
    )


def not_stored(event_id: str, error: BaseException, *, status: int, transaction_id: str) -> Answer:
    """Answer for an event that is surely not in the store, after the error that kept it out."""
    name, why, retry = judged(error)
    message = (
        f"the event was NOT stored: {why}; send it again with the same event_id"
        if retry
        else f"the event was NOT stored: {why}; the log says more under this transaction_id"
    )
    return Answer(
        status=status if retry else HTTPStatus.INTERNAL_SERVER_ERROR,
        body=_error(name, message, event_id=event_id, stored=False, transaction_id=transaction_id),
        outcome="exhausted" if retry else "failed",
        retry=retry,
    )


def unreadable(error: BaseException, *, status: int) -> Answer:
    """Answer for a question that the database did not answer."""
    name, why, retry = judged(error)
    return Answer(
        status=status if retry else HTTPStatus.INTERNAL_SERVER_ERROR,
        body=_error(name, why),
        outcome="failed",
        retry=retry,
    )


def together(found: Sequence[Answer]) -> Answer:
    """Answer for a bulk: 201 means that all is stored, as for one event; else 207."""
    stored = sum(answer.outcome == "stored" for answer in found)
    return Answer(
        status=HTTPStatus.CREATED if stored == len(found) else HTTPStatus.MULTI_STATUS,
        body={
            "stored": stored,
            "not_stored": len(found) - stored,
            "results": [{"status_code": int(answer.status), **answer.body} for answer in found],
        },
        outcome="stored" if stored == len(found) else "failed",
        retry=any(answer.retry for answer in found),
    )


def judged(error: BaseException) -> tuple[str, str, bool]:
    """Name the error for the outside, say it in words, and say whether asking again may help.

    The database's own words stay in the log: they may quote what a stranger should not see.
    """
    may_help, error_type, _ = classify_dsql_error(error)
    if error_type == "OC000_TRANSACTION_CONFLICT":
        return "exhausted", "it conflicted with other transactions in every attempt", True
    if may_help:
        return "unreachable", "the database could not be reached", True
    if str(getattr(error, "sqlstate", "")).startswith(_RESOURCES):
        return "overloaded", "the database is out of connections or space", True
    return "failed", "the database refused it for a reason that will not pass", False


def _error(error: str, message: str, **fields: object) -> dict[str, Any]:
    given = {name: value for name, value in fields.items() if name != "event_id" or value}
    return {"error": error, "message": message, **given}
