from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given

from headway.core.document import FARTHEST_AHEAD, count, past
from headway.testing.ports import instant, moment
from tests.unit.documents import JSON, NOW, TIME, modest

COUNTS: dict[int, list[Any]] = {
    0: [0, -1, 0.5, float("nan"), True, None, "3", [3], {}],
    2: [2.0, 2.9],
    3: [3],
    1_000_000: [10**30, float("inf")],
}
TIMES: dict[datetime | None, list[Any]] = {
    NOW: [
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:00:00",
        "2026-03-01 12:00:00",
        "2026-03-01T14:00:00+02:00",
        NOW,
        NOW.replace(tzinfo=None),
        NOW.astimezone(timezone(timedelta(hours=-5))),
    ],
    NOW.replace(hour=0): ["2026-03-01"],
    None: [
        *("0001-01-01T00:00:00+14:00", "some day", "2026-02-30", ""),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        *(1_700_000_000, None, True, [], {}),
    ],
}


@pytest.mark.parametrize("expected", COUNTS)
def test_a_number_of_times_is_read_or_is_none(expected: int) -> None:
    assert [count({"n": value}, "n") for value in COUNTS[expected]] == [expected] * len(
        COUNTS[expected]
    )
    assert count({}, "n") == 0


@pytest.mark.parametrize("expected", TIMES)
def test_a_time_is_read_or_is_none(expected: datetime | None) -> None:
    for value in TIMES[expected]:
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
