"""Documents for the tests of recovery: such as there should be, and such as there are."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from headway.core.document import (
    ATTEMPT_COUNT,
    CLAIM_BEFORE,
    CLAIM_TOKEN,
    LAST_OPERATION,
    LEASE_TOKEN,
    MOST,
    STATUS,
    SWEEP_GENERATION,
    TIMES,
)
from headway.testing.ports import Document, instant

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

modest = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A machine may be busy with other things."""

GARBAGE_TIMES: tuple[Any, ...] = (
    "3000-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+14:00",
    "some day",
    "",
    "now",
    1_700_000_000,
    -1.5,
    True,
    [],
    {},
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
MOMENTS = st.timedeltas(-400 * DAY, 400 * DAY).map(lambda delta: instant(NOW + delta))
TIME = MOMENTS | MOMENTS.map(lambda text: text[:-1]) | st.sampled_from(GARBAGE_TIMES) | JSON
STATUSES = ("pending", "processing", "failed", "failed_max_retries", "processed", "completed")

DOCUMENTS: st.SearchStrategy[Document] = st.fixed_dictionaries(
    {"_id": st.text(max_size=200)},
    optional={
        **dict.fromkeys(TIMES, TIME),
        STATUS: st.sampled_from(STATUSES) | JSON,
        "embedded": st.booleans() | JSON,
        ATTEMPT_COUNT: st.integers(0, 6) | JSON,
        SWEEP_GENERATION: st.integers(0, 6) | st.integers(MOST - 1, MOST + 1) | JSON,
        LEASE_TOKEN: st.none() | st.just("t") | JSON,
        CLAIM_TOKEN: st.none() | st.just("t") | JSON,
        CLAIM_BEFORE: JSON,
        LAST_OPERATION: st.sampled_from(
            ["first", "sweep-1:docs:1", "sweep-2@20260301T120000.000Z:docs:1"]
        )
        | JSON,
    },
)
"""Any that a client of a store may have written."""


def ago(delta: timedelta) -> str:
    return instant(NOW - delta)
