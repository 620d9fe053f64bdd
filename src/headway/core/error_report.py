"""A report of an error, as any service may send it in."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headway.core.secrets import hidden, without_secrets
from headway.core.suggestion import suggestion

Level = Literal["error", "warning", "critical", "info"]
LEVELS: tuple[Level, ...] = ("critical", "error", "warning", "info")
Outcome = Literal["final", "retrying", "recovered"]
OUTCOMES: tuple[Outcome, ...] = ("final", "retrying", "recovered")
_LONGEST_NAME = 200
_NAME = Meta(min_length=1, max_length=_LONGEST_NAME)
_LONGEST_MESSAGE = 10_000
_LONGEST_TRACE = 100_000
_LONGEST_CONTEXT = 50_000
"""In bytes of JSON."""
_CUT = " ... (cut)"
_UNKNOWN = re.compile(r"unknown field `([^`]{0,100})`")


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a service says of an error. A field that we do not know would be lost: it is refused."""

    service: Annotated[str, _NAME]
    level: Level
    message: Annotated[str, Meta(min_length=1)]
    error_type: Annotated[str, Meta(max_length=_LONGEST_NAME)] | None = None
    stack_trace: str | None = None
    context: dict[str, Any] | None = None
    outcome: Outcome | None = None
    """Of the event that failed: it has ended, will be retried, or was processed after all."""

    @property
    def event_key(self) -> str | None:
        """Name the event, if the report does: it settles the outcome of earlier reports."""
        key = (self.context or {}).get("idempotency_key")
        return key if isinstance(key, str) else None

    def fit_to_keep(self) -> "ErrorReport":
        """Give the report without passwords, and with texts of a bearable length."""
        trace = None if self.stack_trace is None else _kept(self.stack_trace, _LONGEST_TRACE)
        kind = None if self.error_type is None else hidden(self.error_type)[:_LONGEST_NAME]
        return msgspec.structs.replace(
            self,
            service=hidden(self.service)[:_LONGEST_NAME],
            error_type=kind,
            message=_kept(self.message, _LONGEST_MESSAGE),
            stack_trace=trace,
            context=None if self.context is None else _kept_context(self.context),
        )


class KeptError(msgspec.Struct, frozen=True, kw_only=True):
    """A report with the id that it was given, and when it came."""

    error_id: str
    timestamp: datetime
    report: ErrorReport

    def flat(self) -> dict[str, Any]:
        """Give it as one object, as the API shows it."""
        at = self.timestamp.isoformat().replace("+00:00", "Z")
        values = msgspec.structs.asdict(self.report)
        return {"error_id": self.error_id, "timestamp": at, **values}

    def flat_within(self, size: int) -> dict[str, Any]:
        """Give it so; if that has more bytes, with the beginnings of what is long."""
        whole = self.flat()
        if len(msgspec.json.encode(whole)) <= size:
            return whole
        # An eighth each: a character has several bytes, and more if JSON has to escape it.
        longest, end = size // 8, f" ... (cut: see /api/errors/{self.error_id})"
        for name in ("message", "stack_trace"):
            if whole[name] is not None:
                whole[name] = _cut(whole[name], longest, end)
        if whole["context"] is not None:
            whole["context"] = _cut_context(whole["context"], longest, end)
        return whole


class ErrorStats(msgspec.Struct, frozen=True, kw_only=True):
    """How many reports are kept, by what they say."""

    total_errors: int
    by_service: dict[str, int]
    by_level: dict[str, int]
    by_type: dict[str, int]
    by_outcome: dict[str, int]


class ErrorFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which reports are meant; what is None is not looked at."""

    service: str | None = None
    level: Level | None = None
    error_type: str | None = None
    outcome: Outcome | None = None


def read_report(body: bytes) -> ErrorReport:
    """Read a report as it came in; ValueError says what is wrong with it."""
    try:
        return msgspec.json.decode(body, type=ErrorReport).fit_to_keep()
    except msgspec.ValidationError as error:
        raise ValueError(_unknown_field(error)) from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _kept(text: str, longest: int) -> str:
    # Cut last: half a password is not known for one.
    return _cut(hidden(text), longest, _CUT)


def _kept_context(context: dict[str, Any]) -> dict[str, Any]:
    return _cut_context(without_secrets(context), _LONGEST_CONTEXT, _CUT)


def _cut(text: str, longest: int, end: str) -> str:
    return text if len(text) <= longest else text[:longest] + end


def _cut_context(context: dict[str, Any], longest: int, end: str) -> dict[str, Any]:
    """Give a context, or the beginning of it as text under the one name `cut`."""
    body = msgspec.json.encode(context)
    if len(body) <= longest:
        return context
    return {"cut": body[:longest].decode(errors="ignore") + end}


def _unknown_field(error: msgspec.ValidationError) -> str:
    """Say what is wrong, and of a field that we do not know, which one may be meant."""
    unknown = _UNKNOWN.search(str(error))
    if unknown is None:
        return str(error)
    fields = [each.name for each in msgspec.structs.fields(ErrorReport)]
    return f"{unknown[1]!r} is no field of a report: {suggestion(unknown[1].lower(), fields)}"
