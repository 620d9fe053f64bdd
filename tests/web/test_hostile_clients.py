"""Clients that ask for too much, send too slowly, leave early, or have no business here."""

import asyncio
import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.testclient import TestClient

from headway.adapters.reporting.http import HttpReporter
from headway.adapters.sqlite.error_book import SqliteErrorBook
from headway.apps.web.application import application
from headway.assembly import http_server
from headway.core.error_report import ErrorReport
from headway.testing.clock import VirtualClock

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
REPORT = {"service": "chunking", "level": "error", "message": "it broke"}
JSON = {"Content-Type": "application/json"}
TOKEN = "correct-horse-battery-staple"
MEGABYTE = 1024 * 1024


class Ui:
    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address
        self.port = int(address.rpartition(":")[2])
        self.said = ""


@contextmanager
def a_ui(errors: Path, **environment: str) -> Iterator[Ui]:
    """Run `headway ui` in a process of its own for the block; `said` is what it logged then."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headway.apps.cli", "ui", "--port", "0"],
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


def peak(process: int) -> int:
    """Give the most memory that a process ever had, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_long_lists_asked_for_at_once_take_little_memory(tmp_path: Path) -> None:
    book = SqliteErrorBook(tmp_path / "errors.db")
    report = ErrorReport(
        service="s", level="error", message="m" * 10_000, stack_trace="t" * 100_000,
        context={"c": list(range(8_000))},
    )  # fmt: skip
    for number in range(500):
        book.add(report, f"e-{number}", START)
    book.close()
    with a_ui(tmp_path / "errors.db") as ui:
        httpx.get(f"{ui.address}/ui")
        before = peak(ui.process.pid)

        async def ask_at_once() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=ui.address, timeout=120) as http:
                asked = [http.get("/api/errors?limit=1000") for _ in range(8)]
                return await asyncio.gather(*asked)

        answers = asyncio.run(ask_at_once())
        assert peak(ui.process.pid) - before < 60 * MEGABYTE
    for answer in answers:
        assert len(answer.content) < 10_000_000
        listed = answer.json()
        assert (listed["total"], listed["limit"], listed["offset"]) == (500, 1000, 0)
        assert [each["error_id"] for each in listed["errors"]] == [
            f"e-{number}" for number in reversed(range(500))
        ]


@contextmanager
def served(tmp_path: Path, *, body_within: timedelta) -> Iterator[int]:
    """Serve the application in a thread, and give its port."""
    book = SqliteErrorBook(tmp_path / "errors.db")
    made = application(book, VirtualClock(START), hosts=(), body_within=body_within)
    config = uvicorn.Config(made, log_config=None, http=http_server.TimelyProtocol)
    server = uvicorn.Server(config)
    listener = http_server.listen("127.0.0.1", 0, named="test")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


HALF = (
    b"POST /api/errors HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)


def until_closed(connection: socket.socket) -> bytes:
    connection.settimeout(20)
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


def test_a_half_sent_body_is_answered_and_its_connection_closed(tmp_path: Path) -> None:
    with (
        served(tmp_path, body_within=timedelta(seconds=0.5)) as port,
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        connection.sendall(HALF)
        said = until_closed(connection)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"did not come within 0.5 s" in said


def test_a_connection_without_a_request_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server.TimelyProtocol, "request_within", timedelta(seconds=0.5))
    with (
        served(tmp_path, body_within=timedelta(seconds=60)) as port,
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: local")
        assert until_closed(connection) == b""


def test_no_more_bodies_are_taken_than_memory_is_meant_for(tmp_path: Path) -> None:
    with a_ui(tmp_path / "errors.db") as ui, ExitStack() as stack:
        for _ in range(101):  # one after another: each stays open, and the last is one too many
            connection = socket.create_connection(("127.0.0.1", ui.port))
            stack.enter_context(closing(connection))
            connection.sendall(HALF)
        assert until_closed(connection).startswith(b"HTTP/1.1 503 ")


def test_a_client_that_leaves_is_not_logged(tmp_path: Path) -> None:
    with a_ui(tmp_path / "errors.db") as ui:
        for _ in range(3):
            with closing(socket.create_connection(("127.0.0.1", ui.port))) as connection:
                connection.sendall(HALF)
        assert httpx.get(ui.address).json() == {"status": "ok", "total_errors": 0}
    assert "Traceback" not in ui.said
    assert "ERROR" not in ui.said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "machine.example"])  # noqa: S104
def test_it_does_not_listen_beyond_this_machine_without_a_token(tmp_path: Path, host: str) -> None:
    for token in ("", "short"):
        said = refused(tmp_path, host, token)
        assert "HEADWAY_UI_TOKEN" in said
        assert "openssl rand -hex 16" in said
    # An address that no machine has: with a token it is tried.
    assert "cannot be listened on" in refused(tmp_path, "192.0.2.1", TOKEN)


def refused(folder: Path, host: str, token: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headway.apps.cli", "ui", "--port", "0", "--host", host],
        cwd=folder,
        env={**os.environ, "HEADWAY_UI_TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_with_a_token_each_request_is_asked_for_it(tmp_path: Path) -> None:
    basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    wrong = base64.b64encode(f"{TOKEN}:".encode()).decode()
    with a_ui(tmp_path / "errors.db", HEADWAY_UI_TOKEN=TOKEN) as ui:
        for given in (
            "",
            "Bearer",
            f"Bearer {TOKEN}x",
            f"Basic {wrong}",
            "Basic %",
            f"Bea {TOKEN}",
        ):
            for path in ("/", "/ui", "/api/errors", "/nowhere"):
                answer = httpx.get(f"{ui.address}{path}", headers={"Authorization": given})
                assert answer.status_code == 401
                assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        assert httpx.post(f"{ui.address}/api/errors", json=REPORT).status_code == 401
        for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}"):
            answer = httpx.get(f"{ui.address}/ui", headers={"Authorization": given})
            assert answer.status_code == 200
        url = f"{ui.address}/api/errors"
        without, having = (
            HttpReporter(VirtualClock(), url),
            HttpReporter(VirtualClock(), url, token=TOKEN),
        )
        for reporter in (without, having):
            reporter.report(ValueError("no"), {"service": "shop"})
        assert (without.unsent, having.unsent) == (1, 0)
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(ui.address, headers=bearer).json()["total_errors"] == 1
        # A name that this machine is not known by.
        answer = httpx.get(ui.address, headers={**bearer, "Host": "errors:8081"})
        assert (answer.status_code, "HEADWAY_UI_HOSTS" in answer.text) == (421, True)
    assert TOKEN not in ui.said
    with a_ui(tmp_path / "errors.db", HEADWAY_UI_HOSTS="page, errors") as ui:
        assert httpx.get(ui.address, headers={"Host": "errors:8081"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://localhost:8081", "Host": "localhost:8081"}, 201),
        ({"Host": "127.0.0.1:8081"}, 201),
    ],
    ids=str,
)
def test_a_page_of_another_site_cannot_report(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    book = SqliteErrorBook(tmp_path / "errors.db")
    with TestClient(application(book, VirtualClock(START), hosts=("testserver",))) as client:
        answer = client.post("/api/errors", content=json.dumps(REPORT), headers={**JSON, **headers})
        assert answer.status_code == status
        assert client.get("/api/stats").json()["total_errors"] == (status == 201)
