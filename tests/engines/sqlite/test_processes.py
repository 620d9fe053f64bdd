"""One file and real processes that compete, die, stop and come back."""

import asyncio
import fcntl
import json
import multiprocessing
import os
import resource
import signal
import sqlite3
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway.clock import SystemChance, SystemClock
from headway.testing.engines import SqliteEngine, sqlite_engine
from headway.testing.ports import (
    Delivery,
    Done,
    DoneRecord,
    Ended,
    Message,
    Queue,
    Travel,
    Unit,
)
from tests.engines.waiting import somebody_waits

QUEUE = Queue(name="shop.orders", event_types=("Order",), failed="shop.failed")
SHORT = timedelta(seconds=1)
LONG = timedelta(minutes=5)

SPAWN = multiprocessing.get_context("spawn")


def engine_on(path: Path, lease: timedelta = LONG, synchronous: str = "normal") -> SqliteEngine:
    return sqlite_engine(path, SystemClock(), SystemChance(), lease=lease, synchronous=synchronous)


def order(name: str, size: int = 0) -> Message:
    body = json.dumps({"event_type": "Order", "data": {"padding": "x" * size}}).encode()
    return Message(body=body, travel=Travel(operation=name), event_type="Order")


def done(delivery: Delivery) -> Unit:
    record = DoneRecord(
        key=f"shop/Order/0/{delivery.travel.operation}",
        operation=delivery.travel.operation,
        queue=delivery.queue,
        ended=Ended.DONE,
        at=SystemClock().now(),
    )
    return Unit(delivery=delivery, then=Done(), record=record)


class Folder:
    """Where processes leave each other notes; a note is there as a whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "headway.db"

    def note(self, name: str, value: Any = None) -> None:
        draft = self.path / f"{name}.draft"
        draft.write_text(json.dumps(value))
        draft.rename(self.path / name)

    def read(self, name: str, within: float = 30) -> Any:
        deadline = time.monotonic() + within
        while not (self.path / name).exists():
            assert time.monotonic() < deadline, f"no process wrote {name}"
            time.sleep(0.005)
        return json.loads((self.path / name).read_text())


Role = Callable[[Folder, str], Coroutine[Any, Any, None]]


def play(role: Role, path: Path, name: str) -> None:
    asyncio.run(role(Folder(path), name))


class Stage:
    """Starts processes, and leaves none behind."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._processes: list[multiprocessing.process.BaseProcess] = []

    def start(self, role: Role, name: str = "child") -> int:
        process = SPAWN.Process(target=play, args=(role, self.folder.path, name))
        process.start()
        self._processes.append(process)
        assert process.pid is not None
        return process.pid

    def join(self) -> None:
        for process in self._processes:
            process.join(60)
            assert process.exitcode == 0

    def reap(self, pid: int) -> None:
        next(process for process in self._processes if process.pid == pid).join()

    def close(self) -> None:
        for process in self._processes:
            if process.pid is not None and process.is_alive():
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            process.join()
            process.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(Folder(tmp_path))
    yield stage
    stage.close()


# Taking


async def takes_all(folder: Folder, name: str) -> None:
    engine = engine_on(folder.database)
    folder.note(f"{name}.ready")
    folder.read("go")
    await engine.bus.open([QUEUE])
    taken: list[str] = []
    while deliveries := await engine.bus.take([QUEUE.name], 7, timedelta(seconds=0.2)):
        taken += [delivery.travel.operation for delivery in deliveries]
        finishes = await engine.finisher.finish([done(delivery) for delivery in deliveries])
        assert {finish.outcome for finish in finishes} == {"committed"}
    folder.note(name, taken)
    await engine.bus.close()


async def publishes_and_waits(engine: SqliteEngine, names: Sequence[str]) -> None:
    await engine.bus.open([QUEUE])
    await engine.bus.publish([order(name) for name in names])


async def test_several_processes_never_take_the_same(stage: Stage) -> None:
    names = [f"order-{number}" for number in range(500)]
    engine = engine_on(stage.folder.database)
    await publishes_and_waits(engine, names)
    takers = ["one", "two", "three", "four"]
    for taker in takers:
        stage.start(takes_all, taker)
    for taker in takers:
        stage.folder.read(f"{taker}.ready")
    stage.folder.note("go")
    shares = [stage.folder.read(taker) for taker in takers]
    stage.join()
    assert sorted(name for share in shares for name in share) == sorted(names)
    count = await engine.places.balance()
    assert (count.done, count.accepted, count.workers) == (500, 500, 1)
    assert await engine.places.astray(5) == (0, [])
    await engine.bus.close()


# Dying


async def takes_three_and_begins_one(folder: Folder, name: str) -> None:
    engine = engine_on(folder.database)
    await engine.bus.open([QUEUE])
    taken = await engine.bus.take([QUEUE.name], 3)
    await engine.bus.begin(taken[0])
    folder.note(name, [delivery.travel.operation for delivery in taken])
    await asyncio.sleep(60)


@pytest.mark.parametrize("found_by", ["a worker that buries it", "a worker that opens the file"])
async def test_what_a_killed_process_had_comes_back_at_once(stage: Stage, found_by: str) -> None:
    engine = engine_on(stage.folder.database)  # with a lease of minutes: no test waits for it
    await publishes_and_waits(engine, ["a", "b", "c", "d"])
    pid = stage.start(takes_three_and_begins_one)
    assert stage.folder.read("child") == ["a", "b", "c"]
    assert await engine.bus.bury(pid) == 0  # it lives
    (first,) = await engine.bus.take([QUEUE.name], 9)
    assert (first.travel.operation, first.returns) == ("d", 0)
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if found_by == "a worker that buries it":
        assert await engine.bus.bury(pid) == 1  # a zombie too
    else:
        stage.reap(pid)
        await engine.bus.settle([(first, Done())])
        await engine.bus.close()
        engine = engine_on(stage.folder.database)
        await engine.bus.open([QUEUE])
    back = await engine.bus.take([QUEUE.name], 9)
    assert [(d.travel.operation, d.returns, d.begins) for d in back] == [
        ("a", 1, 1),
        ("b", 1, 0),
        ("c", 1, 0),
    ]
    await engine.bus.close()


# Stopping


async def takes_one_and_finishes_when_told(folder: Folder, name: str) -> None:
    engine = engine_on(folder.database, SHORT)
    await engine.bus.open([QUEUE])
    (delivery,) = await engine.bus.take([QUEUE.name], 1)
    folder.note(name)
    await asyncio.to_thread(folder.read, "go")
    (finish,) = await engine.finisher.finish([done(delivery)])
    folder.note("outcome", finish.outcome)
    # It begins anew: what it takes from now on is its own.
    (delivery,) = await engine.bus.take([QUEUE.name], 1, timedelta(seconds=20))
    (finish,) = await engine.finisher.finish([done(delivery)])
    folder.note("second outcome", finish.outcome)
    await engine.bus.close()


async def test_who_was_stopped_longer_than_its_lease_is_fenced_when_it_wakes(
    stage: Stage,
) -> None:
    engine = engine_on(stage.folder.database, SHORT)
    await publishes_and_waits(engine, ["a"])
    pid = stage.start(takes_one_and_finishes_when_told)
    stage.folder.read("child")
    os.kill(pid, signal.SIGSTOP)
    (delivery,) = await engine.bus.take([QUEUE.name], 1, timedelta(seconds=20))
    assert delivery.returns == 1
    os.kill(pid, signal.SIGCONT)
    stage.folder.note("go")
    assert await asyncio.to_thread(stage.folder.read, "outcome") == "lost"
    (finish,) = await engine.finisher.finish([done(delivery)])
    assert finish.outcome == "committed"
    await engine.bus.publish([order("b")])
    assert await asyncio.to_thread(stage.folder.read, "second outcome") == "committed"
    stage.join()
    assert (await engine.places.astray(5))[0] == 0
    await engine.bus.close()


async def test_a_busy_writer_still_beats(tmp_path: Path) -> None:
    busy, other = (engine_on(tmp_path / "headway.db", SHORT, "full") for _ in range(2))
    await publishes_and_waits(busy, ["a"])
    (delivery,) = await busy.bus.take([QUEUE.name], 1)
    await other.bus.open([QUEUE])
    batch, end = 0, time.monotonic() + 2.5 * SHORT.total_seconds()
    while time.monotonic() < end:
        batch += 1
        await busy.bus.publish([order(f"{batch}-{n}", 500) for n in range(1_000)])
    (finish,) = await busy.finisher.finish([done(delivery)])
    assert finish.outcome == "committed"
    for engine in (busy, other):
        await engine.bus.close()


# Sharing


async def hammers(folder: Folder, name: str) -> None:
    engine = engine_on(folder.database, synchronous="full")
    await engine.bus.open([QUEUE])
    folder.note(f"{name}.ready")
    folder.read("go")
    commits, longest, end = 0, 0.0, time.monotonic() + 2
    while (start := time.monotonic()) < end:
        await engine.bus.publish([order(f"{name}-{commits}-{n}") for n in range(20)])
        longest = max(longest, time.monotonic() - start)
        commits += 1
    folder.note(name, [commits, longest])
    await engine.bus.close()


async def test_every_process_gets_a_share_of_the_one_write_lock(stage: Stage) -> None:
    names = ["one", "two", "three", "four"]
    for name in names:
        stage.start(hammers, name)
    for name in names:
        stage.folder.read(f"{name}.ready")
    stage.folder.note("go")
    shares = [stage.folder.read(name) for name in names]
    stage.join()
    commits = [share[0] for share in shares]
    longest = max(share[1] for share in shares)
    assert min(commits) > max(commits) / 3
    assert longest < 2


async def test_a_process_that_was_stopped_before_it_wrote_shuts_out_no_other(stage: Stage) -> None:
    """Processes queue for the write lock at two files; a stopped one keeps its place there."""
    engine = engine_on(stage.folder.database)
    await publishes_and_waits(engine, ["a"])
    with stage.folder.database.with_name("headway.db-now").open() as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        async with asyncio.timeout(20):
            await engine.bus.publish([order("b")])
    assert len(await engine.bus.take([QUEUE.name], 9)) == 2
    await engine.bus.close()


async def test_what_another_engine_publishes_wakes_who_waits_within_a_tenth_of_a_second(
    tmp_path: Path,
) -> None:
    publisher, taker = (engine_on(tmp_path / "headway.db") for _ in range(2))
    await publisher.bus.open([QUEUE])
    await taker.bus.open([QUEUE])
    late = []
    for number in range(9):
        waiting = asyncio.create_task(taker.bus.take([QUEUE.name], 1, timedelta(seconds=20)))
        await somebody_waits(taker)
        await publisher.bus.publish([order(f"{number}")])
        published = time.monotonic()
        await waiting
        late.append(time.monotonic() - published)
    # The middle one: a single one says more about what else this machine has to do.
    assert statistics.median(late) < 0.1, late
    for engine in (publisher, taker):
        await engine.bus.close()


# A disk that is full


async def meets_a_full_disk(folder: Folder, name: str) -> None:
    engine = engine_on(folder.database, synchronous="full")
    await engine.bus.open([QUEUE])
    await engine.bus.publish([order("a")])
    (delivery,) = await engine.bus.take([QUEUE.name], 1)
    log = folder.database.with_name("headway.db-wal")
    everything = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 8_192, everything[1]))
    answers = await asyncio.gather(
        engine.bus.publish([order("too-big", 100_000)]),
        engine.finisher.finish([done(delivery)]),
        return_exceptions=True,
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, everything)
    assert all(isinstance(answer, sqlite3.OperationalError) for answer in answers), answers
    assert all(str(folder.database) in answer.__notes__[0] for answer in answers)  # type: ignore[union-attr]
    # Nothing of it is stored, and everything can be done again.
    count = await engine.places.balance()
    assert (count.done, count.accepted, count.queues[0].leased) == (0, 1, 1)
    await engine.bus.publish([order("too-big", 100_000)])
    (finish,) = await engine.finisher.finish([done(delivery)])
    assert finish.outcome == "committed"
    folder.note(name, (await engine.places.astray(5))[0])
    await engine.bus.close()


async def test_a_full_disk_fails_the_group_and_spares_the_file(stage: Stage) -> None:
    stage.start(meets_a_full_disk)
    stage.join()
    assert stage.folder.read("child") == 0
