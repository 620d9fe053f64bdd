"""Documents that are stuck in many ways, and how the suites look at them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from headway.core.document import CLAIM_BEFORE, TIMES, moment
from headway.core.lifecycle import Lifecycle
from headway.core.sweep import Requeue, SweepRule, judge
from headway.core.travel import instant
from headway.core.writes import Document
from headway.ports.candidates import Candidates, Claim, View
from headway.ports.engine import Engine, Sweeping
from headway.testing.conformance.beginning import holding
from headway.testing.conformance.harness import EngineHarness

RULE = SweepRule(lifecycle=Lifecycle("docs"))
LEASED = SweepRule(lifecycle=Lifecycle("docs", lease=timedelta(minutes=1)))
FLAGGED = SweepRule(lifecycle=Lifecycle("docs", flag="embedded"))
CLAIM_LEASE = timedelta(minutes=5)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

HARD_IDS = (
    "it's",
    'quo"ted',
    "back\\slash",
    "100%_?*",
    "käse ✓ 注文 😀",
    "a;b--c",
    "$a.b",
    "x" * 200,
)

UNREADABLE: Mapping[str, Any] = {
    "a word": "yesterday",
    "now": "now",
    "empty": "",
    "a number as text": "2460000.5",
    "seconds": 1_700_000_000,
    "a small number": 12,
    "a real number": 0.5,
    "true": True,
    "a list": ["2020-01-01T00:00:00Z"],
    "an object": {"iso": "2020-01-01T00:00:00Z"},
    "a path": "$createdAt",
    "no such month": "2020-13-45T00:00:00Z",
    "no such day": "2020-02-30T00:00:00Z",
    "no such hour": "2020-01-01T25:61:00Z",
    "no such zone": "2020-01-01T00:00:00+99:99",
    "the year 0": "0000-01-01T00:00:00Z",
    "before the year 1": "0001-01-01T00:00:00+14:00",
}
"""What other programs have written where a time belongs."""
NOT_COUNTS: Sequence[Any] = ("three", "", None, [1], {"n": 1}, -2, 0.5, True)
"""And where a number belongs. All of it counts as no attempt."""


def sweeping(engine: Engine) -> Sweeping:
    assert engine.sweeping is not None, "this engine has a store, and nothing to sweep it with"
    return engine.sweeping


def whole_second(harness: EngineHarness) -> datetime:
    """Give the time without the part that some stores do not keep."""
    return harness.clock.now().replace(microsecond=0)


def naive(when: datetime) -> str:
    """Write a time as programs do that forget the zone."""
    return when.replace(tzinfo=None).isoformat()


def old(now: datetime, one: str = "1", **fields: Any) -> Document:
    """Make a document that was attempted once and has not moved for two days."""
    stuck = {
        "_id": one,
        "status": "pending",
        "attemptCount": 1,
        "lastAttemptTime": instant(now - 2 * DAY),
        "lastOperation": "first",
    }
    return {**stuck, **fields}


def in_full(harness: EngineHarness, one: str) -> Document:
    """Make a stuck document in which every field that is watched holds something."""
    now = whole_second(harness)
    return old(
        now,
        one,
        leaseToken="gone",
        leaseUntil=instant(now - DAY),
        sweepGeneration=3,
        retryAt=instant(now - DAY),
        own={"n": [1]},
    )


async def stuck(
    harness: EngineHarness, *documents: Document, rule: SweepRule = RULE
) -> tuple[Engine, Candidates]:
    """Give an engine with these documents in the collection `docs`, prepared for a sweep."""
    engine = await holding(harness, *documents)
    candidates = sweeping(engine).candidates
    await candidates.prepare([rule])
    return engine, candidates


async def scanned(
    candidates: Candidates,
    view: View,
    now: datetime,
    rule: SweepRule = RULE,
    *,
    newest_first: bool = False,
    page: int = 100,
) -> list[Document]:
    """Give all that a view finds, after a look at its pages."""
    found: list[Document] = []
    async for documents in candidates.scan(rule, view, now, newest_first=newest_first, page=page):
        assert 0 < len(documents) <= page
        found += documents
    return found


async def seen(
    candidates: Candidates, view: View, now: datetime, rule: SweepRule = RULE
) -> list[str]:
    """Give the ids of all that a view finds, in an order that can be compared."""
    return sorted(each["_id"] for each in await scanned(candidates, view, now, rule))


async def stored(engine: Engine, one: str) -> Document:
    return comparable((await engine.documents.fetch("docs", [one]))[one])


def comparable(document: Mapping[str, Any]) -> Document:
    """Leave out how a store keeps times, and whether what is not there is kept as null."""
    return {
        field: _comparable(field, value) for field, value in document.items() if value is not None
    }


def _comparable(field: str, value: Any) -> Any:
    if field == CLAIM_BEFORE and isinstance(value, Mapping):
        return comparable(value)
    if field in TIMES or field == "givenUpAt":
        return moment(value) or value
    return value


def requeue_of(document: Document, now: datetime, rule: SweepRule = RULE) -> Requeue:
    judgement = judge(document, rule, now)
    assert isinstance(judgement, Requeue), judgement
    return judgement


def claim_of(document: Document, now: datetime, rule: SweepRule = RULE) -> Claim:
    return Claim(document, requeue_of(document, now, rule))
