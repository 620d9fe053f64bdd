"""What is asked of a result at the door, in which order, and who has the feature."""

from typing import Any

import pytest

from headway.order import Disposition
from headway.systems.uptime import metrics
from headway.systems.uptime.detecting import Incident
from headway.systems.uptime.memory_store import MemoryStore
from headway.systems.uptime.monitors import (
    Detector,
    DetectorStatus,
    RegionMode,
)
from headway.systems.uptime.results import CheckStatus
from headway.systems.uptime.rollout import BACKLOG_RETRY, UPTIME, Features, Rollout, everybody
from headway.systems.uptime.validation import Drop
from headway.testing.chance import Fixed
from tests.systems.uptime.sites import FOUR, Site, check, send

WITHOUT = Rollout(feature=UPTIME)
SHADOW = {"new": RegionMode.SHADOW}


async def test_the_order_of_the_questions_is_that_of_the_document(memory: Site) -> None:
    off = Detector("d", "o", enabled=False)
    await memory.subscribe("s1", regions=SHADOW, detector=off)
    consumer = memory.consumer(features=Features(uptime=WITHOUT))
    robots = CheckStatus.DISALLOWED_BY_ROBOTS
    late = FOUR + 1  # before 4:00: each of them would be held
    assert await consumer.handle_result(check(late, "none", robots, "new")) is (
        Drop.SUBSCRIPTION_NOT_FOUND
    )
    assert await consumer.handle_result(check(late, "s1", robots, "new")) is (
        Drop.DISALLOWED_BY_ROBOTS
    )
    assert await consumer.handle_result(check(late, "s1", region="new")) is Drop.SHADOW_REGION
    assert await consumer.handle_result(check(late)) is Drop.DETECTOR_DISABLED
    await memory.subscribe("s1", watched=False)
    assert await consumer.handle_result(check(late)) is Drop.DETECTOR_NOT_FOUND
    await memory.subscribe("s1")
    assert await consumer.handle_result(check(late)) is Drop.FEATURE_DISABLED
    assert memory.counts.get(metrics.DROPPED, {"reason": Drop.FEATURE_DISABLED.value}) == 1
    assert memory.counted(metrics.ADDED) == 0
    assert await memory.applied() == []


async def test_a_site_that_asks_not_to_be_checked_is_disabled(site: Site) -> None:
    consumer = site.consumer()
    await consumer.handle_result(check(FOUR, status=CheckStatus.DISALLOWED_BY_ROBOTS))
    detector = (await site.store.load(["s1"]))["s1"].detector
    assert detector is not None
    assert not detector.enabled
    assert "robots" in detector.disabled_because
    assert await send(consumer, FOUR + 1) == [Drop.DETECTOR_DISABLED]


async def test_regions_are_put_right_about_once_in_an_hour(memory: Site) -> None:
    regions = {"eu": RegionMode.ACTIVE}
    memory.chance = Fixed(60 / 3600)  # just too high for an interval of a minute
    await memory.consumer(regions=regions).handle_result(check(FOUR))
    assert (await memory.store.load(["s1"]))["s1"].subscription.regions == {}
    memory.chance = Fixed(60 / 3600 - 0.001)
    await memory.consumer(regions=regions).handle_result(check(FOUR + 1))
    assert (await memory.store.load(["s1"]))["s1"].subscription.regions == regions


async def test_without_the_feature_a_gap_is_backfilled_at_once_and_taken_back_later(
    site: Site,
) -> None:
    consumer = site.consumer(features=Features())
    assert await send(consumer, FOUR, FOUR + 2) == [Disposition.APPLIED] * 2
    assert await site.missed() == [FOUR + 1]
    assert await send(consumer, FOUR + 1) == [Disposition.APPLIED]
    assert await site.missed() == []
    assert site.counted(metrics.ADDED) == 0


async def test_of_a_very_long_gap_only_the_latest_thousand_are_missed(memory: Site) -> None:
    await send(memory.consumer(features=Features()), FOUR, FOUR + 1500)
    assert await memory.missed() == [*range(FOUR + 500, FOUR + 1500)]


@pytest.mark.parametrize("features", [Features(), everybody()], ids=["plain", "in order"])
async def test_nothing_before_a_change_of_the_interval_is_missed(
    site: Site, features: Features
) -> None:
    consumer = site.consumer(features=features)
    await send(consumer, FOUR)
    await site.subscribe("s1", began=(FOUR + 30) * 60_000)  # switched off for half an hour
    assert await send(consumer, FOUR + 30) == [Disposition.APPLIED]
    assert await site.missed() == []


async def test_the_feature_is_for_those_on_the_list_and_for_a_share_of_the_others(
    memory: Site,
) -> None:
    listed = Rollout(feature=BACKLOG_RETRY, organizations=frozenset({"acme"}))
    assert await send(memory.consumer(features=Features(backlog_retry=listed)), FOUR + 1) == [
        Disposition.HELD
    ]
    names = [f"organization-{number}" for number in range(10_000)]
    ten, fifty = (
        {name for name in names if Rollout(feature=BACKLOG_RETRY, percentage=p).includes(name)}
        for p in (10, 50)
    )
    assert ten < fifty
    assert 900 < len(ten) < 1100
    assert 4800 < len(fifty) < 5200


async def test_three_failures_open_an_incident_and_one_success_resolves_it(site: Site) -> None:
    consumer = site.consumer()
    failed = [check(FOUR + minute, status=CheckStatus.FAILURE) for minute in range(3)]
    # Out of order, they would have opened it at another minute.
    await consumer.handle_results([failed[1], failed[2], failed[0], check(FOUR + 3)])
    detector = (await site.store.load(["s1"]))["s1"].detector
    assert detector is not None
    assert detector.status is DetectorStatus.OK
    assert (await site.store.totals()).incidents == 2
    if isinstance(site.store, MemoryStore):
        assert [(what, at // 60_000) for _, what, at in site.store.incidents] == [
            (Incident.OPENED, FOUR + 2),
            (Incident.RESOLVED, FOUR + 3),
        ]


async def test_a_store_that_refuses_one_result_keeps_back_no_other(memory: Site) -> None:
    await memory.subscribe("bad")
    apply = memory.store.apply

    async def refuse(effects: Any) -> Any:
        if any(effect.result.subscription_id == "bad" for effect in effects):
            raise ValueError("this one cannot be written")
        return await apply(effects)

    memory.store.apply = refuse  # type: ignore[method-assign]
    consumer = memory.consumer()
    fates = await consumer.handle_results([check(FOUR), check(FOUR, "bad"), check(FOUR + 1)])
    assert fates == [Disposition.APPLIED, Disposition.HELD, Disposition.APPLIED]
    assert await memory.applied() == [FOUR, FOUR + 1]
    memory.store.apply = apply  # type: ignore[method-assign]
    await memory.pass_time(consumer, 15)
    assert await memory.applied("bad") == [FOUR]
    assert memory.size() == 0
