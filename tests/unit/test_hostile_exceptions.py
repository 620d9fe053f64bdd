"""Exceptions that do what they should not: the error that counts is never hidden."""

import concurrent.futures
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from headway import ConfigurationError, RetryPolicy, classify_dsql_error
from headway.core.failure import note
from headway.retrying import DEFAULT_CLASSIFIER, Exponential, History, Stepped, Verdict, decide

SECOND = timedelta(seconds=1)


class RaisingOriginalError(Exception):
    @property
    def orig(self) -> Any:
        raise RuntimeError


class RaisingAttributesError(Exception):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class OddCodeError(Exception):
    sqlstate = ({"not": "hashable"},)


class Unhashable:
    def __hash__(self) -> int:
        raise RuntimeError


class UnhashableCodeError(Exception):
    sqlstate = Unhashable()


@pytest.mark.parametrize(
    "kind", [RaisingOriginalError, RaisingAttributesError, OddCodeError, UnhashableCodeError]
)
def test_an_odd_exception_is_classified_all_the_same(kind: type[Exception]) -> None:
    assert DEFAULT_CLASSIFIER.classify(kind("odd")).rule == "unmatched"


def test_an_exception_that_takes_no_notes_is_left_without() -> None:
    class NoNotesError(Exception):
        def add_note(self, note: str, /) -> None:
            raise RuntimeError(note)

    broken = ValueError()
    broken.__notes__ = 5  # type: ignore[assignment]
    note(NoNotesError(), "x")
    note(broken, "x")


def test_one_exception_raised_again_and_again_collects_a_note_once() -> None:
    error = ValueError()
    for _ in range(3):
        note(error, "gave up")
    assert error.__notes__ == ["gave up"]


def test_groups_may_be_nested_deeply() -> None:
    error: Exception = TypeError()
    for _ in range(3_000):
        error = ExceptionGroup("deeper", [error])
    assert DEFAULT_CLASSIFIER.classify(error).verdict is Verdict.PERMANENT


@pytest.mark.parametrize("asked", ["Fri, 31 Dec 9999 23:59:59 -0100", "99999999999999999999", "²"])
def test_an_absurd_pause_asked_for_does_no_harm(asked: str) -> None:
    request = httpx.Request("GET", "http://localhost")
    response = httpx.Response(503, headers=[(b"Retry-After", asked.encode())], request=request)
    diagnosis = DEFAULT_CLASSIFIER.classify(
        httpx.HTTPStatusError("busy", request=request, response=response)
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    policy = RetryPolicy(max_attempts=3, backoff=Stepped(steps=(SECOND,)), ttl=SECOND * 60)
    decide(policy, History(attempts=1, first_seen=now), diagnosis, now=now, draw=0.5)


def test_asyncpg_breaking_off_is_a_lost_connection() -> None:
    error = asyncpg.InternalClientError(
        "cannot switch to state 11; another operation (2) is in progress"
    )
    assert classify_dsql_error(error)[:2] == (True, "CONNECTION_ERROR")


def test_a_cancelled_future_is_not_tried_again() -> None:
    assert (
        DEFAULT_CLASSIFIER.classify(concurrent.futures.CancelledError()).verdict
        is Verdict.PERMANENT
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jitter": None}, "jitter=None is not accepted"),
        ({"jitter": dict}, "jitter=<class 'dict'> is not accepted"),
        ({"factor": "2"}, "factor='2' is not accepted"),
        ({"factor": None}, "factor=None is not accepted"),
    ],
)
def test_a_backoff_of_wrong_types_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Exponential(**{"base": SECOND, "cap": SECOND, **settings})
