"""Arroyo's pool brings results out of order: no false miss."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.core.metric import Metric
from headway.systems.uptime import metrics
from tests.proof.order_record import assert_exact, closings, seen_in
from tests.proof.ordering import Load, kafka_cluster, run
from tests.uptime.crowds import settings_in

Record = Callable[[str, object], None]

FULL = Load(subscriptions=2_000, minutes=100, time_scale=0.05)
REDUCED = Load(subscriptions=250, minutes=20, time_scale=0.02)
SIZES = [
    pytest.param(REDUCED, id="reduced"),
    pytest.param(FULL, id="full", marks=pytest.mark.timeout(900)),
]

pytestmark = [pytest.mark.chaos, pytest.mark.server("redis"), pytest.mark.timeout(300)]


@pytest.mark.parametrize("load", SIZES)
async def test_results_out_of_order_make_no_false_miss(
    load: Load, tmp_path: Path, redis_database: str, record_property: Record
) -> None:
    with kafka_cluster() as servers:
        settings = settings_in(
            tmp_path, sequences=redis_database, kafka_servers=servers, time_scale=load.time_scale
        )
        await run(load, settings, tmp_path)
    seen = seen_in(tmp_path)
    assert_exact(load, seen)
    # Nothing was given up whose result came: that would be here, though taken back since.
    assert not seen.retracted

    def counted(metric: Metric) -> float:
        return seen.counts.get(metric.name, 0)

    added, cleared = counted(metrics.ADDED), counted(metrics.CLEARED)
    waits = closings(tmp_path, load, seen)
    in_time = sum(wait <= 1 for wait in waits) / len(waits)
    shown = (
        f"{load.results} results of {load.subscriptions} subscriptions, {added:.0f} held, "
        f"{len(waits)} gaps closed, {in_time:.1%} of them within a second of the arrival; "
        f"0 false misses, {len(seen.standing)} true ones found; timeouts "
        f"{counted(metrics.TIMEOUT) / added:.2%}, breaker "
        f"{counted(metrics.CIRCUIT_BREAKER) / added:.2%}, mean held {added / cleared:.2f}"
    )
    assert len(waits) >= load.least_disorder, shown
    assert in_time >= 0.95, shown
    assert counted(metrics.TIMEOUT) <= len(load.missing), shown
    assert counted(metrics.TIMEOUT) < 0.05 * added, shown
    assert counted(metrics.CIRCUIT_BREAKER) < 0.001 * added, shown
    assert 1 <= added / cleared <= 2, shown
    assert counted(metrics.REMOVED) == added, shown
    record_property("shown", shown)


@pytest.mark.parametrize("load", SIZES)
async def test_plain_processing_of_the_same_makes_false_misses(
    load: Load, tmp_path: Path, redis_database: str, record_property: Record
) -> None:
    with kafka_cluster() as servers:
        settings = settings_in(
            tmp_path,
            sequences=redis_database,
            kafka_servers=servers,
            time_scale=load.time_scale,
            percentage=0.0,
        )
        await run(load, settings, tmp_path)
    wrong = seen_in(tmp_path).false_misses(load)
    assert wrong >= load.least_disorder
    record_property("shown", f"{load.results} results, plain: {wrong} false misses")
