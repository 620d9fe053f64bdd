"""What services send to the page of errors: nothing, unless they are asked to."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = """
import sys

opened = []
sys.addaudithook(lambda name, args: opened.append(args[1]) if name == "socket.connect" else None)

import asyncio
import os
import signal
from headway import RetryPolicy, Service, connect, run_services
from headway.retrying import Stepped
from headway.settings import WorkerSettings
from datetime import timedelta

once = Stepped(steps=(timedelta(milliseconds=1),))
shop = Service("shop", transient=RetryPolicy(max_attempts=2, backoff=once))
tried = set()


@shop.on("OrderPlaced")
async def reserve(event, work):
    order = event.data["order"]
    if order == "last":
        os.kill(os.getpid(), signal.SIGTERM)
    elif order == "poison":
        raise ValueError("no such order")
    elif order not in tried:
        tried.add(order)
        raise RuntimeError("try again")


async def main():
    async with connect() as headway:
        await headway.declare(shop)
        for order in ("poison", "late"):
            await headway.publish("OrderPlaced", {"order": order}, event_id=order)
    running = asyncio.create_task(run_services(shop, settings=WorkerSettings()))
    await asyncio.sleep(2)
    async with connect() as headway:
        await headway.publish("OrderPlaced", {"order": "last"})
    await running


asyncio.run(main())
print(opened)
"""


def run(folder: Path, **settings: str) -> str:
    (folder / "program.py").write_text(_PROGRAM)
    environment = {name: it for name, it in os.environ.items() if not name.startswith("ERROR_")}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**environment, **settings},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert "no such order" not in done.stdout
    return done.stdout.strip()


@contextmanager
def listening(port: int = 0, status: int = 201) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/api/errors", got
        finally:
            server.shutdown()
            thread.join()


def test_by_default_nothing_is_sent_anywhere(tmp_path: Path) -> None:
    try:
        with listening(8081) as (_, got):
            assert run(tmp_path) == "[]"
            assert got == []
    except OSError:  # another program has this port: that no socket was connected is enough
        assert run(tmp_path) == "[]"


def test_recovered_and_final_failures_differ_where_reports_are_asked_for(tmp_path: Path) -> None:
    with listening() as (url, got):
        run(tmp_path, ERROR_REPORTER_URL=url)
    seen = {
        (each["context"]["idempotency_key"], each["outcome"], each["level"], each["error_type"])
        for each in got
    }
    assert seen == {
        ("shop-poison", "final", "error", "ValueError"),
        ("shop-late", "retrying", "warning", "RuntimeError"),
        ("shop-late", "recovered", "info", "RecoveredError"),
    }
    (recovered,) = (each for each in got if each["outcome"] == "recovered")
    assert "RuntimeError: try again" in recovered["message"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_page_that_wants_a_token_is_a_warning_with_the_cure(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    from headway.adapters.reporting.http import HttpReporter  # noqa: PLC0415
    from headway.testing.clock import VirtualClock  # noqa: PLC0415

    with listening(status=status) as (url, _):
        HttpReporter(VirtualClock(), url).report(ValueError("no"), {})
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"HTTP Error {status}" in record.getMessage()
    assert "Set HEADWAY_UI_TOKEN" in record.getMessage()
