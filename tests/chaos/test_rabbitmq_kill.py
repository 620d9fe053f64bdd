"""Workers and the broker are killed; every event still ends once, and the books are exact."""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from headway.adapters.rabbitmq.sending import WINDOW
from headway.adapters.rabbitmq.topology import STEPS, delay_name
from headway.testing.servers import RabbitMQ
from tests.chaos.broker import BrokerSite, children

QUEUE = "hardship.step"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("events", "kills", "every"),
    [
        (2_000, 6, 0.8),
        pytest.param(20_000, 35, 1.8, marks=[pytest.mark.chaos, pytest.mark.timeout(900)]),
    ],
)
async def test_killed_workers_and_brokers_lose_nothing_and_do_nothing_twice(
    tmp_path: Path,
    rabbitmq_server: RabbitMQ,
    rabbitmq_vhost: str,
    record_property: Callable[[str, object], None],
    *,
    events: int,
    kills: int,
    every: float,
) -> None:
    site, server = BrokerSite(tmp_path, broker=rabbitmq_vhost), rabbitmq_server
    poison = events // 100
    (site.folder / "failed-once").mkdir()
    kinds = _kinds(events, poison)
    named = [
        (f"step-{number}", {"number": number, "kind": kind}) for number, kind in enumerate(kinds)
    ]
    killed: set[int] = set()
    began = time.monotonic()
    with site.running("hardship:hardship", "--workers", "4", "--concurrency", "2") as process:
        site.wait(lambda: site.log().count("Running hardship") >= 4, "4 workers have started")
        for queue in (QUEUE, f"{QUEUE}.suspects", "hardship.failed", *map(delay_name, STEPS)):
            server.wait_for_quorum_queue(site.url, queue)
        publishing = asyncio.create_task(site.publish_named("Step", named))
        dice = random.Random(kills)
        crashes = _crashes(server, kills)
        while len(killed) < kills:
            await asyncio.sleep(every)
            next(crashes)
            assert process.poll() is None, site.log()[-3000:]
            alive = sorted(set(children(process)) - killed)
            if alive:
                victim = dice.choice(alive)
                killed.add(victim)
                os.kill(victim, signal.SIGKILL)
        await publishing
        site.wait(lambda: site.ended() >= events, "all events have ended", seconds=300)
    lasted = time.monotonic() - began
    crashes.close()

    letters = site.letters("hardship.failed")
    assert Counter(letter["abandoned_reason"] for letter in letters) == {"non_retryable": poison}
    poisoned = {f"step-{number}" for number, kind in enumerate(kinds) if kind == "poison"}
    assert {letter["operation"] for letter in letters} == poisoned

    done = Counter(document["number"] for document in site.documents("steps"))
    expected = {number for number, kind in enumerate(kinds) if kind != "poison"}
    assert set(done) == expected
    assert set(done.values()) == {1}
    assert site.documents("totals") == [{"_id": "all", "steps": len(expected)}]
    attempts = _attempts(site)
    for (number, _), begins in attempts.items():
        assert kinds[number] == "fails once" or (number, 2) not in attempts
        assert begins <= 1 + len(killed) + 2

    ids = site.folder / "published.txt"
    ids.write_text("".join(f"{name}\n" for name, _ in named))
    verified = site.headway("verify", "--against", str(ids))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    resent = sum(attempts.values()) - len(attempts)
    assert resent <= (len(killed) + 2) * WINDOW
    record_property(
        "shown",
        f"{events} events, {len(killed)} SIGKILLs of workers and 2 of the broker in "
        f"{lasted:.0f} s: {len(done)} done once, {poison} letters, {resent} attempts begun "
        "again, verify --against 0",
    )


def _kinds(events: int, poison: int) -> list[str]:
    step = events // poison
    kinds = [
        "poison" if number % step == 0 else "fails once" if number % 10 == 1 else "well"
        for number in range(events)
    ]
    assert kinds.count("poison") == poison
    return kinds


def _crashes(server: RabbitMQ, rounds: int) -> Generator[None]:
    """Kill the broker while everything is being published, and once more in the middle."""
    for number in range(1, rounds + 1):
        if number in {2, rounds // 2 + 1}:
            server.kill()
            server.start()
        yield
    with contextlib.suppress(GeneratorExit):
        while True:
            yield


def _attempts(site: BrokerSite) -> Counter[tuple[int, int]]:
    """How often each attempt at each event was begun, by the handlers' own log."""
    begun: Counter[tuple[int, int]] = Counter()
    for line in (site.folder / "begun.log").read_text().splitlines():
        number, attempt, _ = map(int, line.split())
        begun[number, attempt] += 1
    return begun
