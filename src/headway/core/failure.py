"""A failure: what one attempt ended with, and what it means for the next one."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class Verdict(StrEnum):
    """What a failure means for the work that met it."""

    TRANSIENT = "transient"
    """The same attempt may well succeed later."""

    NOT_YET = "not_yet"
    """Something that must exist is not visible yet: wait for it, it is nobody's fault."""

    PERMANENT = "permanent"
    """No number of attempts will help: a person has to look."""

    UNKNOWN_OUTCOME = "unknown_outcome"
    """The attempt may have taken effect although it raised: find out before doing it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The verdict on one exception, and why."""

    verdict: Verdict
    rule: str
    """Name of the rule that matched, `unmatched` if none did."""
    error_type: str
    """The outward word for this kind of error in logs, metrics and answers."""
    found: BaseException
    """The exception in the cause chain that the rule matched."""
    code: str | None = None
    """SQLSTATE or another code of the driver, where there is one."""
    detail: str | None = None
    """A finer code from the message, such as OC001 beside SQLSTATE 40001."""
    retry_after: timedelta | datetime | None = None
    """When the other side asked to be called again, if it did."""

    @property
    def because(self) -> str:
        """Say in one line why the verdict is what it is."""
        kind = type(self.found)
        code = f" with code {self.code}" if self.code is not None else ""
        detail = f" ({self.detail})" if self.detail else ""
        return (
            f"{kind.__module__}.{kind.__qualname__}{code}{detail} "
            f"is {self.verdict} by rule {self.rule}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One attempt that failed."""

    attempt: int
    at: datetime
    error: BaseException
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of a piece of work when its next step is decided."""

    attempts: int
    """Tries begun so far, the one that just failed included."""
    first_seen: datetime
    """When the work was first taken up; survives restarts where the engine keeps it."""
    parked: timedelta = timedelta()
    """Time spent waiting for a dependency that was down: it does not count against the TTL."""


def words(error: BaseException) -> str:
    """Give the message of an exception, whatever its `__str__` does.

    Of what MongoDB's driver says, only what happened: behind that it lists all that it knows.
    """
    try:
        said = in_utf8(str(error))
        return _first_sentence(error, said) if _is_of_mongodb(error) else said
    except BaseException:  # noqa: BLE001 (an exception that cannot be read must not hide itself)
        return ""


_TIMEOUTS = re.compile(r" \(configured timeouts: [^()]{0,500}\)")
_ASIDE = re.compile(r", (?:full error: |Timeout: [0-9.]+s|Topology Description: )")


def _is_of_mongodb(error: BaseException) -> bool:
    return str(type(error).__module__).partition(".")[0] in {"pymongo", "gridfs"}


def _first_sentence(error: BaseException, said: str) -> str:
    first = _TIMEOUTS.sub("", _ASIDE.split(said, maxsplit=1)[0])
    # A bulk names its errors behind that, and nowhere else.
    match getattr(error, "details", None):
        case {"writeErrors": [{"errmsg": str(why)}, *_]} if why not in first:
            return f"{first}: {in_utf8(why)}"
    return first


def in_utf8(text: str) -> str:
    """Give a text that can be stored: the names of some files hold half a character."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def note(error: BaseException, text: str) -> None:
    """Add a note that the traceback will show; not twice, and never at the price of the error."""
    try:
        if text not in getattr(error, "__notes__", ()):
            error.add_note(text)
    except Exception:  # noqa: BLE001, S110 (an exception that takes no notes is raised without)
        pass
