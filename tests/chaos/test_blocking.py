"""A handler that blocks the event loop is named, and keeps no worker from stopping."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from headway.testing.engines import open_engine
from headway.testing.ports import Queue, decode
from tests.chaos.broker import BrokerSite
from tests.chaos.running import Site

GRACE = 2
SOON = 6.0
"""Seconds after the grace: a loaded machine may take its time, but a nap takes a minute."""
QUEUE = Queue(name="naps.nap", event_types=("Nap",), failed="naps.failed")
DREAMS = Queue(name="naps.dream", event_types=("Dream",), failed="naps.failed")
OTHERS = 12


@contextmanager
def working(site: Site, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Have workers that the test itself stops."""
    before = site.log().count("Running naps") if (site.folder / "run.log").exists() else 0
    with site.started("naps", "--grace", str(GRACE), *arguments) as process:
        site.wait(lambda: site.log().count("Running naps") > before, "it runs")
        yield process


def stopped_within(process: subprocess.Popen[bytes], seconds: float, site: Site) -> float:
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pytest.fail(f"not ended {seconds} s after SIGTERM:\n{site.log()[-3000:]}")
    return time.monotonic() - began


async def returned(site: Site, number: int, queue: Queue = QUEUE) -> dict[int, int]:
    """Take what is there, and say how often each came back from a worker that was gone."""
    engine = open_engine(site.url, store=False)
    try:
        await engine.open([queue])
        found: dict[int, int] = {}
        for _ in range(60):
            taken = await engine.bus.take([queue.name], 100, timedelta(seconds=0.5))
            found |= {decode(each.body).data["number"]: each.returns for each in taken}
            if len(found) >= number:
                break
        return found
    finally:
        await engine.close()


def done(site: Site) -> list[int]:
    return sorted(int(str(each["number"])) for each in site.documents("slept"))


async def published(site: Site, hows: Sequence[str], event_type: str = "Nap") -> None:
    await site.publish(event_type, [{"number": n, "how": how} for n, how in enumerate(hows)])


def wait_for_start(site: Site, *numbers: int) -> None:
    for number in numbers:
        site.wait((site.folder / f"began-{number}").exists, f"{number} has begun")


@pytest.mark.parametrize("how", ["sleep", "spin"])
async def test_after_the_grace_a_worker_ends_whose_event_loop_is_blocked(
    site: Site, how: str
) -> None:
    with working(site, "--concurrency", "3", "--prefetch", str(OTHERS)) as process:
        await published(site, ["wait", how, *["wait"] * (OTHERS - 1)])
        wait_for_start(site, 0, 1)
        took = stopped_within(process, GRACE + SOON, site)
    assert took >= GRACE, "handlers have their grace"
    assert process.returncode == 1
    assert site.log().count("nap (naps, Nap) has blocked the event loop for 1.") == 1
    assert site.log().count("nap (naps, Nap) still blocks the event loop at") == 1
    assert "naps.py:" in site.log()
    # The start of the one that blocked is counted, and none of the others.
    assert await returned(site, OTHERS + 1) == {n: int(n == 1) for n in range(OTHERS + 1)}
    (site.folder / "awake").touch()
    with site.running("naps"):
        site.wait(lambda: done(site) == list(range(OTHERS + 1)), "all are done")
    if not isinstance(site, BrokerSite):  # which does not know what it accepted
        assert site.headway("verify").returncode == 0


async def test_the_event_of_a_task_that_blocks_is_counted_with_those_that_ran_beside_it(
    site: Site,
) -> None:
    with working(site, "--concurrency", "2", "--prefetch", str(OTHERS)) as process:
        await published(site, ["wait", "inside", *["wait"] * (OTHERS - 1)])
        wait_for_start(site, 0, 1)
        stopped_within(process, GRACE + SOON, site)
    assert await returned(site, OTHERS + 1) == {n: int(n < 2) for n in range(OTHERS + 1)}


async def test_workers_of_a_supervisor_end_too(site: Site) -> None:
    with working(site, "--workers", "2", "--concurrency", "1") as process:
        await published(site, ["sleep"] * OTHERS)  # each takes some, and blocks at its first
        site.wait(lambda: len(list(site.folder.glob("began-*"))) == 2, "both are blocked")
        stopped_within(process, GRACE + SOON, site)
    assert process.returncode == 1, "as without a supervisor"
    counted = await returned(site, OTHERS)
    assert sorted(counted.values()) == [0] * (OTHERS - 2) + [1, 1]


async def test_a_supervisor_kills_a_worker_that_does_not_end(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with working(site, "--workers", "2", "--concurrency", "1") as process:
        await published(site, ["clutch"])
        wait_for_start(site, 0)
        stopped_within(process, 30, site)
    assert "killed it" in site.log()
    assert process.returncode == 1
    assert await returned(site, 1) == {0: 1}


async def test_a_handler_that_blocks_for_a_moment_is_named_once_and_the_worker_goes_on(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    with working(site, "--concurrency", "1") as process:
        await published(site, ["second"] * 4)
        site.wait(lambda: len(done(site)) == 4, "all are done")
        stopped_within(process, GRACE, site)
        assert process.returncode == 0
    warnings = [line for line in site.log().splitlines() if "blocked the event loop" in line]
    assert len(warnings) == 1, "not for each event"
    assert re.search(r"Handler naps\.py:\d+ nap \(naps, Nap\) .* with event '", warnings[0])
    assert "naps.py:" in warnings[0]
    assert " with event '" in warnings[0]


async def test_a_dedup_function_that_blocks_is_named_as_such(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with working(site) as process:
        await published(site, ["second"], "Dream")
        site.wait(lambda: done(site) == [0], "it is done")
        stopped_within(process, GRACE + SOON, site)
    (warning,) = [line for line in site.log().splitlines() if "blocked the event loop" in line]
    assert re.search(
        r"dedup= naps\.py:\d+ key_of_dream of Dream \(naps\) has blocked the event loop for 1\.\d "
        r"s at \S+naps\.py:\d+ with event '",
        warning,
    )


async def test_the_event_over_which_a_dedup_function_blocks_is_counted_alone(site: Site) -> None:
    with working(site) as process:
        await published(site, ["short", "sleep", "short"], "Dream")
        wait_for_start(site, 1)
        stopped_within(process, GRACE + SOON, site)
    assert "dedup= naps.py:" in site.log()
    assert "still blocks the event loop" in site.log()
    done_before = {0} if done(site) else set()
    left = {n: int(n == 1) for n in range(3) if n not in done_before}
    assert await returned(site, len(left), DREAMS) == left


async def test_a_coroutine_that_catches_its_cancellation_keeps_no_worker_from_stopping(
    site: Site,
) -> None:
    with working(site, "--concurrency", "2") as process:
        await published(site, ["stubborn", "wait"])
        wait_for_start(site, 0, 1)
        stopped_within(process, GRACE + 5 + SOON, site)
        assert process.returncode == 0
    assert re.search(r"naps\.py:\d+ nap did not end when it was cancelled, at naps", site.log())
    assert "leaving 1 handler" in site.log()
    assert await returned(site, 2) == {0: 0, 1: 0}


async def test_a_coroutine_that_a_handler_never_awaited_is_in_the_log(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with working(site) as process:
        await published(site, ["short"], "Snore")
        site.wait(lambda: done(site) == [0], "it is done")
        stopped_within(process, GRACE + SOON, site)
    (line,) = [each for each in site.log().splitlines() if "never awaited" in each]
    assert '"level": "WARNING", "logger": "py.warnings"' in line
    assert re.search(r"naps\.py:\d+: RuntimeWarning: coroutine 'blocked' was never awaited", line)
