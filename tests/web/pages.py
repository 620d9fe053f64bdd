"""The page of errors, in this process or in one of its own."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from starlette.testclient import TestClient

from headway.adapters.sqlite.error_book import SqliteErrorBook
from headway.apps.web.application import application
from headway.core.error_report import ErrorReport
from headway.testing.clock import VirtualClock
from tests.cli.shops import COMMAND

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
REPORT = {"service": "chunking", "level": "error", "message": "it broke"}


def page(
    file: Path, clock: VirtualClock | None = None, *, most: int = 10_000, **limits: Any
) -> TestClient:
    book, time = SqliteErrorBook(file, most=most), clock or VirtualClock(START)
    return TestClient(application(book, time, hosts=["testserver"], **limits))


def post(client: TestClient, **fields: Any) -> httpx.Response:
    return client.post("/api/errors", json={**REPORT, **fields})  # type: ignore[return-value]


def keep(file: Path, number: int, **fields: Any) -> None:
    """Write reports into the file, of any size."""
    book = SqliteErrorBook(file)
    report = ErrorReport(service="s", level="error", **fields)
    for each in range(number):
        book.add(report, f"e-{each}", START)
    book.close()


class Ui:
    """`headway ui` in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.address = address
        self.port = int(address.rpartition(":")[2])
        self.said = ""


@contextmanager
def a_ui(errors: Path, **environment: str) -> Iterator[Ui]:
    """Run `headway ui` for the block; `said` is what it logged then."""
    process = subprocess.Popen(
        [*COMMAND, "ui", "--port", "0"],
        cwd=errors.parent,
        env={**os.environ, "HEADWAY_ERRORS": str(errors), **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        ui = Ui(process, found[0])
        yield ui
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=20)
    ui.said = line + rest
    assert process.returncode == 0
