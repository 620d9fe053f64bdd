"""A roll-out with real processes: two versions of one service on one engine."""

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.broker import BrokerSite, children
from tests.chaos.running import Site

NEW = 1000
OLD = 50
ENGINES = ["sqlite", pytest.param("rabbitmq", marks=pytest.mark.server("rabbitmq"))]


@pytest.fixture(params=ENGINES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    if request.param == "sqlite":
        return Site(tmp_path)
    return BrokerSite(tmp_path, broker=request.getfixturevalue("rabbitmq_vhost"))


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and its workers, none of which can say goodbye."""
    for pid in (*children(process), process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def version(site: Site, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a version, and wait until it takes events."""
    before = site.log().count("Running orders") if (site.folder / "run.log").exists() else 0
    with site.started(f"rollout:{name}") as process:
        running = lambda: site.log().count("Running orders") > before  # noqa: E731
        site.wait(running, f"{name} runs")
        yield process


def placed(site: Site) -> Counter[str]:
    try:
        return Counter(str(each["version"]) for each in site.documents("placed"))
    except Exception:  # noqa: BLE001 (there is no file yet)
        return Counter()


def letters(site: Site) -> str:
    listed = site.headway("failed", "list", "--json")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    return listed.stdout


@pytest.mark.timeout(300)
async def test_a_thousand_events_that_only_the_new_version_reads_are_done_once(site: Site) -> None:
    with version(site, "first") as first, version(site, "second") as second:
        await site.publish("OrderPlaced", [{"order": number} for number in range(NEW)])
        site.wait(lambda: placed(site)["2"] > 0, "version 2 is at it")
        kill(second)
        # Version 1 goes on with its own, whatever waits for the other.
        await site.publish("OrderPlaced", [{"order": f"old {number}"} for number in range(OLD)])
        site.wait(lambda: placed(site)["1"] == OLD, "version 1 has done what it reads")
        with version(site, "second"):
            done = Counter({"1": OLD, "2": NEW})
            site.wait(lambda: placed(site) == done, "everything is done", seconds=180)
            assert first.poll() is None
    orders = Counter(each["order"] for each in site.documents("placed"))
    assert set(orders.values()) == {1}
    assert '"letters": 0' in letters(site)
    assert "ERROR" not in site.log()
    assert "CRITICAL" not in site.log()
    assert 1 <= site.log().count("leaves each to version '2'") <= 10


@pytest.mark.timeout(300)
async def test_what_no_live_version_reads_is_a_dead_letter_that_names_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRACE", "10")
    with version(site, "first"), version(site, "second") as second:
        await site.publish("OrderPlaced", [{"order": None}] * 5)
        site.wait(lambda: counted(site) == 5, "both versions refused it", seconds=120)
        kill(second)
        await site.publish("OrderPlaced", [{"order": number} for number in range(10)])
        site.wait(lambda: counted(site) == 15, "the grace is over", seconds=120)
    exported = site.headway("failed", "export", "orders.failed", "--output", "-")
    every = [json.loads(line) for line in exported.stdout.splitlines()]
    by_both = [each for each in every if each["original_event"]["data"]["order"] is None]
    assert len({each["letter_id"] for each in every}) == 15
    for each in by_both:
        assert "version '1' refused it" in each["last_error"]
        assert "version '2' refused it" in each["last_error"]
    for each in every:
        assert each["version"] == each["attempts"][-1]["version"]
        assert each["attempt_count"] == 0
        if each not in by_both:
            assert each["version"] == "1"
            assert "version '2' was not alive within 10 s" in each["last_error"]
    assert placed(site) == Counter()


def counted(site: Site) -> int:
    found = json.loads(letters(site))
    return int(next((each["letters"] for each in found if each["queue"] == "orders.failed"), 0))
