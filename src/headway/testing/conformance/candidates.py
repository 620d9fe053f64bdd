"""What every store does for a sweeper."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from headway.core.beginning import Beginning, How
from headway.core.lifecycle import Lifecycle
from headway.core.stuck import is_stuck
from headway.core.sweep import Requeue, SweepRule, judge
from headway.core.travel import instant
from headway.core.writes import Document, InsertNew, Update
from headway.ports.candidates import Claim, Tally, View
from headway.testing.conformance.claim_ends import ClaimEndsConformance
from headway.testing.conformance.claims import ClaimsConformance
from headway.testing.conformance.examples import opened, wrote
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.stuck import (
    CLAIM_LEASE,
    DAY,
    FLAGGED,
    LEASED,
    MINUTE,
    RULE,
    UNREADABLE,
    naive,
    old,
    scanned,
    seen,
    stored,
    stuck,
    sweeping,
    whole_second,
)
from headway.testing.conformance.views import ViewsConformance

FLAGGED_AND_LEASED = Lifecycle("docs", flag="embedded", lease=MINUTE)
BUG = "python.programming"
PERMANENT: Mapping[str, Any] = {
    "declined": {"rule": "shop.declined", "version": "2"},
    "declined by another version": {"rule": "shop.declined", "version": "1"},
    "refused": {"rule": "data", "version": ""},
    "a bug of this version": {"rule": BUG, "version": "2"},
    "a bug of an older one": {"rule": BUG, "version": "1"},
    "a bug of a newer one": {"rule": BUG, "version": "20 it's"},
    "a bug of no version": {"rule": BUG, "version": ""},
    "no version is known": {"rule": BUG},
    "no rule": {},
    "a word": "declined",
    "no word": "",
    "a number": 7,
    "false": False,
    "a list": ["declined"],
    "an empty list": [],
    "a list of null": [None],
    "a list of a failure": [{"rule": BUG, "version": "1"}],
    "null as its rule": {"rule": None, "version": "1"},
    "a number as its rule": {"rule": 7, "version": "1"},
    "a list as its rule": {"rule": [BUG], "version": "1"},
    "a list of null as its rule": {"rule": [None]},
    "an object as its rule": {"rule": {}},
    "a number as its version": {"rule": BUG, "version": 1},
    "the number of this version": {"rule": BUG, "version": 2},
    "true as its version": {"rule": BUG, "version": True},
    "a list as its version": {"rule": BUG, "version": ["2"]},
    "an object as its version": {"rule": BUG, "version": {}},
}
"""What is neither a rule with a version nor null says all the same that it failed permanently."""
_UNNAMED = {"a bug of no version", "no version is known"}
VERSIONS: Mapping[str | None, set[str]] = {
    None: set(),
    "": {"a bug of this version", "a bug of an older one", "a bug of a newer one"},
    "2": {"a bug of an older one", "a bug of a newer one", *_UNNAMED},
    "3": {
        "a bug of this version", "a bug of an older one", "a bug of a newer one", *_UNNAMED,
    },
}  # fmt: skip
"""Which of them a sweep takes up, by the version of the service."""
HOLDS = ("leaseToken", "leaseUntil", "claimToken", "claimUntil")


class CandidatesConformance(ViewsConformance, ClaimsConformance, ClaimEndsConformance):
    """Finding, claiming, counting, and getting ready for it."""

    # Counting

    async def test_where_nothing_is_stuck_nothing_is_counted(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        _, candidates = await stuck(
            harness,
            old(now, "processed", status="processed"),
            old(now, "moved", lastAttemptTime=instant(now - MINUTE)),
            old(now, "foreign", status="archived"),
        )
        assert await candidates.tally(RULE, now) == Tally(stuck=0, given_up=0)

    async def test_what_is_stuck_is_counted_and_the_oldest_is_named(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        oldest = now - 9 * DAY
        odd = list(enumerate(UNREADABLE.values()))
        engine, candidates = await stuck(
            harness,
            old(now, "unmoved"),
            old(now, "failed", status="failed", lastAttemptTime=instant(now)),
            {"_id": "never tried", "createdAt": naive(now - 5 * DAY)},
            {"_id": "nothing known"},
            old(now, "unreadable", lastAttemptTime="some day", createdAt=7),
            old(now, "ahead", lastAttemptTime="3000-01-01T00:00:00Z"),
            *(old(now, f"odd {n}", lastAttemptTime=each) for n, each in odd),
            *(old(now, f"made {n}", lastAttemptTime=None, createdAt=each) for n, each in odd),
            old(now, "made long ago, tried since", createdAt=instant(now - 99 * DAY)),
            old(now, "given up", status="failed_max_retries", lastAttemptTime=instant(oldest)),
            old(now, "processed", status="processed", lastAttemptTime=instant(oldest)),
        )
        tally = await candidates.tally(RULE, now)
        assert tally == Tally(stuck=7 + 2 * len(odd), given_up=1, oldest=now - 5 * DAY)
        more = old(now, "oldest", status="failed", lastAttemptTime=instant(oldest))
        await wrote(harness, engine, InsertNew("docs", more))
        tally = await candidates.tally(RULE, now)
        assert tally == Tally(stuck=8 + 2 * len(odd), given_up=1, oldest=oldest)

    async def test_what_is_only_young_is_not_counted_as_stuck(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        made = instant(now - MINUTE)
        _, candidates = await stuck(
            harness,
            {"_id": "young", "status": "pending", "attemptCount": 0, "createdAt": made},
            {"_id": "no status", "createdAt": made},
            {"_id": "naive", "createdAt": naive(now - MINUTE)},
            {"_id": "odd", "createdAt": made, "lastAttemptTime": "some day", "attemptCount": "9"},
            {"_id": "attempted", "createdAt": made, "attemptCount": 1},
            {"_id": "failed", "createdAt": made, "status": "failed"},
            {"_id": "grown up", "createdAt": instant(now - 16 * MINUTE)},
            {"_id": "not yet made", "createdAt": instant(now + DAY)},
            {"_id": "nothing known"},
        )
        for rule, number in ((RULE, 5), (FLAGGED, 5), (replace(RULE, grace=30 * MINUTE), 4)):
            assert (await candidates.tally(rule, now)).stuck == number
        strict = replace(RULE, grace=timedelta())
        assert (await candidates.tally(strict, now)).stuck == 9

    async def test_what_somebody_died_over_is_counted_once_its_hold_is_over(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        over, runs = instant(now - MINUTE), instant(now + MINUTE)
        began = instant(now - 10 * MINUTE)
        lease, claim = {"leaseToken": "t"}, {"claimToken": "t"}
        made = {"attemptCount": 0, "lastAttemptTime": None, "createdAt": began}
        documents: dict[str, dict[str, Any]] = {
            "lease over": {**lease, "leaseUntil": over, "lastAttemptTime": began},
            "lease over, in its backoff": {**lease, "leaseUntil": over, "lastAttemptTime": over},
            "lease over, never tried": {**lease, "leaseUntil": over, **made},
            "lease over, unmoved": {**lease, "leaseUntil": over},
            "lease until some day": {**lease, "leaseUntil": "some day", "lastAttemptTime": began},
            "lease as text": {**lease, "leaseUntil": naive(now - MINUTE), "lastAttemptTime": began},
            "claim over": {**claim, "claimUntil": over, "lastAttemptTime": began},
            "claim over, unmoved": {**claim, "claimUntil": over},
            "claim and lease over": {**claim, **lease, "leaseUntil": over, "claimUntil": over},
            "claim over, failed": {**claim, "claimUntil": over, "status": "failed"},
            "no more attempts": {
                **lease, "leaseUntil": over, "lastAttemptTime": began, "attemptCount": 9
            },
        }  # fmt: skip
        left: dict[str, dict[str, Any]] = {
            "lease runs": {**lease, "leaseUntil": runs, "lastAttemptTime": began},
            "lease runs, unmoved": {**lease, "leaseUntil": runs, "createdAt": began},
            "lease runs, never tried": {**lease, "leaseUntil": runs, **made},
            "claim runs": {**claim, "claimUntil": runs, "lastAttemptTime": began},
            "claim runs, unmoved": {**claim, "claimUntil": runs},
            "claim runs, lease over": {**claim, **lease, "claimUntil": runs, "leaseUntil": over},
            "processed": {**lease, "leaseUntil": over, "status": "processed"},
            "given up": {**lease, "leaseUntil": over, "status": "failed_max_retries"},
        }
        for rule in (LEASED, replace(FLAGGED, lifecycle=FLAGGED_AND_LEASED)):
            named = rule.lifecycle.flag or "status"
            every = {f"{named} {one}": fields for one, fields in (documents | left).items()}
            for one, fields in every.items():
                if rule.lifecycle.flag and fields.get("status") == "processed":
                    every[one] = {**fields, rule.lifecycle.flag: True}
            made_so = [old(now, one, **fields) for one, fields in every.items()]
            engine, candidates = await stuck(harness, *made_so, rule=rule)
            tally = await candidates.tally(rule, now)
            counted = [one["_id"] for one in made_so if is_stuck(one, rule, now)]
            assert counted == [f"{named} {one}" for one in documents]
            oldest = now - 2 * DAY
            assert tally == Tally(stuck=len(documents), given_up=1, oldest=oldest)
            ended = {"status": "processed", "embedded": True, **dict.fromkeys(HOLDS)}
            await wrote(harness, engine, *(Update("docs", one, ended) for one in every))

    async def test_the_oldest_may_be_one_that_somebody_died_over(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        hour = 60 * MINUTE
        leased = {"leaseToken": "t", "leaseUntil": instant(now - MINUTE)}
        runs = {"leaseToken": "t", "leaseUntil": instant(now + MINUTE)}
        engine, candidates = await stuck(
            harness,
            old(now, "failed", status="failed", lastAttemptTime=instant(now - MINUTE)),
            old(now, "at work", **runs, lastAttemptTime=instant(now - 9 * DAY)),
            old(now, "died", **leased, lastAttemptTime=instant(now - 2 * hour)),
            rule=LEASED,
        )
        tally = await candidates.tally(LEASED, now)
        assert tally == Tally(stuck=2, given_up=0, oldest=now - 2 * hour)
        made = {"attemptCount": 0, "lastAttemptTime": None, "createdAt": instant(now - 3 * hour)}
        await wrote(harness, engine, InsertNew("docs", old(now, "made", **leased, **made)))
        tally = await candidates.tally(LEASED, now)
        assert tally == Tally(stuck=3, given_up=0, oldest=now - 3 * hour)

    async def test_leases_that_run_are_counted_up_to_a_number(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        later, over = {"leaseUntil": instant(now + MINUTE)}, {"leaseUntil": instant(now - MINUTE)}
        made = [
            old(now, "running", leaseToken="t", **later),
            old(now, "moved", leaseToken="t", lastAttemptTime=instant(now), **later),
            old(now, "waiting", leaseToken="waiting", **later),
            old(now, "never tried", leaseToken="t", lastAttemptTime=None, **later),
            old(now, "naive", leaseToken="t", leaseUntil=naive(now + MINUTE)),
            old(now, "just over", leaseToken="t", leaseUntil=instant(now)),
            old(now, "over", leaseToken="t", **over),
            old(now, "no end", leaseToken="t"),
            old(now, "beyond belief", leaseToken="t", leaseUntil="3000-01-01T00:00:00Z"),
            old(now, "without a token", **later),
            old(now, "processed", status="processed", leaseToken="t", **later),
            old(now, "failed", status="failed", leaseToken="t", **later),
        ]
        _, candidates = await stuck(harness, *made, rule=LEASED)
        assert [await candidates.leased(LEASED, now, most) for most in (1, 4, 100)] == [1, 4, 5]
        flagged = SweepRule(lifecycle=FLAGGED_AND_LEASED)
        await candidates.prepare([flagged])
        assert await candidates.leased(flagged, now, 100) == 6  # "processed" has no flag

    async def test_where_no_time_is_known_no_oldest_is_named(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        documents: list[Document] = [{"_id": "1"}, {"_id": "2", "status": "failed"}]
        _, candidates = await stuck(harness, *documents)
        assert await candidates.tally(RULE, now) == Tally(stuck=2, given_up=0)

    async def test_what_a_flag_says_is_counted_so(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        made = Lifecycle("docs", flag="embedded", created="made")
        rule = SweepRule(lifecycle=made)
        _, candidates = await stuck(
            harness,
            {"_id": "1", "made": instant(now - 2 * DAY), "createdAt": instant(now - 9 * DAY)},
            {"_id": "2", "embedded": False, "lastFailedAt": instant(now)},
            {"_id": "3", "embedded": True, "status": "failed_max_retries"},
            {"_id": "4", "embedded": True, "status": "failed"},
            {"_id": "5", "embedded": False, "status": "failed_max_retries"},
            rule=rule,
        )
        tally = await candidates.tally(rule, now)
        assert tally == Tally(stuck=2, given_up=1, oldest=now - 2 * DAY)

    # What failed permanently

    async def test_what_failed_permanently_is_in_no_view_of_a_sweep(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        documents = [
            old(now, one, status="failed", permanentFailure=failure)
            for one, failure in PERMANENT.items()
        ]
        documents += [
            old(now, "swept as before", status="failed"),
            old(now, "null", status="failed", permanentFailure=None),
            old(now, "pending again", permanentFailure=PERMANENT["declined"]),
        ]
        for rule in (RULE, FLAGGED):
            _, candidates = await stuck(harness, *documents, rule=rule)
            documents = []  # they are there
            for version, outdated in VERSIONS.items():
                current = replace(rule, version=version)
                left = set(PERMANENT) - outdated
                expected = {
                    View.FAILED: {"swept as before", "null"},
                    View.OUTDATED: outdated,
                    View.PERMANENT: left,
                    View.UNMOVED: {"pending again"},
                    View.LEASE_OVER: set(),
                    View.CLAIM_OVER: set(),
                }
                for view, ids in expected.items():
                    assert set(await seen(candidates, view, now, current)) == ids, (view, version)
                assert await candidates.tally(current, now) == Tally(
                    stuck=3 + len(outdated),
                    given_up=0,
                    permanent=len(left),
                    oldest=now - 2 * DAY,
                )

    async def test_what_failed_permanently_is_given_once_on_pages_of_any_size(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        made = [
            old(
                now,
                f"{rule} {version} {n}",
                status="failed",
                permanentFailure={"rule": rule, "version": version},
                lastAttemptTime=instant(now - n * MINUTE),
            )
            for rule in ("shop.declined", BUG)
            for version in ("1", "2", "3")
            for n in range(3)
        ]
        _, candidates = await stuck(harness, *made)
        of_2 = replace(RULE, version="2")
        for page in (1, 2, 3, 100):
            for newest_first in (False, True):
                found = {
                    view: await scanned(
                        candidates, view, now, of_2, newest_first=newest_first, page=page
                    )
                    for view in (View.OUTDATED, View.PERMANENT)
                }
                ids = [each["_id"] for view in found.values() for each in view]
                assert sorted(ids) == sorted(each["_id"] for each in made)
                outdated = {each["permanentFailure"]["version"] for each in found[View.OUTDATED]}
                assert (len(found[View.OUTDATED]), outdated) == (6, {"1", "3"})

    async def test_a_new_attempt_takes_back_that_it_failed_permanently(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        failed = old(now, "1", status="failed", permanentFailure=PERMANENT["declined"])
        engine, candidates = await stuck(harness, failed)
        (answer,) = await engine.documents.begin(
            [Beginning(lifecycle=RULE.lifecycle, ids=("1",), operation="second", now=now)]
        )
        assert answer["1"].how is How.BEGUN
        document = await stored(engine, "1")
        assert (document["status"], document.get("permanentFailure")) == ("pending", None)
        assert (await candidates.tally(RULE, now)).permanent == 0

    async def test_a_claim_that_is_given_back_leaves_it_failed_permanently(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        bug = {"rule": BUG, "version": "1"}
        failed = old(now, "1", status="failed", permanentFailure=bug)
        engine, candidates = await stuck(harness, failed)
        of_2 = replace(RULE, version="2")
        (document,) = await scanned(candidates, View.OUTDATED, now, of_2)
        judged = judge(document, of_2, now)
        assert isinstance(judged, Requeue)
        claims = [Claim(document, judged)]
        assert await candidates.claim(of_2, claims, "t", now, CLAIM_LEASE) == {"1"}
        assert await seen(candidates, View.OUTDATED, now, of_2) == []
        await candidates.give_back(of_2, ["1"], "t")
        after = await stored(engine, "1")
        assert (after["status"], after["permanentFailure"]) == ("failed", bug)
        assert await seen(candidates, View.OUTDATED, now, of_2) == ["1"]

    # Getting ready

    async def test_getting_ready_is_safe_to_repeat(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, old(now, "before"))
        for _ in range(3):
            await candidates.prepare([RULE, FLAGGED, LEASED, RULE])
        await candidates.prepare([])
        await wrote(harness, engine, InsertNew("docs", old(now, "after")))
        for rule in (RULE, FLAGGED, LEASED):
            assert await seen(candidates, View.UNMOVED, now, rule) == ["after", "before"]

    async def test_many_may_get_ready_at_once(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        engines = [await opened(harness) for _ in range(3)]
        await asyncio.gather(
            *(sweeping(each).candidates.prepare([RULE, FLAGGED, LEASED]) for each in engines),
            *(sweeping(each).candidates.prepare([LEASED, RULE]) for each in engines),
        )
        await wrote(harness, engines[0], InsertNew("docs", old(now)))
        for engine in engines:
            assert await seen(sweeping(engine).candidates, View.UNMOVED, now) == ["1"]

    async def test_collections_and_flags_may_have_any_name(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        engine = await opened(harness)
        candidates = sweeping(engine).candidates
        rules = [
            SweepRule(lifecycle=Lifecycle(collection, flag=flag, created="ge macht"))
            for collection in ("it's", 'quo"ted', "käse ✓", "UPPER", "upper")
            for flag in (None, "is done", "it's", "fertig✓")
        ]
        await candidates.prepare(rules)
        for number, collection in enumerate(dict.fromkeys(rule.collection for rule in rules)):
            await wrote(harness, engine, InsertNew(collection, old(now, f"{number}")))
        for number, rule in enumerate(rules):
            assert await seen(candidates, View.UNMOVED, now, rule) == [f"{number // 4}"]
            assert (await candidates.tally(rule, now)).stuck == 1

    async def test_what_was_never_made_holds_nothing(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        candidates = sweeping(await opened(harness)).candidates
        nowhere = SweepRule(lifecycle=Lifecycle("no such collection"))
        for view in View:
            assert await seen(candidates, view, now, nowhere) == []
        assert await candidates.tally(nowhere, now) == Tally(stuck=0, given_up=0)
