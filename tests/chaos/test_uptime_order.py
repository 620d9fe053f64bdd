"""Arroyo's pool brings results out of order: no false miss."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.order_record import assert_exact, figures_of, seen_in
from tests.chaos.ordering import FULL, REDUCED, Load, kafka_cluster, run
from tests.systems.uptime.crowds import settings_in

Record = Callable[[str, object], None]

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
        crew = await run(load, settings, tmp_path)
    seen = seen_in(tmp_path)
    assert_exact(load, seen)
    # Nothing was given up whose result came: that would be here, though taken back since.
    assert not seen.retracted
    figures = figures_of(tmp_path, load, seen)
    shown = (
        f"{load.results} results of {load.subscriptions} subscriptions: 0 false misses, all "
        f"{len(seen.standing)} true ones found, every key in order, none applied twice; {figures}"
    )
    assert len(figures.waits) >= load.least_disorder, shown
    assert figures.closed_in_time >= 0.95, shown
    assert figures.timeouts <= len(load.missing), shown
    assert figures.timeouts < 0.05 * figures.added, shown
    assert figures.breakers < 0.001 * figures.added, shown
    assert 1 <= figures.mean_held <= 2, shown
    assert figures.removed == figures.added, shown
    assert not crew.replaced
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
    assert wrong >= load.least_disorder, wrong
    record_property("shown", f"{load.results} results, plain: {wrong} false misses")
