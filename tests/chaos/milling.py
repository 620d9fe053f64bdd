"""A mill: where its documents are, its workers and sweepers, and how all of them are killed."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from headway.testing.servers import MongoDB
from tests.chaos.broker import BrokerSite
from tests.chaos.running import HEADWAY, Site

GRAINS = ("wheat", "rye", "oats", "corn")
MAX_ATTEMPTS = 4
KINDS = (
    "lost", "killed", "failed", "naive", "bare", "processing", "exhausted", "poison", "jams",
    "future",
)  # fmt: skip
ENDS = frozenset({"processed", "failed_max_retries"})
PERMANENT = "failed permanently"
"""And this: no sweep takes it up."""
SETTINGS = {
    "RETRY_JOB_INTERVAL_SECONDS": "1",
    "RETRY_JOB_BASE_DELAY_SECONDS": "2",
    "RETRY_JOB_MAX_DELAY_SECONDS": "8",
    "RETRY_JOB_STUCK_THRESHOLD_HOURS": "0.0167",
    "RETRY_JOB_GRACE_SECONDS": "0",
    "RETRY_JOB_CLAIM_SECONDS": "5",
    "RETRY_JOB_LEADER": "false",
    "RETRY_JOB_CAP_AFTER_DOWNTIME": "0",
}

Document = dict[str, Any]


def kind_of(grain: str) -> str:
    return KINDS[int(grain.rpartition("-")[2]) % len(KINDS)]


def attempts_before(grain: str) -> int:
    """How often the test says that a document was attempted before."""
    return {"killed": 1, "failed": 1, "naive": 1, "processing": 2, "future": 1}.get(
        kind_of(grain), MAX_ATTEMPTS if kind_of(grain) == "exhausted" else 0
    )


def stuck(grain: str, now: datetime) -> Document:
    """Make a document that is stuck in the way of its kind."""
    old = (now - timedelta(days=2)).isoformat()
    tried = {"attemptCount": attempts_before(grain), "lastAttemptTime": old}
    ways: dict[str, Document] = {
        "lost": {"status": "pending", "attemptCount": 0, "lastAttemptTime": None},
        "killed": {"status": "pending", **tried, "leaseToken": "dead", "leaseUntil": old},
        "failed": {"status": "failed", **tried, "lastError": {"type": "OSError"}},
        "naive": {"status": "pending", **tried, "lastAttemptTime": old.removesuffix("+00:00")},
        "bare": {},
        "processing": {"status": "processing", **tried},
        "exhausted": {"status": "failed", **tried},
        "poison": {"status": "pending", "attemptCount": 0},
        "jams": {"status": "pending", "attemptCount": 0, "lastAttemptTime": None},
        "future": {"status": "pending", **tried, "lastAttemptTime": "3000-01-01T00:00:00Z"},
    }
    return {"_id": grain, **ways[kind_of(grain)]}


@dataclass(frozen=True)
class Mill(Site):
    """What both mills have in common."""

    limit: int = 25

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **SETTINGS, "RETRY_JOB_LIMIT": str(self.limit)}

    @abstractmethod
    def fill(self, collection: str, documents: Sequence[Document]) -> None:
        """Put documents there as another program would."""

    @abstractmethod
    def everything(self, collection: str) -> list[Document]: ...

    @abstractmethod
    def unfinished(self, collection: str) -> int: ...


@dataclass(frozen=True)
class FileMill(Mill):
    """Everything in one SQLite file."""

    def fill(self, collection: str, documents: Sequence[Document]) -> None:
        import sqlite3  # noqa: PLC0415

        rows = [(collection, each["_id"], json.dumps(each)) for each in documents]
        insert = "insert into headway_documents (collection, id, body) values (?, ?, ?)"
        with contextlib.closing(sqlite3.connect(self.database, timeout=60)) as connection:
            connection.executemany(insert, rows)
            connection.commit()

    def everything(self, collection: str) -> list[Document]:
        return self.documents(collection)

    def unfinished(self, collection: str) -> int:
        ((count,),) = self.query(
            "select count(*) from headway_documents where collection = ? and coalesce("
            "json_extract(body, '$.status'), '') not in ('processed', 'failed_max_retries') "
            "and json_extract(body, '$.permanentFailure.rule') is null",
            collection,
        )
        return int(str(count))


@dataclass(frozen=True)
class BrokerMill(Mill, BrokerSite):
    """Queues at RabbitMQ, documents in MongoDB."""

    store: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "HEADWAY_STORE": self.store}

    @contextlib.contextmanager
    def _asking(self, collection: str) -> Iterator[Any]:
        from pymongo import MongoClient  # noqa: PLC0415

        client: MongoClient[Document]
        with MongoClient(self.store, serverSelectionTimeoutMS=30_000) as client:
            yield client.get_default_database()[collection]

    def fill(self, collection: str, documents: Sequence[Document]) -> None:
        dates = [
            {
                name: datetime.fromisoformat(value)
                if name == "lastAttemptTime" and value and kind_of(each["_id"]) != "naive"
                else value
                for name, value in each.items()
            }
            for each in documents
        ]
        with self._asking(collection) as asked:
            asked.insert_many(dates)

    def everything(self, collection: str) -> list[Document]:
        with self._asking(collection) as asked:
            return list(asked.find())

    def unfinished(self, collection: str) -> int:
        with self._asking(collection) as asked:
            open_ones = {"status": {"$nin": sorted(ENDS)}, "permanentFailure.rule": None}
            return int(asked.count_documents(open_ones))


def handles_sigterm(process: subprocess.Popen[bytes]) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@dataclass
class Staff:
    """Workers and sweepers: those who die are replaced."""

    mill: Mill
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: dict[int, float] = field(default_factory=dict)
    """When, by process id."""

    def commands(self) -> dict[str, list[str]]:
        sweep = ["sweep", *(f"mill:{grain}" for grain in GRAINS), "--json"]
        return {
            **{grain: ["run", f"mill:{grain}", "--concurrency", "10"] for grain in GRAINS},
            "sweeper-1": sweep,
            "sweeper-2": sweep,
        }

    def be_there(self) -> None:
        for name, command in self.commands().items():
            process = self.processes.get(name)
            if process is None or process.poll() is not None:
                self.processes[name] = self._start(name, command)

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        folder = self.mill.folder
        with (folder / f"{name}.out").open("ab") as out, (folder / "run.log").open("ab") as log:
            return subprocess.Popen(
                [*HEADWAY, *command], env=self.mill.environment, cwd=folder, stdout=out, stderr=log
            )

    def kill(self, name: str) -> None:
        process = self.processes[name]
        self.killed[process.pid] = time.time()
        process.kill()
        process.wait()

    def go_home(self) -> None:
        for name, process in self.processes.items():
            # One that is only being started would die of the signal.
            self.mill.wait(partial(handles_sigterm, process), f"{name} has started")
            process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            assert process.wait(90) == 0, f"{name} ended with {process.returncode}"

    def shares(self) -> list[int]:
        """How many documents each sweeper has requeued, in runs that it came to the end of."""
        return [
            sum(
                result["requeued"]
                for line in (self.mill.folder / f"{name}.out").read_text().splitlines()
                if line.startswith("[") and line.endswith("]")
                for result in json.loads(line)
            )
            for name in ("sweeper-1", "sweeper-2")
        ]


@contextlib.contextmanager
def staffed(mill: Mill) -> Iterator[Staff]:
    staff = Staff(mill)
    staff.be_there()
    try:
        yield staff
    finally:
        for process in staff.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def hardship(
    staff: Staff, database: MongoDB | None, *, kills: int, every: float, database_kills: int
) -> int:
    """Kill at random until enough have died; say how often the database did."""
    dice = random.Random(kills)
    rounds = set(dice.sample(range(2, kills), database_kills)) if database else set()
    died = 0
    for number in range(kills):
        time.sleep(every)
        staff.kill(dice.choice(sorted(staff.processes)))
        if database is not None and number in rounds:
            database.kill()
            time.sleep(1)
            database.start()
            died += 1
        staff.be_there()
    return died


@dataclass(frozen=True)
class Handled:
    """One handling of a grain, by the handlers' own log."""

    grain: str
    generation: str
    sent: float
    pid: int
    begin: float
    end: float


def handlings(folder: Path, killed: dict[int, float]) -> list[Handled]:
    begun: dict[tuple[str, ...], float] = {}
    found: list[Handled] = []
    for line in (folder / "ground.log").read_text().splitlines():
        what, at, *key = line.split()
        if what == "begin":
            begun[tuple(key)] = float(at)
        else:
            found.append(_handled(key, begun.pop(tuple(key)), float(at)))
    # Whoever has no end was killed, and had it in hand until then.
    found += [_handled(key, at, killed[int(key[3])]) for key, at in begun.items()]
    return sorted(found, key=lambda each: each.begin)


def _handled(key: Sequence[str], begin: float, end: float) -> Handled:
    sent = datetime.fromisoformat(key[2]).timestamp()
    return Handled(key[0], key[1], sent, int(key[3]), begin, end)


def seed(mill: Mill, documents: int, stuck_ones: int) -> dict[str, list[str]]:
    """Fill the collections; give the names of those that are stuck."""
    now = datetime.now(UTC)
    names: dict[str, list[str]] = {}
    for collection in GRAINS:
        mine = stuck_ones // len(GRAINS)
        names[collection] = [f"{collection}-{number}" for number in range(mine)]
        others = documents // len(GRAINS) - mine
        done = [
            {"_id": f"{collection}-done-{n}", "status": "processed", "attemptCount": 1}
            for n in range(others)
        ]
        mill.fill(collection, done)
        mill.fill(collection, [stuck(name, now) for name in names[collection]])
    return names


def assert_all_is_well(
    mill: Mill, staff: Staff, names: dict[str, list[str]], documents: int
) -> str:
    """Check every promise; say what was seen."""
    everything = {grain: mill.everything(grain) for grain in GRAINS}
    assert sum(map(len, everything.values())) == documents
    status = {
        each["_id"]: PERMANENT if each.get("permanentFailure") else each["status"]
        for found in everything.values()
        for each in found
    }
    mine = {name for its in names.values() for name in its}
    ended = Counter(status[name] for name in mine)
    assert set(ended) <= {*ENDS, PERMANENT}, ended
    assert all(status[each] == "processed" for each in set(status) - mine)
    for name in mine:
        if kind_of(name) == "exhausted":
            assert status[name] == "failed_max_retries", name
        if kind_of(name) == "poison":  # if every attempt was killed, it is given up
            assert status[name] in {PERMANENT, "failed_max_retries"}, name
    assert ended[PERMANENT]

    flour = Counter(each["grain"] for each in mill.everything("flour"))
    assert set(flour) == {name for name in mine if status[name] == "processed"}
    assert set(flour.values()) == {1}
    (total,) = mill.everything("totals")
    assert total["flour"] == len(flour)

    by_grain: dict[str, list[Handled]] = {}
    for each in handlings(mill.folder, staff.killed):
        by_grain.setdefault(each.grain, []).append(each)
    for grain, its in by_grain.items():
        attempts = len({each.generation for each in its})
        assert attempts + attempts_before(grain) <= MAX_ATTEMPTS, (grain, its)
        for one in its:
            for other in its:
                if one.generation != other.generation:
                    # While `one` was alive in a worker's hands, nobody may have sent `other`.
                    assert not one.begin < other.sent < one.end, (one, other)
                    assert not one.begin < other.begin < one.end, (one, other)
    shares = staff.shares()
    assert min(shares) >= 0.2 * sum(shares), shares
    return (
        f"{documents} documents, {len(mine)} stuck: {ended['processed']} processed once, "
        f"{ended['failed_max_retries']} given up, {ended[PERMANENT]} failed permanently, "
        f"shares of the sweepers {shares}, "
        f"{sum(map(len, by_grain.values()))} handlings of {len(by_grain)} documents, "
        f"{len(staff.killed)} SIGKILLs"
    )


def wait_for_the_end(mill: Mill, staff: Staff, seconds: float) -> None:
    def is_over() -> bool:
        time.sleep(1)  # whoever asks all the time slows down those who are asked about
        staff.be_there()
        return not any(mill.unfinished(grain) for grain in GRAINS)

    mill.wait(is_over, "every document has come to an end", seconds=seconds)


def prepare(mill: Mill) -> None:
    (mill.folder / "failed-once").mkdir()
    (mill.folder / "ground.log").touch()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
