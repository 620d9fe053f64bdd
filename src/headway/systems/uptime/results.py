"""Results of checks, as checkers send them."""

from enum import StrEnum
from typing import Any

import msgspec

from headway import HeadwayError


class CheckStatus(StrEnum):
    """How a check went."""

    SUCCESS = "success"
    FAILURE = "failure"
    MISSED_WINDOW = "missed_window"
    """No check was made, or its result never came."""
    DISALLOWED_BY_ROBOTS = "disallowed_by_robots"
    """The site asks not to be checked."""


class StatusReason(msgspec.Struct, frozen=True):
    """Why a check did not go well."""

    type: str
    description: str = ""


class CheckResult(msgspec.Struct, frozen=True):
    """One result. Its place in the order is the time for which the check was scheduled."""

    guid: str
    subscription_id: str
    status: CheckStatus
    scheduled_check_time_ms: int
    actual_check_time_ms: int = 0
    region: str = "default"
    duration_ms: float | None = None
    status_reason: StatusReason | None = None
    trace_id: str | None = None
    request_info: dict[str, Any] | None = None


class MalformedResultError(HeadwayError):
    """These bytes are no result of a check."""


_DECODER = msgspec.json.Decoder(CheckResult)
_ENCODER = msgspec.json.Encoder()
_HIGHEST = 2**53 - 1
_LONGEST = 200
_SHOWN = 40


def decode(raw: bytes) -> CheckResult:
    """Read a result, or say what is wrong with it."""
    try:
        result = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedResultError(
            f"no result of a check ({error}): send a JSON object with guid, subscription_id, "
            f"status ({', '.join(CheckStatus)}) and scheduled_check_time_ms"
        ) from error
    if not 0 <= result.scheduled_check_time_ms <= _HIGHEST:
        raise MalformedResultError(
            f"scheduled_check_time_ms={result.scheduled_check_time_ms} is not accepted: use "
            "milliseconds since 1970"
        )
    # Without a guid it would be taken for a miss that somebody made up; a region is a label.
    if not 0 < len(result.guid) <= _LONGEST:
        raise _not_accepted("guid", result.guid)
    if not (0 < len(result.region) <= _LONGEST and result.region.isprintable()):
        raise _not_accepted("region", result.region)
    return result


def _not_accepted(name: str, text: str) -> MalformedResultError:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return MalformedResultError(
        f"{name}={shown!r} is not accepted: use 1 to {_LONGEST} characters that can be printed"
    )


def encode(result: CheckResult) -> bytes:
    """Write a result as it is kept while it is held."""
    return _ENCODER.encode(result)
