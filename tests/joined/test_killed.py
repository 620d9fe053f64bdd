"""Workers on RabbitMQ with a store are killed again and again; every event still ends once."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from headway.assembly.engine import open_engine
from headway.assembly.retrying import CHANCE, CLOCK
from headway.ports.places import Count
from headway.runtime.publisher import Publisher
from tests.proof.running import Site

EVENTS, POISON, KILLS = 600, 12, 6
IDS = [f"step-{number}" for number in range(EVENTS)]
KINDS = [
    "poison" if number % (EVENTS // POISON) == 0 else "fails once" if number % 10 == 1 else "well"
    for number in range(EVENTS)
]


@dataclass(frozen=True)
class RabbitSite(Site):
    """Queues on a broker; the file is only a store."""

    broker: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            **super().environment,
            "HEADWAY_BUS": self.broker,
            "HEADWAY_STORE": f"sqlite:///{self.database}",
        }

    def count(self) -> Count:
        async def count() -> Count:
            engine = open_engine()
            try:
                return await engine.places.count()
            finally:
                await engine.close()

        return asyncio.run(count())

    def publish_all(self) -> None:
        async def publish() -> None:
            engine = open_engine()
            publisher = Publisher(engine.bus, CLOCK, CHANCE)
            for number, kind in enumerate(KINDS):
                data = {"number": number, "kind": kind}
                await publisher.publish("Step", data, event_id=IDS[number])
            await engine.close()

        asyncio.run(publish())


def children(parent: int) -> list[int]:
    """Give the process ids of the workers of a supervisor."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in found.split()]


@pytest.mark.timeout(300)
def test_killed_workers_lose_nothing_and_do_nothing_twice(
    rabbitmq_vhost: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    site = RabbitSite(tmp_path, rabbitmq_vhost)
    for name in ("HEADWAY_BUS", "HEADWAY_STORE"):
        monkeypatch.setenv(name, site.environment[name])
    (tmp_path / "failed-once").mkdir()
    (tmp_path / "ids").write_text("\n".join(IDS))
    killed: set[int] = set()
    with site.running("hardship:hardship", "--workers", "3", "--concurrency", "2") as supervisor:
        site.wait(lambda: bool(site.count().queues), "a worker has declared its queue")
        site.publish_all()
        dice = random.Random(KILLS)
        while len(killed) < KILLS:
            time.sleep(0.7)
            alive = sorted(set(children(supervisor.pid)) - killed)
            if alive:
                victim = dice.choice(alive)
                killed.add(victim)
                os.kill(victim, signal.SIGKILL)
        at_work = site.count()

        def is_over() -> bool:
            count = site.count()
            return not count.waiting and count.done + sum(count.failed.values()) == EVENTS

        site.wait(is_over, "all events have ended", seconds=120)
    assert at_work.done < EVENTS, "they were killed when all was done"

    done = Counter(document["number"] for document in site.documents("steps"))
    expected = {number for number, kind in enumerate(KINDS) if kind != "poison"}
    assert set(done) == expected
    assert set(done.values()) == {1}
    assert site.documents("totals") == [{"_id": "all", "steps": len(expected)}]
    assert site.query("select count(*) from headway_done where held is not null") == [(0,)]
    verified = site.headway("verify", "--against", "ids")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "0 are missing" in verified.stdout

    purged = site.headway("failed", "purge", "hardship.failed", "--yes")
    assert purged.returncode == 0, purged.stderr
    ends = site.query("select ended, count(*) from headway_done group by 1 order by 1")
    assert ends == [("done", EVENTS - POISON), ("purged", POISON)]
    site.query("delete from headway_done where operation = ?", IDS[2])
    missing = site.headway("verify", "--against", "ids")
    assert missing.returncode == 1, missing.stdout + missing.stderr
    assert f"{IDS[2]} of the file is in no known place" in missing.stdout
    record_property(
        "shown",
        f"RabbitMQ and SQLite: {EVENTS} events, {KILLS} SIGKILLs, {len(done)} done once, "
        f"{POISON} letters, verify 0, then 1 by hand",
    )
