"""What every store finds when it is asked for what may be stuck."""

from headway.core.sweep import Leave, Why, judge
from headway.core.travel import instant
from headway.core.writes import Document, InsertNew, Update
from headway.ports.candidates import View
from headway.testing.conformance.examples import wrote
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.stuck import (
    CLAIM_LEASE,
    DAY,
    FLAGGED,
    LEASED,
    MINUTE,
    NOT_COUNTS,
    RULE,
    UNREADABLE,
    claim_of,
    naive,
    old,
    scanned,
    seen,
    stuck,
    whole_second,
)

SETTLED = ("processed", "completed", "failed_max_retries", "archived", "", 5, ["pending"])
"""What a status may hold of which a sweep keeps out."""


class ViewsConformance:
    """Every view finds what is in it, all of it, and nothing else."""

    async def test_what_failed_is_found_whenever_that_was(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        _, candidates = await stuck(
            harness,
            {"_id": "just now", "status": "failed", "lastAttemptTime": instant(now)},
            {"_id": "long ago", "status": "failed", "lastAttemptTime": instant(now - 99 * DAY)},
            {"_id": "ahead", "status": "failed", "lastAttemptTime": "3000-01-01T00:00:00Z"},
            {"_id": "no time", "status": "failed"},
            {"_id": "null", "status": "failed", "lastAttemptTime": None},
            {"_id": "pending", "status": "pending"},
            *({"_id": f"settled {n}", "status": status} for n, status in enumerate(SETTLED)),
        )
        assert await seen(candidates, View.FAILED, now) == [
            "ahead", "just now", "long ago", "no time", "null"
        ]  # fmt: skip

    async def test_what_is_pending_is_found_when_it_has_not_moved(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        _, candidates = await stuck(
            harness,
            old(now, "old"),
            old(now, "at the limit", lastAttemptTime=instant(now - DAY)),
            old(now, "being processed", status="processing"),
            old(now, "null status", status=None),
            {"_id": "nothing at all"},
            {"_id": "never tried", "status": "pending", "lastAttemptTime": None},
            {"_id": "not dated", "status": "pending", "attemptCount": 2},
            old(now, "moved", lastAttemptTime=instant(now - MINUTE)),
            old(now, "nearly", lastAttemptTime=instant(now - DAY + MINUTE)),
            old(now, "failed", status="failed"),
            *(old(now, f"settled {n}", status=status) for n, status in enumerate(SETTLED)),
        )
        assert await seen(candidates, View.UNMOVED, now) == [
            "at the limit", "being processed", "never tried", "not dated", "nothing at all",
            "null status", "old",
        ]  # fmt: skip

    async def test_a_time_that_cannot_be_read_is_none(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        documents = [old(now, name, lastAttemptTime=value) for name, value in UNREADABLE.items()]
        documents.append(old(now, "far ahead", lastAttemptTime="3000-01-01T00:00:00Z"))
        failed = [{**each, "_id": f"{each['_id']}!", "status": "failed"} for each in documents]
        _, candidates = await stuck(harness, *documents, *failed)
        assert await seen(candidates, View.UNMOVED, now) == sorted(d["_id"] for d in documents)
        assert await seen(candidates, View.FAILED, now) == sorted(d["_id"] for d in failed)

    async def test_a_time_is_read_in_its_zone_and_without_one_as_utc(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        limit = now - DAY
        _, candidates = await stuck(
            harness,
            old(now, "naive and old", lastAttemptTime=naive(limit - MINUTE)),
            old(now, "naive and moved", lastAttemptTime=naive(limit + MINUTE)),
            old(now, "east and old", lastAttemptTime=f"{naive(limit + 8 * 60 * MINUTE)}+09:00"),
            old(now, "west and moved", lastAttemptTime=f"{naive(limit - 4 * 60 * MINUTE)}-05:00"),
            old(now, "with a space", lastAttemptTime=naive(limit - MINUTE).replace("T", " ")),
            old(now, "fine", lastAttemptTime=instant(limit + MINUTE / 60_000)),
        )
        assert await seen(candidates, View.UNMOVED, now) == [
            "east and old", "naive and old", "with a space"
        ]  # fmt: skip

    async def test_what_is_no_number_of_attempts_hides_nothing(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        ids = [f"{n}" for n in range(len(NOT_COUNTS))]
        documents = [
            old(now, one, attemptCount=value) for one, value in zip(ids, NOT_COUNTS, strict=True)
        ]
        _, candidates = await stuck(harness, *documents)
        assert await seen(candidates, View.UNMOVED, now) == ids

    async def test_a_lease_that_is_over_is_found(self, harness: EngineHarness) -> None:
        now = whole_second(harness)

        def leased(one: str, **fields: object) -> Document:
            held = {"leaseToken": "t", "lastAttemptTime": instant(now - 10 * MINUTE)}
            return old(now, one, **{**held, **fields})

        _, candidates = await stuck(
            harness,
            leased("over", leaseUntil=instant(now - MINUTE)),
            leased("just over", leaseUntil=instant(now)),
            leased("naive", leaseUntil=naive(now - MINUTE)),
            leased("until nobody knows"),
            leased("until some day", leaseUntil="some day"),
            leased("running", leaseUntil=instant(now + MINUTE)),
            leased("nobody's", leaseToken=None, leaseUntil=instant(now - MINUTE)),
            leased("failed", leaseUntil=instant(now - MINUTE), status="failed"),
            leased("processed", leaseUntil=instant(now - MINUTE), status="processed"),
            rule=LEASED,
        )
        assert await seen(candidates, View.LEASE_OVER, now, LEASED) == [
            "just over", "naive", "over", "until nobody knows", "until some day"
        ]  # fmt: skip
        assert await seen(candidates, View.UNMOVED, now, LEASED) == []

    async def test_a_claim_that_came_to_no_end_is_found(self, harness: EngineHarness) -> None:
        now = whole_second(harness)

        def claimed(one: str, **fields: object) -> Document:
            claim = {"claimToken": "t", "lastAttemptTime": instant(now - 10 * MINUTE)}
            return old(now, one, **{**claim, **fields})

        _, candidates = await stuck(
            harness,
            claimed("over", claimUntil=instant(now - MINUTE)),
            claimed("just over", claimUntil=instant(now)),
            claimed("until nobody knows"),
            claimed("until some day", claimUntil="some day"),
            claimed("running", claimUntil=instant(now + MINUTE)),
            claimed("nobody's", claimToken=None, claimUntil=instant(now - MINUTE)),
            claimed("processed", claimUntil=instant(now - MINUTE), status="processed"),
        )
        assert await seen(candidates, View.CLAIM_OVER, now) == [
            "just over", "over", "until nobody knows", "until some day"
        ]  # fmt: skip

    async def test_where_a_flag_says_what_is_processed_the_status_does_not(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        long_ago, before = instant(now - 3 * DAY), instant(now - 4 * DAY)

        def chunk(one: str, **fields: object) -> Document:
            return {"_id": one, "embedded": False, "lastAttemptTime": long_ago, **fields}

        _, candidates = await stuck(
            harness,
            chunk("says so", status="failed"),
            chunk("failed since", lastFailedAt=instant(now - DAY)),
            chunk("failed then", lastFailedAt=long_ago),
            {"_id": "failed, no flag", "lastFailedAt": naive(now - DAY)},
            chunk("waits"),
            chunk("null", embedded=None),
            chunk("nearly true", embedded="true"),
            chunk("one", embedded=1),
            chunk("other status", status="processed"),
            chunk("tried again", lastFailedAt=before),
            chunk("failed some day", lastFailedAt="some day"),
            {"_id": "nothing at all"},
            chunk("moved", lastAttemptTime=instant(now - MINUTE)),
            chunk("processed", embedded=True),
            chunk("processed and failed", embedded=True, status="failed", lastFailedAt=long_ago),
            chunk("given up", status="failed_max_retries"),
            rule=FLAGGED,
        )
        assert await seen(candidates, View.FAILED, now, FLAGGED) == [
            "failed since", "failed then", "failed, no flag", "says so"
        ]  # fmt: skip
        assert await seen(candidates, View.UNMOVED, now, FLAGGED) == [
            "failed some day", "nearly true", "nothing at all", "null", "one", "other status",
            "tried again", "waits",
        ]  # fmt: skip

    async def test_only_the_collection_of_the_rule_is_looked_at(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, old(now, "ours"))
        await wrote(harness, engine, InsertNew("others", old(now, "theirs")))
        assert await seen(candidates, View.UNMOVED, now) == ["ours"]
        assert await seen(candidates, View.FAILED, now) == []

    # Pages

    async def test_pages_leave_nothing_out_and_give_nothing_twice(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        dated = {f"{n:02}": instant(now - 3 * DAY + (n // 3) * MINUTE) for n in range(14)}
        undated = {**dict.fromkeys(("x", "y"), None), "z": "some day", "w": 7}
        documents = [
            {"_id": one, "status": status, "lastAttemptTime": at}
            for status in ("pending", "failed")
            for one, at in {**dated, **undated}.items()
        ]
        for document in documents:
            document["_id"] = f"{document['status']} {document['_id']}"
        _, candidates = await stuck(harness, *documents)
        for view, status in ((View.UNMOVED, "pending"), (View.FAILED, "failed")):
            for page in (1, 2, 3, 5, 100):
                oldest = await scanned(candidates, view, now, page=page)
                newest = await scanned(candidates, view, now, page=page, newest_first=True)
                for found in (oldest, list(reversed(newest))):
                    ids = [each["_id"].removeprefix(f"{status} ") for each in found]
                    assert sorted(ids) == sorted([*dated, *undated])
                    assert set(ids[:4]) == set(undated)
                    times = [dated[one] for one in ids[4:]]
                    assert times == sorted(times)

    async def test_what_changes_during_a_scan_hides_nothing_else(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        ids = [f"{n:02}" for n in range(20)]
        for newest_first in (False, True):
            documents = [
                old(now, f"{newest_first} {one}", lastAttemptTime=instant(now - 3 * DAY))
                for one in ids[:10]
            ] + [
                old(now, f"{newest_first} {one}", lastAttemptTime=instant(now - 2 * DAY))
                for one in ids[10:]
            ]
            engine, candidates = await stuck(harness, *documents)
            given: list[str] = []
            changed: set[str] = set()
            async for page in candidates.scan(
                RULE, View.UNMOVED, now, newest_first=newest_first, page=3
            ):
                given += [each["_id"] for each in page]
                # As sweepers do: what was given is claimed. And others are at work too.
                claims = [claim_of(each, now) for each in page if each["_id"] not in changed]
                await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE)
                if not changed:
                    ahead = [d["_id"] for d in documents if d["_id"] not in given][::2]
                    changed.update(ahead)
                    moved = {"lastAttemptTime": instant(now - 5 * DAY)}
                    done = {"status": "processed"}
                    await wrote(
                        harness,
                        engine,
                        *(Update("docs", o, (moved, done)[n % 2]) for n, o in enumerate(ahead)),
                    )
            untouched = [d["_id"] for d in documents if d["_id"] not in changed]
            assert sorted(one for one in given if one not in changed) == sorted(untouched)
            await wrote(
                harness,
                engine,
                *(Update("docs", each["_id"], {"status": "processed"}) for each in documents),
            )

    async def test_a_scan_may_end_before_its_last_page(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, *(old(now, f"{n}") for n in range(4)))
        scan = candidates.scan(RULE, View.UNMOVED, now, newest_first=True, page=1)
        first = await anext(scan)
        await wrote(harness, engine, Update("docs", first[0]["_id"], {"status": "processed"}))
        assert len(await seen(candidates, View.UNMOVED, now)) == 3

    async def test_what_is_young_is_found_and_left_to_the_judge(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        young = {"_id": "young", "status": "pending", "createdAt": instant(now - MINUTE)}
        _, candidates = await stuck(harness, young)
        (found,) = await scanned(candidates, View.UNMOVED, now)
        assert judge(found, RULE, now) == Leave(Why.YOUNG)
