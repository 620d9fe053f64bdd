"""A report of an error, as any service may send it in."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headway.core.secrets import hidden

Level = Literal["error", "warning", "critical", "info"]
LEVELS: tuple[Level, ...] = ("critical", "error", "warning", "info")
_NAME = Meta(min_length=1, max_length=200)
_LONGEST_MESSAGE = 10_000
_LONGEST_TRACE = 100_000
_CUT = " ... (cut)"
_DEEPEST = 20


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a service says of an error. Fields that we do not know are left out."""

    service: Annotated[str, _NAME]
    level: Level
    message: Annotated[str, Meta(min_length=1)]
    error_type: Annotated[str, Meta(max_length=200)] | None = None
    stack_trace: str | None = None
    context: dict[str, Any] | None = None

    def fit_to_keep(self) -> "ErrorReport":
        """Give the report without passwords, and with texts of a bearable length."""
        trace = None if self.stack_trace is None else _kept(self.stack_trace, _LONGEST_TRACE)
        return msgspec.structs.replace(
            self,
            message=_kept(self.message, _LONGEST_MESSAGE),
            stack_trace=trace,
            context=None if self.context is None else _without_secrets(self.context),
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


class ErrorStats(msgspec.Struct, frozen=True, kw_only=True):
    """How many reports are kept, by what they say."""

    total_errors: int
    by_service: dict[str, int]
    by_level: dict[str, int]
    by_type: dict[str, int]


class ErrorFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which reports are meant; what is None is not looked at."""

    service: str | None = None
    level: Level | None = None
    error_type: str | None = None


def read_report(body: bytes) -> ErrorReport:
    """Read a report as it came in; ValueError says what is wrong with it."""
    try:
        return msgspec.json.decode(body, type=ErrorReport).fit_to_keep()
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _kept(text: str, longest: int) -> str:
    shorter = text if len(text) <= longest else text[:longest] + _CUT
    return hidden(shorter)


def _without_secrets(value: Any, depth: int = 0, name: str = "") -> Any:
    """Hide secrets by what they are named and by what they look like, at any depth."""
    if depth > _DEEPEST:
        return "..."
    match value:
        case Mapping():
            return {
                key: _without_secrets(inner, depth + 1, str(key)) for key, inner in value.items()
            }
        case list():
            return [_without_secrets(inner, depth + 1, name) for inner in value]
        case str():
            # A name and its value, side by side, are what `hidden` knows a secret by.
            before = f"{name}="
            return hidden(before + value).removeprefix(before) if name else hidden(value)
        case _:
            return value
