"""Workers are killed again and again; every event still ends once, and the books are exact."""

import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.running import Site


@pytest.mark.timeout(300)
async def test_killed_workers_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    await killing(
        Site(tmp_path), record_property, events=2_000, poison=20, concurrency=2, kills=6, every=0.6
    )


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_thirty_kills_of_workers_with_twenty_thousand_events(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    await killing(
        Site(tmp_path),
        record_property,
        events=20_000,
        poison=200,
        concurrency=2,
        kills=35,
        every=1.7,
    )


async def killing(
    site: Site,
    record_property: Callable[[str, object], None],
    *,
    events: int,
    poison: int,
    concurrency: int,
    kills: int,
    every: float,
) -> None:
    (site.folder / "failed-once").mkdir()
    step = events // poison
    kinds = [
        "poison" if number % step == 0 else "fails once" if number % 10 == 1 else "well"
        for number in range(events)
    ]
    assert kinds.count("poison") == poison
    killed: set[int] = set()
    began = time.monotonic()
    with site.running("hardship:hardship", "--workers", "4", "--concurrency", str(concurrency)):
        site.wait_for_workers(4)
        await site.publish(
            "Step", [{"number": number, "kind": kind} for number, kind in enumerate(kinds)]
        )
        dice = random.Random(kills)
        while len(killed) < kills and site.left():
            time.sleep(every)  # noqa: ASYNC251 (nothing else runs in this loop)
            # Whoever was killed a moment ago may still be in the books.
            alive = sorted(set(site.workers()) - killed)
            if not alive:
                continue
            victim = dice.choice(alive)
            killed.add(victim)
            os.kill(victim, signal.SIGKILL)
        site.wait(lambda: site.left() == 0, "all events have ended", seconds=240)
    lasted = time.monotonic() - began
    assert len(killed) == kills, f"only {len(killed)} could be killed before all was done"

    failed = site.query(
        "select letter_id, body from headway_letters where queue = ?", "hardship.failed"
    )
    assert len(failed) == poison
    reasons = site.query(
        "select json_extract(body, '$.abandoned_reason'), count(*) from headway_letters group by 1"
    )
    assert reasons == [("non_retryable", poison)]
    poisoned = site.query(
        "select json_extract(body, '$.original_event.data.kind'), count(*) "
        "from headway_letters group by 1"
    )
    assert poisoned == [("poison", poison)]

    done = Counter(document["number"] for document in site.documents("steps"))
    expected = {number for number, kind in enumerate(kinds) if kind != "poison"}
    assert set(done) == expected
    assert set(done.values()) == {1}
    assert site.documents("totals") == [{"_id": "all", "steps": len(expected)}]

    repeats = check_attempts(site, kinds, killed)
    verified = site.headway("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    ((operation,),) = site.query("select operation from headway_done where ended = 'done' limit 1")
    site.query("delete from headway_done where operation = ?", operation)
    missing = site.headway("verify")
    assert missing.returncode == 1, missing.stdout + missing.stderr
    assert str(operation) in missing.stdout, "the missing one is named"
    record_property(
        "shown",
        f"{events} events, {kills} SIGKILLs in {lasted:.0f} s: {len(done)} done once, "
        f"{poison} letters, {repeats} attempts repeated by a death, verify 0, then 1 by hand",
    )


def check_attempts(site: Site, kinds: list[str], killed: set[int]) -> int:
    """Each attempt number begins once, and once more at most for each death of its worker."""
    begun: dict[tuple[int, int], list[int]] = defaultdict(list)
    for line in (site.folder / "begun.log").read_text().splitlines():
        number, attempt, pid = map(int, line.split())
        begun[number, attempt].append(pid)
    for (number, attempt), pids in begun.items():
        deaths = len(killed.intersection(pids))
        assert len(pids) <= 1 + deaths, f"step {number}, attempt {attempt}: begun by {pids}"
        assert attempt <= (2 if kinds[number] == "fails once" else 1)
    assert {number for number, _ in begun} == set(range(len(kinds)))
    return sum(len(pids) - 1 for pids in begun.values())
