from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given

from headway.core.document import FARTHEST_AHEAD, count, past
from headway.testing.ports import instant, moment
from tests.unit.documents import JSON, NOW, TIME, modest


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (3, 3),
        (2.0, 2),
        (2.9, 2),
        (-1, 0),
        (0.5, 0),
        (10**30, 1_000_000),
        (float("inf"), 1_000_000),
        (float("nan"), 0),
        (True, 0),
        (None, 0),
        ("3", 0),
        ([3], 0),
        ({}, 0),
    ],
)
def test_a_number_of_times_is_read_or_is_none(value: Any, expected: int) -> None:
    assert count({"n": value}, "n") == expected
    assert count({}, "n") == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-03-01T12:00:00Z", NOW),
        ("2026-03-01T12:00:00", NOW),
        ("2026-03-01 12:00:00", NOW),
        ("2026-03-01T14:00:00+02:00", NOW),
        ("2026-03-01", NOW.replace(hour=0)),
        (NOW, NOW),
        (NOW.replace(tzinfo=None), NOW),
        (NOW.astimezone(timezone(timedelta(hours=-5))), NOW),
        ("0001-01-01T00:00:00+14:00", None),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), None),
        ("some day", None),
        ("2026-02-30", None),
        ("", None),
        (1_700_000_000, None),
        (None, None),
        (True, None),
        ([], None),
        ({}, None),
    ],
)
def test_a_time_is_read_or_is_none(value: Any, expected: datetime | None) -> None:
    read = moment(value)
    assert read == expected
    assert read is None or read.tzinfo is UTC


@modest
@given(JSON | TIME)
def test_nothing_that_json_can_hold_makes_reading_fail(value: Any) -> None:
    assert count({"n": value}, "n") >= 0
    read = past(value, NOW)
    assert read is None or read <= NOW + FARTHEST_AHEAD


def test_what_is_far_ahead_did_not_happen() -> None:
    near, far = NOW + FARTHEST_AHEAD, NOW + FARTHEST_AHEAD + timedelta(microseconds=1)
    assert past(instant(near), NOW) == near
    assert past(instant(far), NOW) is None
    assert past("3000-01-01T00:00:00Z", NOW) is None
