"""The mail pipeline on RabbitMQ and MongoDB: services, both servers and a sweeper are killed."""

import asyncio
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from benchmarks.consensus.mailing_list import write_archives

from headway.adapters.rabbitmq.topology import STEPS, delay_name
from headway.systems.consensus.pipeline import SERVICES
from headway.testing.servers import MongoDB, RabbitMQ
from tests.chaos.consensus_runs import (
    NAMES,
    PIPELINE,
    ConsensusBrokerSite,
    ended_by_force,
    stop,
)

Record = Callable[[str, object], None]
SWEEPER = "sweeper"


@dataclass
class Staff:
    """A process for each service, and a sweeper; whoever dies is replaced."""

    site: ConsensusBrokerSite
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)

    def start(self, name: str) -> None:
        self.processes[name] = self.site.start(*self._command(name))

    def kill(self, name: str) -> None:
        process = self.processes[name]
        assert process.poll() is None, f"{name} has ended by itself, with {process.returncode}"
        process.kill()
        process.wait()
        self.killed.append(name)

    def go_home(self) -> None:
        for process in self.processes.values():
            stop(process)

    @staticmethod
    def _command(name: str) -> list[str]:
        if name == SWEEPER:
            return ["sweep", *(f"{PIPELINE}:{each}" for each in NAMES)]
        return ["run", f"{PIPELINE}:{name}"]


@contextmanager
def staffed(site: ConsensusBrokerSite) -> Iterator[Staff]:
    staff = Staff(site)
    for name in (*NAMES, SWEEPER):
        staff.start(name)
    try:
        yield staff
    finally:
        with ended_by_force(*staff.processes.values()):
            pass


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_reduced_four_hundred_messages_through_kills_of_services_and_servers(
    tmp_path: Path, record_property: Record
) -> None:
    await kill_everything(tmp_path, record_property, messages=400, kills=10, of_each_server=1)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_full_five_thousand_messages_through_kills_of_services_and_servers(
    tmp_path: Path, record_property: Record
) -> None:
    await kill_everything(tmp_path, record_property, messages=5_000, kills=40, of_each_server=3)


async def kill_everything(
    folder: Path, record_property: Record, *, messages: int, kills: int, of_each_server: int
) -> None:
    archives = write_archives(folder / "archives", messages, each=max(100, messages // 20))
    with RabbitMQ() as broker, MongoDB() as database:
        began = time.monotonic()
        undisturbed = site_at(folder / "undisturbed", broker, database)
        with staffed(undisturbed) as staff:
            await undisturbed.submit(*archives)
            await undisturbed.at_rest(900)
            staff.go_home()
        expected = await undisturbed.final_set()
        calm = time.monotonic() - began
        assert len(expected.messages) == messages

        began = time.monotonic()
        site = site_at(folder / "disturbed", broker, database)
        with staffed(site) as staff:
            await site.submit(*archives)
            wait_for_queues(site, broker)
            pace = 0.6 * calm / kills  # so that there is work to be disturbed
            await hardship(staff, (broker, database), kills, of_each_server, every=pace)
            await site.at_rest(900)
            staff.go_home()
        found = await site.final_set()
        stormy = time.monotonic() - began
        assert not expected.differences(found), expected.differences(found)
        letters = await site.all_letters()
        superseded = await site.superseded(letters)
        undecided = [each for each in letters if each[1].letter_id not in superseded]
        assert not undecided, undecided
    record_property(
        "shown",
        f"{found}: the same as undisturbed ({calm:.0f} s) after {len(staff.killed)} SIGKILLs of "
        f"services and the sweeper, {of_each_server} of the broker and {of_each_server} of the "
        f"database ({stormy:.0f} s); {len(letters)} letters, all superseded",
    )


async def hardship(
    staff: Staff,
    servers: Sequence[RabbitMQ | MongoDB],
    kills: int,
    of_each_server: int,
    *,
    every: float,
) -> None:
    """Kill at random, every service at least once."""
    dice = random.Random(kills)
    victims = [*staff.processes, *dice.choices(sorted(staff.processes), k=kills)][:kills]
    dice.shuffle(victims)
    rounds = dice.sample(range(1, kills), len(servers) * of_each_server)
    falls = dict(zip(rounds, [*servers] * of_each_server, strict=True))
    for number, victim in enumerate(victims):
        await asyncio.sleep(dice.uniform(0.5, 1.5) * every)
        staff.kill(victim)
        if (server := falls.get(number)) is not None:
            server.kill()
            server.start()
        staff.start(victim)


def site_at(folder: Path, broker: RabbitMQ, database: MongoDB) -> ConsensusBrokerSite:
    folder.mkdir()
    return ConsensusBrokerSite(
        folder,
        broker=broker.create_vhost(),
        store=database.create_database(),
        management_port=broker.management_port,
    )


def wait_for_queues(site: ConsensusBrokerSite, broker: RabbitMQ) -> None:
    """A queue that was made a moment before the broker dies may be lost; these were long ago."""
    work = [queue.name for service in SERVICES for queue in service.queues()]
    failed = [service.failed_queue for service in SERVICES]
    for queue in (*work, *failed, *map(delay_name, STEPS)):
        broker.wait_for_quorum_queue(site.url, queue)
