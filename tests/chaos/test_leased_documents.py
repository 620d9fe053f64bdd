"""Events that wait for a leased document, in real processes on every pair of engines."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from headway.testing.servers import RabbitMQ
from tests.chaos.broker import BrokerSite
from tests.chaos.running import Site

PAIRS = ["sqlite", "rabbitmq, sqlite", "rabbitmq, postgresql", "rabbitmq, mongodb"]
WAITING = 8
FIRST, OTHERS, AFTER_KILL = 0.1, 1.0, 6.0
"""Seconds from the end of the holder's handler, or from its SIGKILL, to the next start."""


@dataclass(frozen=True)
class StoreSite(BrokerSite):
    """Queues at a broker, documents at a server."""

    store: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "HEADWAY_STORE": self.store}


@dataclass(frozen=True)
class Line:
    """What a handler wrote down."""

    what: str
    name: str
    pid: int
    at: float


def lines(site: Site, what: str) -> list[Line]:
    path = site.folder / "begun.log"
    every = path.read_text().splitlines() if path.exists() else []
    read = [line.split() for line in every]
    found = [Line(kind, name, int(pid), float(at)) for kind, name, pid, at in read]
    return [line for line in found if line.what == what]


def names(site: Site, what: str) -> list[str]:
    return [line.name for line in lines(site, what)]


@pytest.fixture(params=PAIRS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    if request.param == "sqlite":
        return Site(tmp_path)
    broker: str = request.getfixturevalue("rabbitmq_vhost")
    match request.param:
        case "rabbitmq, postgresql":
            store: str = request.getfixturevalue("postgres_database")
            return StoreSite(tmp_path, broker=broker, store=store)
        case "rabbitmq, mongodb":
            store = request.getfixturevalue("mongodb_database")
            return StoreSite(tmp_path, broker=broker, store=store)
        case _:
            return BrokerSite(tmp_path, broker=broker)


def until_running(site: Site, number: int) -> None:
    site.wait(lambda: site.log().count("Running leased") >= number, f"{number} workers run")


async def hold(site: Site, document: str, name: str) -> Line:
    """Have an event keep a document; say which process runs it."""
    (site.folder / f"keep-{name}").touch()
    await site.publish("Used", [{"doc": document, "name": name}])
    site.wait(lambda: name in names(site, "started"), f"{name} has started")
    return next(line for line in lines(site, "started") if line.name == name)


def next_start(site: Site, after: float) -> float:
    return min(line.at for line in lines(site, "started") if line.at > after) - after


@pytest.mark.timeout(180)
async def test_events_start_when_a_document_is_released_or_its_holder_killed(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    await release_and_kill(site, record_property)


@pytest.mark.chaos
@pytest.mark.timeout(180)
async def test_events_start_within_a_moment_of_the_release_and_six_seconds_of_a_kill(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    first, others, after_kill = await release_and_kill(site, record_property)
    assert first <= FIRST
    assert others <= OTHERS
    assert after_kill <= AFTER_KILL


async def release_and_kill(
    site: Site, record_property: Callable[[str, object], None]
) -> tuple[float, float, float]:
    with site.started("leased") as one, site.started("leased") as other:
        until_running(site, 2)
        await site.publish("Filed", [{"doc": "a"}])
        # Its handler has run a moment earlier: only what is committed can be leased.
        site.wait(lambda: '"event_type": "Filed"' in site.log(), "the document is there")

        await hold(site, "a", "holder")
        waiting = [f"waiting-{number}" for number in range(WAITING)]
        await site.publish("Used", [{"doc": "a", "name": name} for name in waiting])
        site.wait(lambda: "Waiting for document a" in site.log(), "they wait for it")
        (site.folder / "keep-holder").unlink()
        site.wait(lambda: set(waiting) <= set(names(site, "ended")), "all were run", seconds=30)
        ends = sorted(line.at for line in lines(site, "ended"))
        pauses = [next_start(site, end) for end in ends[:-1]]
        assert max(Counter(names(site, "started")).values()) == 1

        killed = await hold(site, "a", "killed")
        await site.publish("Used", [{"doc": "a", "name": "after"}])
        site.wait(lambda: site.log().count("Waiting for document a") >= 1, "it waits")
        died = time.time()
        os.kill(killed.pid, signal.SIGKILL)
        (site.folder / "keep-killed").unlink()
        site.wait(lambda: "after" in names(site, "ended"), "it was taken over", seconds=30)
        site.wait(lambda: "killed" in names(site, "ended"), "the lost one came back, too")
        after_kill = next_start(site, died)
        assert "is gone and held its lease until" in site.log()
        for process in (one, other):
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    shown = (
        f"first {1000 * pauses[0]:.0f} ms after the release, others {1000 * max(pauses):.0f} ms at "
        f"most, {after_kill:.1f} s after SIGKILL"
    )
    record_property("shown", shown)
    return pauses[0], max(pauses), after_kill


@pytest.mark.timeout(180)
@pytest.mark.parametrize("site", PAIRS[:2], indirect=True)
async def test_a_thousand_events_that_wait_for_one_document_delay_no_event_of_another(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    with site.running("leased"):
        until_running(site, 1)
        await site.publish("Filed", [{"doc": "a"}, {"doc": "b"}])
        site.wait(lambda: len(names(site, "filed")) == 2, "the documents are there")
        await hold(site, "a", "holder")
        await site.publish("Used", [{"doc": "a", "name": f"w{n}"} for n in range(1000)])
        published = time.time()
        await site.publish("Used", [{"doc": "b", "name": "free"}])
        site.wait(lambda: "free" in names(site, "ended"), "it does not wait", seconds=30)
        assert names(site, "started") == ["holder", "free"]
        shown = f"{1000 * next_start(site, published):.0f} ms behind 1,000 that wait"
        record_property("shown", shown)
        (site.folder / "keep-holder").unlink()
        site.wait(lambda: len(names(site, "ended")) > 100, "they are run", seconds=60)
    assert max(Counter(names(site, "started")).values()) == 1
    assert "Event finished too late" not in site.log()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("event_type", ["Used", "Plain"])
async def test_a_broker_that_restarts_under_fifty_running_handlers_has_none_started_twice(
    tmp_path: Path, rabbitmq_server: RabbitMQ, rabbitmq_vhost: str, event_type: str
) -> None:
    """Plain handlers run in one worker: only it can know that it still runs them."""
    site = BrokerSite(tmp_path, broker=rabbitmq_vhost)
    workers = 2 if event_type == "Used" else 1
    settings = ("--workers", str(workers), "--concurrency", "50")
    every = [f"e{number}" for number in range(50)]
    with site.running("leased", *settings):
        until_running(site, workers)
        for queue in ("leased.used", "leased.plain", "leased.filed"):
            rabbitmq_server.wait_for_quorum_queue(site.url, queue)
        await site.publish("Filed", [{"doc": name} for name in every])
        site.wait(lambda: len(names(site, "filed")) == 50, "the documents are there")
        for name in every:
            (site.folder / f"keep-{name}").touch()
        await site.publish(event_type, [{"doc": name, "name": name} for name in every])
        site.wait(lambda: set(every) <= set(names(site, "started")), "all have started")
        before = site.log().count("answers again (taking)")
        rabbitmq_server.kill()
        rabbitmq_server.start()
        site.wait(
            lambda: site.log().count("answers again (taking)") >= before + workers,
            "the workers are connected again",
            seconds=120,
        )
        site.wait(lambda: came_again(site), "events came again")
        for name in every:
            (site.folder / f"keep-{name}").unlink()
        site.wait(lambda: site.ended() >= 100, "all events have ended", seconds=120)
    assert Counter(names(site, "started")) == dict.fromkeys(every, 1)
    assert "is gone and held its lease" not in site.log(), "it came back in time"


def came_again(site: Site) -> bool:
    """Say whether the broker has delivered again what handlers still run."""
    return "Waiting for document" in site.log() or "came back after the connection" in site.log()
