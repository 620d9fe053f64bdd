"""`headway ui`: services that report to it, and clients that ask for too much or leave early."""

import asyncio
import base64
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from headway.assembly import http_server
from headway.metrics import error_reporter
from tests.cli.shops import typed
from tests.web.pages import REPORT, Ui, a_ui, keep, page

TOKEN = "correct-horse-battery-staple"
MEGABYTE = 1024 * 1024


@pytest.fixture
def errors(tmp_path: Path) -> Path:
    return tmp_path / "errors.db"


@pytest.fixture
def ui(errors: Path) -> Iterator[Ui]:
    with a_ui(errors) as ui:
        yield ui


def report(monkeypatch: pytest.MonkeyPatch, url: str, **settings: str) -> None:
    """Report an error as a service does that has these settings."""
    given = {"ERROR_REPORTER_TYPE": "http", "ERROR_REPORTER_URL": url, **settings}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    reporter = error_reporter()
    try:
        raise KeyError("discount")  # noqa: TRY301
    except KeyError as error:
        context = {"service": "shop", "retry_count": 2, "password": "s3cret"}
        reporter.report(error, context)
    flush = getattr(reporter, "flush", None)
    assert flush is not None
    flush(timedelta(seconds=20))


def test_what_a_service_reports_is_on_the_page(ui: Ui, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = "amqp://mail:s3cret@broker/mail"
    report(monkeypatch, f"{ui.address}/api/errors", HEADWAY_BUS=bus)
    (error,) = httpx.get(f"{ui.address}/api/errors").json()["errors"]
    assert (error["service"], error["level"]) == ("shop", "error")
    assert error["error_type"] == "KeyError"
    assert 'raise KeyError("discount")' in error["stack_trace"]
    assert error["context"]["retry_count"] == 2
    assert "s3cret" not in str(error)
    assert error["context"]["origin"] == {
        "host": socket.gethostname(),
        "folder": str(Path.cwd()),
        "bus": "amqp://mail:***@broker/mail",
        "pid": os.getpid(),
    }
    assert "discount" in httpx.get(f"{ui.address}/ui").text


def test_what_cannot_be_used_is_one_line(ui: Ui, tmp_path: Path) -> None:
    for words, named in (
        (("--port", str(ui.port)), f"--port {ui.port}"),
        (("--errors", "nowhere/errors.db"), "HEADWAY_ERRORS"),
    ):
        done = typed("ui", *words, folder=tmp_path)
        assert (done.returncode, named in done.stderr) == (2, True), done


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "machine.example"])  # noqa: S104
def test_it_does_not_listen_beyond_this_machine_without_a_token(tmp_path: Path, host: str) -> None:
    def refused(host: str, token: str) -> str:
        given = {"HEADWAY_UI_TOKEN": token}
        words = ("ui", "--port", "0", "--host", host)
        done = typed(*words, folder=tmp_path, environment=given)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        return done.stderr

    for token in ("", "short"):
        assert "HEADWAY_UI_TOKEN" in refused(host, token)
    # An address that no machine has: with a token it is tried.
    assert "HEADWAY_UI_TOKEN" not in refused("192.0.2.1", TOKEN)


def test_with_a_token_each_request_is_asked_for_it(
    errors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    wrong = base64.b64encode(f"{TOKEN}:".encode()).decode()
    refused = ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {wrong}", "Basic %", f"Bea {TOKEN}")
    with a_ui(errors, HEADWAY_UI_TOKEN=TOKEN) as ui, httpx.Client(base_url=ui.address) as http:
        for given in refused:
            for path in ("/", "/ui", "/api/errors", "/nowhere"):
                answer = http.get(path, headers={"Authorization": given})
                assert answer.status_code == 401
                assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        assert http.post("/api/errors", json=REPORT).status_code == 401
        for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}"):
            assert http.get("/ui", headers={"Authorization": given}).status_code == 200
        for token in ("", TOKEN):
            report(monkeypatch, f"{ui.address}/api/errors", HEADWAY_UI_TOKEN=token)
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert http.get("/", headers=bearer).json()["total_errors"] == 1
        # A name that this machine is not known by.
        answer = http.get("/", headers={**bearer, "Host": "errors:8081"})
        assert (answer.status_code, "HEADWAY_UI_HOSTS" in answer.text) == (421, True)
    assert TOKEN not in ui.said
    with a_ui(errors, HEADWAY_UI_TOKEN="", HEADWAY_UI_HOSTS="page, errors") as ui:
        assert httpx.get(ui.address, headers={"Host": "errors:8081"}).status_code == 200


def test_a_page_that_does_not_answer_is_a_warning_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    report(monkeypatch, "http://127.0.0.1:9/api/errors")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "headway ui" in record.getMessage()


def peak(process: int) -> int:
    """Give the most memory that a process ever had, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_long_lists_asked_for_at_once_take_little_memory(errors: Path) -> None:
    long = {"message": "m" * 10_000, "stack_trace": "t" * 100_000}
    keep(errors, 500, **long, context={"c": list(range(8_000))})
    with a_ui(errors) as ui:
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
        ids = [each["error_id"] for each in answer.json()["errors"]]
        assert ids == [f"e-{number}" for number in reversed(range(500))]


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


@contextmanager
def served(errors: Path, **limits: Any) -> Iterator[int]:
    """Serve the page in a thread as the command does, and give its port."""
    made = page(errors, **limits).app
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


def test_a_connection_without_a_request_is_closed(
    errors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server.TimelyProtocol, "request_within", timedelta(seconds=0.5))
    with (
        served(errors) as port,
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: local")
        assert until_closed(connection) == b""


def test_a_half_sent_body_is_answered_and_its_connection_closed(errors: Path) -> None:
    with (
        served(errors, body_within=timedelta(seconds=0.5)) as port,
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        connection.sendall(HALF)
        assert until_closed(connection).startswith(b"HTTP/1.1 408 ")


def test_no_more_bodies_are_taken_than_memory_is_meant_for(ui: Ui) -> None:
    with ExitStack() as stack:
        for _ in range(101):  # one after another: each stays open, and the last is one too many
            connection = socket.create_connection(("127.0.0.1", ui.port))
            stack.enter_context(closing(connection))
            connection.sendall(HALF)
        assert until_closed(connection).startswith(b"HTTP/1.1 503 ")


def test_a_client_that_leaves_is_not_logged(errors: Path) -> None:
    with a_ui(errors) as ui:
        for _ in range(3):
            with closing(socket.create_connection(("127.0.0.1", ui.port))) as connection:
                connection.sendall(HALF)
        assert httpx.get(ui.address).json() == {"status": "ok", "total_errors": 0}
    assert "Traceback" not in ui.said
    assert "ERROR" not in ui.said
