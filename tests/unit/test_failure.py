"""What is told of a failure: its words, its traceback, and the fields of our own errors."""

import traceback
from collections.abc import Callable

import pytest
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    NotPrimaryError,
    OperationFailure,
    ServerSelectionTimeoutError,
    WriteError,
)

import headway
from headway import (
    ConfigurationError,
    DocumentNotFoundError,
    DuplicateEventError,
    HeadwayError,
    OutcomeUnknownError,
    errors,
)
from headway.core.failure import note, words
from headway.core.traces import trace


def test_an_error_of_ours_carries_what_its_message_names() -> None:
    missing = DocumentNotFoundError("messages", (name for name in ("m1", "m2")))
    assert (missing.collection, missing.missing) == ("messages", ("m1", "m2"))
    assert str(missing).endswith("messages: m1, m2")
    assert str(DocumentNotFoundError("no messages yet")) == "no messages yet"
    assert DuplicateEventError("e-1").operation_id == "e-1"
    assert "'e-1'" in str(DuplicateEventError("e-1"))
    assert str(DuplicateEventError("e-1", "seen before")) == "seen before"
    unknown = OutcomeUnknownError("e-1", 5, "t")
    assert (unknown.operation_id, unknown.attempts, unknown.token) == ("e-1", 5, "t")
    assert issubclass(ConfigurationError, ValueError)
    kinds = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error")]
    kinds += [getattr(headway, name) for name in headway.__all__ if name.endswith("Error")]
    assert all(issubclass(kind, HeadwayError) for kind in kinds)


REFUSED = "db:1: [Errno 111] Connect call failed ('10.0.0.1', 1)"
TIMEOUTS = " (configured timeouts: socketTimeoutMS: 5000.0ms, connectTimeoutMS: 5000.0ms)"
ANSWER = {"ok": 0.0, "errmsg": "not primary", "topologyVersion": {"processId": b"c\x01"}}
BULK = {"writeErrors": [{"code": 121, "errmsg": "failed validation", "op": {}}]}
TWO_AWAY = (
    f"{REFUSED}{TIMEOUTS},{REFUSED.replace('db:1', 'db:2')}{TIMEOUTS}, Timeout: 5.0s, "
    "Topology Description: <TopologyDescription id: 1, servers: [<all of it>]>"
)
FLAT = "it failed, full error: {'my': 'own'}, Timeout: 5.0s, Topology Description: <flat>"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotPrimaryError("not primary", ANSWER), "not primary"),
        (OperationFailure("no such command: 'x'", 59, ANSWER), "no such command: 'x'"),
        (WriteError("Document failed validation", 121, ANSWER), "Document failed validation"),
        (AutoReconnect(REFUSED + TIMEOUTS), REFUSED),
        (ServerSelectionTimeoutError(TWO_AWAY), f"{REFUSED},{REFUSED.replace('db:1', 'db:2')}"),
        (BulkWriteError(BULK), "batch op errors occurred: failed validation"),
        (BulkWriteError({"writeErrors": []}), "batch op errors occurred"),
        (DuplicateKeyError("E11000", 11000, {"writeErrors": 7}), "E11000"),
        (RuntimeError(FLAT), FLAT),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_of_what_mongodbs_driver_says_only_what_happened_is_told(
    error: Exception, said: str
) -> None:
    assert words(error) == said


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no word")


class StrayError(Exception):
    __module__ = None  # type: ignore[assignment]


class NoNotesError(Exception):
    def add_note(self, note: str, /) -> None:
        raise RuntimeError(note)


def test_a_note_is_added_once_and_never_hides_the_error() -> None:
    error, broken = ValueError(), ValueError()
    for _ in range(3):
        note(error, "gave up")
    assert error.__notes__ == ["gave up"]
    broken.__notes__ = 5  # type: ignore[assignment]
    note(broken, "x")
    note(NoNotesError(), "x")


def plain() -> None:
    raise ValueError("käse\n✓")


def from_cause() -> None:
    try:
        plain()
    except ValueError as error:
        raise KeyError("outer") from error


def in_context() -> None:
    try:
        from_cause()
    except KeyError:
        raise OSError(2, "no such thing")  # noqa: B904 (that is the case)


def suppressed() -> None:
    try:
        plain()
    except ValueError:
        raise RuntimeError from None


def with_notes() -> None:
    error = ValueError("noted")
    error.add_note("a note")
    raise error


def without_words() -> None:
    raise MuteError


def from_nowhere() -> None:
    raise StrayError("no module")


def misspelt() -> None:
    plian()  # type: ignore[name-defined]  # noqa: F821 (that is the case)


def of_syntax() -> None:
    compile("a b c", "<text>", "exec")


def deep(depth: int = 0) -> None:
    deep(depth + 1)


def in_a_group() -> None:
    errors = []
    for raising in (plain, from_cause):
        try:
            raising()
        except (ValueError, KeyError) as error:
            errors.append(error)
    raise ValueError("of a group") from ExceptionGroup("several", errors)


def in_a_ring() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


RAISING = [
    *(plain, from_cause, in_context, suppressed, with_notes, without_words, from_nowhere),
    *(misspelt, of_syntax, deep, in_a_group, in_a_ring),
]


@pytest.mark.parametrize("raising", RAISING, ids=lambda each: each.__name__)
def test_a_traceback_is_written_as_python_writes_it(raising: Callable[[], None]) -> None:
    for _ in range(3):  # the first time by Python, then from memory
        with pytest.raises(BaseException) as caught:
            raising()
        assert trace(caught.value) == "".join(traceback.format_exception(caught.value))


def test_an_exception_that_was_never_raised_or_cannot_be_shown_has_a_text() -> None:
    class HostileError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

        def __getattribute__(self, name: str) -> object:
            raise RuntimeError(name)

    assert trace(ValueError("new")) == "ValueError: new\n"
    assert trace(HostileError())
