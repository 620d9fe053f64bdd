"""Views are read by index: what they cost grows with what is stuck, and not with the collection."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from headway import ConfigurationError, Lifecycle
from headway.testing.engines import MongoStore
from headway.testing.ports import SweepRule, View
from tests.engines.mongodb.site import CLOCK, Site, sweeping

pytestmark = pytest.mark.server("mongodb")

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
BY_STATUS = SweepRule(lifecycle=Lifecycle("docs", lease=MINUTE), version="2")
BY_FLAG = SweepRule(lifecycle=Lifecycle("docs", flag="embedded", lease=MINUTE), version="2")
DECLINED, BUG = {"rule": "shop.declined"}, {"rule": "python.programming"}
EACH = 25
"""Documents that are stuck in each way."""
MANY = 400
"""Documents of each kind that are not stuck."""


def kinds(now: datetime, *, flag: bool) -> dict[str, dict[str, Any]]:
    """Make documents of every kind; what begins with `live` has nothing to do with any sweep."""
    moved, unmoved = {"lastAttemptTime": now - MINUTE}, {"lastAttemptTime": now - 3 * DAY}
    lease, claim = {"leaseToken": "t"}, {"claimToken": "t"}
    over, later = now - MINUTE, now + MINUTE

    def failed(permanently: dict[str, str]) -> dict[str, Any]:
        return {"status": "failed", **moved, "permanentFailure": permanently}

    by_status: dict[str, dict[str, Any]] = {
        "live processed": {"status": "processed", **unmoved, "leaseToken": None},
        "live moved": {"status": "pending", **moved},
        "live leased": {"status": "pending", **moved, **lease, "leaseUntil": later},
        "live claimed": {"status": "pending", **moved, **claim, "claimUntil": later},
        "live given up": {"status": "failed_max_retries", **unmoved},
        "live declined": failed({**DECLINED, "version": "1"}),
        "live bug": failed({**BUG, "version": "2"}),
        "outdated": failed({**BUG, "version": "1"}),
        "failed": {"status": "failed", **moved},
        "unmoved": {"status": "pending", **unmoved},
        "never tried": {},
        "text": {"status": "pending", "lastAttemptTime": "2020-01-01"},
        "ahead": {"status": "pending", "lastAttemptTime": now + 400 * DAY},
        "lease over": {"status": "pending", **moved, **lease, "leaseUntil": over},
        "claim over": {"status": "pending", **moved, **claim, "claimUntil": over},
    }
    if not flag:
        return by_status
    flagged = {kind: {**fields, "embedded": False} for kind, fields in by_status.items()}
    flagged["live processed"]["embedded"] = True
    flagged["live processed"]["lastFailedAt"] = now - DAY
    flagged["dated"] = {"embedded": False, **moved, "lastFailedAt": now}
    del flagged["never tried"]["embedded"]
    return flagged


@pytest.fixture
async def site(mongodb_database: str) -> AsyncIterator[Site]:
    site = Site(mongodb_database)
    yield site
    await site.close()


@pytest.fixture
def store(site: Site) -> MongoStore:
    return site.store()


async def filled(site: Site, store: MongoStore, rule: SweepRule, now: datetime) -> None:
    await sweeping(store).candidates.prepare([rule])
    await site.database["docs"].insert_many(
        {"_id": f"{kind} {n}", "attemptCount": 1, **fields}
        for kind, fields in kinds(now, flag=rule.lifecycle.flag is not None).items()
        for n in range(MANY if kind.startswith("live") else EACH)
    )


async def examined(site: Site) -> tuple[int, int]:
    """Say how many keys and documents were looked at since the profiler began; then end it."""
    await site.database.command({"profile": 0})
    ours = {"ns": f"{site.database.name}.docs", "command.explain": {"$exists": False}}
    entries = await site.database["system.profile"].find(ours).to_list()
    assert entries
    for entry in entries:
        assert "COLLSCAN" not in entry.get("planSummary", ""), entry["command"]
    await site.database["system.profile"].drop()
    return (
        sum(entry.get("keysExamined", 0) for entry in entries),
        sum(entry.get("docsExamined", 0) for entry in entries),
    )


VIEWS = {
    View.FAILED: {"failed"},
    View.OUTDATED: {"outdated"},
    View.UNMOVED: {"unmoved", "never tried", "text", "ahead"},
    View.LEASE_OVER: {"lease over"},
    View.CLAIM_OVER: {"claim over"},
}


@pytest.mark.parametrize("rule", [BY_STATUS, BY_FLAG], ids=["status", "flag"])
async def test_views_and_counts_cost_what_is_in_them(
    site: Site, store: MongoStore, rule: SweepRule
) -> None:
    now = CLOCK.now()
    await filled(site, store, rule, now)
    candidates = sweeping(store).candidates
    dated = {View.FAILED: {"failed", "dated"}} if rule.lifecycle.flag is not None else {}
    for view, expected in {**VIEWS, **dated}.items():
        for newest_first in (False, True):
            await site.database.command({"profile": 2})
            found: list[str] = []
            async for page in candidates.scan(rule, view, now, newest_first=newest_first, page=10):
                found += [document["_id"].rpartition(" ")[0] for document in page]
            keys, documents = await examined(site)
            assert {kind: found.count(kind) for kind in found} == dict.fromkeys(expected, EACH)
            # The version is read from the index: no document is looked at for it.
            others = MANY if view is View.OUTDATED else 0
            assert keys <= len(found) * 1.2 + 30 + others, (view, keys)
            assert documents <= len(found) * 2 + 30, (view, documents)
    await site.database.command({"profile": 2})
    tally = await candidates.tally(rule, now)
    keys, _ = await examined(site)
    stuck = EACH * (8 if rule.lifecycle.flag is None else 9)
    assert (tally.stuck, tally.given_up, tally.permanent) == (stuck, MANY, 2 * MANY)
    assert keys <= (stuck + 4 * MANY) * 1.2 + 50


async def test_an_index_that_is_there_under_another_name_will_do(
    site: Site, store: MongoStore
) -> None:
    docs = site.database["docs"]
    await docs.create_index([("status", 1), ("lastAttemptTime", 1), ("_id", 1)], name="theirs")
    await docs.create_index("leaseUntil", name="leases of theirs")
    now = CLOCK.now()
    await filled(site, store, BY_STATUS, now)
    await sweeping(store).candidates.prepare([BY_STATUS])
    for view, expected in VIEWS.items():
        pages = sweeping(store).candidates.scan(BY_STATUS, view, now, newest_first=True, page=99)
        assert sum([len(page) async for page in pages]) == EACH * len(expected)


async def test_a_view_is_read_before_anybody_has_made_its_indexes(
    site: Site, store: MongoStore
) -> None:
    now = CLOCK.now()
    await site.database["docs"].insert_one({"_id": "1", "status": "failed"})
    candidates = sweeping(store).candidates
    for view in View:
        pages = candidates.scan(BY_STATUS, view, now, newest_first=True, page=9)
        assert sum([len(page) async for page in pages]) == (view is View.FAILED)
    assert (await candidates.tally(BY_STATUS, now)).stuck == 1


@pytest.mark.parametrize("flag", ["a.b", "$a", ""])
async def test_a_flag_that_no_index_can_find_is_refused(store: MongoStore, flag: str) -> None:
    rule = SweepRule(lifecycle=Lifecycle("docs", flag=flag))
    with pytest.raises(ConfigurationError, match=r"flag=.* of 'docs' is not accepted.*use another"):
        await sweeping(store).candidates.prepare([rule])
