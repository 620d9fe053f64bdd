"""Real worker processes on a real file, as an operator starts them."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway.clock import CHANCE, CLOCK
from headway.testing.engines import Publisher, open_engine
from headway.testing.servers.process import wait_until

HEADWAY = (sys.executable, "-m", "headway.apps.cli")
MODULES = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class Site:
    """A folder with a database in it, and services that run on it."""

    folder: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.database}"

    @property
    def database(self) -> Path:
        return self.folder / "headway.db"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(MODULES),
            "HEADWAY_BUS": self.url,
            "SITE": str(self.folder),
        }

    @property
    def launcher(self) -> tuple[str, ...]:
        """What starts the command that runs services, in front of it."""
        return ()

    def headway(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*HEADWAY, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run services while the block lasts; they are told to stop at its end, and must."""
        with self.started(*arguments) as process:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, self.log()[-3000:]

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start services; what the block has not stopped is killed at its end."""
        with (self.folder / "run.log").open("ab") as log:
            process = subprocess.Popen(
                [*self.launcher, *HEADWAY, "run", *arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def log(self) -> str:
        return (self.folder / "run.log").read_text()

    def query(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with contextlib.closing(sqlite3.connect(self.database, timeout=30)) as connection:
            found = connection.execute(statement, values).fetchall()
            connection.commit()
            return found

    def workers(self) -> list[int]:
        """The process ids of the workers that are at it."""
        try:
            return [int(str(pid)) for (pid,) in self.query("select pid from headway_workers")]
        except sqlite3.OperationalError:  # not made yet
            return []

    def left(self) -> int:
        """How many events have not ended."""
        ((count,),) = self.query("select count(*) from headway_items")
        return int(str(count))

    def ended(self) -> int:
        """How many events have ended, one way or the other."""
        try:
            ((count,),) = self.query(
                "select count(*) from headway_done where ended in ('done', 'failed', 'superseded')"
            )
        except sqlite3.OperationalError:  # not made yet
            return 0
        return int(str(count))

    def letters(self, queue: str) -> list[dict[str, Any]]:
        exported = self.headway("failed", "export", queue, "--output", "-")
        assert exported.returncode == 0, exported.stdout + exported.stderr
        return [json.loads(line) for line in exported.stdout.splitlines()]

    def documents(self, collection: str) -> list[dict[str, object]]:
        rows = self.query("select body from headway_documents where collection = ?", collection)
        return [json.loads(str(body)) for (body,) in rows]

    async def publish(self, event_type: str, events: Sequence[dict[str, object]]) -> int:
        engine = open_engine(self.url)
        try:
            publisher = Publisher(engine.bus, CLOCK, CHANCE)
            taken = 0
            for start in range(0, len(events), 1000):
                batch = [(event_type, data) for data in events[start : start + 1000]]
                taken += await publisher.publish_all(batch)
            return taken
        finally:
            await engine.bus.close()

    def wait_for_workers(self, number: int) -> None:
        self.wait(lambda: len(self.workers()) >= number, f"{number} workers have started")

    def wait(self, fact: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Wait until something is true, or show what the workers said instead."""
        if not wait_until(fact, timedelta(seconds=seconds)):
            pytest.fail(f"{what}: not within {seconds} s; the log ends with\n{self.log()[-3000:]}")
