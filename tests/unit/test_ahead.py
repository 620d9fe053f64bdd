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


@pytest.mark.parametrize(
    "text",
    [
        *("", "2", "tomorrow", "2h later", "-2h", "2030-01-31T02:59", "0001-01-01T00:00+14:00"),
        *("3000-01-01", "999999d", "999999d" * 10_000),
    ],
)
def test_what_is_no_time_ahead_is_refused_with_a_sample_that_would_be_accepted(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_ahead("--at", text, NOW)
    said = str(refused.value)
    assert said.startswith("--at ")
    sample = said.partition("such as ")[2].partition(" ")[0].rstrip(",")
    assert not sample or read_ahead("--at", sample, NOW) > NOW
