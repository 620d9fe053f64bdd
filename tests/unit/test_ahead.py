"""Times that lie ahead, as people type them."""

from datetime import UTC, datetime, timedelta

import pytest

from headway import ConfigurationError
from headway.core.ahead import read_ahead

NOW = datetime(2030, 1, 31, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ahead"),
    [
        ("now", timedelta()),
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("2h", timedelta(hours=2)),
        ("1d12h", timedelta(days=1.5)),
        (" 2h ", timedelta(hours=2)),
        ("2030-01-31T06:00", timedelta(hours=3)),
        ("2030-01-31 06:00Z", timedelta(hours=3)),
        ("2030-01-31T06:00+02:00", timedelta(hours=1)),
        ("2030-02-01", timedelta(hours=21)),
    ],
)
def test_a_time_is_read(text: str, ahead: timedelta) -> None:
    assert read_ahead("--at", text, NOW) == NOW + ahead


def test_the_cure_would_be_accepted() -> None:
    earlier = NOW.replace(year=2027)
    with pytest.raises(ConfigurationError) as refused:
        read_ahead("--at", "3000-01-01", earlier)
    sample = str(refused.value).partition("such as ")[2].partition(" ")[0]
    assert read_ahead("--at", sample, earlier) > earlier


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "use a time such as"),
        ("2", "use a time such as"),
        ("tomorrow", "use a time such as"),
        ("2h later", "use a time such as"),
        ("-2h", "use a time such as"),
        ("2030-01-31T02:59", "that was before now, 2030-01-31 03:00 UTC"),
        ("0001-01-01T00:00+14:00", "use a time such as"),
        ("3000-01-01", "more than a year ahead"),
        ("999999d", "more than a year ahead"),
        ("999999d" * 10_000, "use a time such as"),
    ],
)
def test_what_is_no_time_ahead_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refused:
        read_ahead("--at", text, NOW)
    assert str(refused.value).startswith("--at ")
