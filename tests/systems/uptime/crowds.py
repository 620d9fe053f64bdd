"""Many subscriptions and their results, with disorder, for runs in several processes."""

import random
from collections.abc import Sequence
from pathlib import Path

from headway.systems.uptime.monitors import Detector, Subscription
from headway.systems.uptime.opening import open_store
from headway.systems.uptime.results import CheckResult, CheckStatus, encode
from headway.systems.uptime.settings import UptimeSettings

MINUTE = 60_000


def settings_in(folder: Path, **given: object) -> UptimeSettings:
    return UptimeSettings(
        store=f"sqlite:///{folder}/uptime.db?synchronous=off",
        **{"percentage": 100.0, "time_scale": 0.02, **given},  # type: ignore[arg-type]
    )


def keys(number: int) -> list[str]:
    return [f"s{each}" for each in range(number)]


async def subscribe(settings: UptimeSettings, names: Sequence[str]) -> None:
    store = open_store(settings)
    await store.prepare()
    detectors = {name: Detector(f"d-{name}", "acme") for name in names}
    await store.save([Subscription(name, interval_since_ms=MINUTE) for name in names], detectors)
    await store.close()


def results(names: Sequence[str], minutes: int, *, missing: set[tuple[str, int]]) -> list[bytes]:
    """Give results in the order of time; those that are missing never come."""
    return [
        encode(CheckResult(f"{name}-{minute}", name, CheckStatus.SUCCESS, minute * MINUTE))
        for minute in range(1, minutes + 1)
        for name in names
        if (name, minute) not in missing
    ]


def mixed(raws: Sequence[bytes], within: int, seed: int = 1) -> list[bytes]:
    """Shuffle results among their neighbours."""
    chance = random.Random(seed)
    return [
        raw
        for start in range(0, len(raws), within)
        for raw in chance.sample(raws[start : start + within], len(raws[start : start + within]))
    ]


async def is_exact(
    settings: UptimeSettings, names: Sequence[str], minutes: int, missing: set[tuple[str, int]]
) -> list[str]:
    """Say what is wrong: results lost or applied twice, misses that are none, another order."""
    store = open_store(settings)
    wrong = []
    try:
        monitors = await store.load(names)
        for name in names:
            lines = await store.checks(name)
            applied = [line.scheduled_check_time_ms // MINUTE for line in lines if line.guid]
            missed = {
                line.scheduled_check_time_ms // MINUTE
                for line in lines
                if not line.guid and not line.retracted
            }
            late = sum(line.retracted for line in lines)
            expected = [minute for minute in range(1, minutes + 1) if (name, minute) not in missing]
            if sorted(applied) != expected:
                wrong.append(f"{name}: applied {applied}")
            if not late and applied != sorted(applied):
                wrong.append(f"{name}: out of order {applied}")
            if missed != {minute for key, minute in missing if key == name}:
                wrong.append(f"{name}: missed {sorted(missed)}")
            if monitors[name].applied != len(expected) - late:
                wrong.append(f"{name}: counted {monitors[name].applied}, late {late}")
        return wrong
    finally:
        await store.close()
