"""`headway ui`, and a service that reports to it."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from headway.metrics import error_reporter
from headway.runtime.reporting import Reporting


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "headway.apps.cli", "ui", "--port", "0"]
    environment = {**os.environ, "HEADWAY_ERRORS": str(tmp_path / "errors.db")}
    server = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        yield found[0]
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=20)
    assert server.returncode == 0


def broken_shop() -> None:
    raise KeyError("discount")


def test_what_a_service_reports_is_on_the_page(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_BUS", "amqp://mail:s3cret@broker/mail")
    monkeypatch.setenv("ERROR_REPORTER_TYPE", "http")
    monkeypatch.setenv("ERROR_REPORTER_URL", f"{address}/api/errors")
    reporter = error_reporter()
    assert isinstance(reporter, Reporting)
    with pytest.raises(KeyError) as broken:
        broken_shop()
    context = {"service": "shop", "retry_count": 2, "password": "s3cret"}
    reporter.report(broken.value, context)
    assert reporter.flush(timedelta(seconds=20))
    (error,) = httpx.get(f"{address}/api/errors").json()["errors"]
    assert (error["service"], error["level"]) == ("shop", "error")
    assert error["error_type"] == "KeyError"
    assert 'raise KeyError("discount")' in error["stack_trace"]
    assert error["context"]["retry_count"] == 2
    assert error["context"]["password"] != "s3cret"
    assert error["context"]["origin"] == {
        "host": socket.gethostname(),
        "folder": str(Path.cwd()),
        "bus": "amqp://mail:***@broker/mail",
        "pid": os.getpid(),
    }
    assert "discount" in httpx.get(f"{address}/ui").text


def test_a_port_that_is_taken_is_said_in_one_line(address: str, tmp_path: Path) -> None:
    port = address.rpartition(":")[2]
    command = [sys.executable, "-m", "headway.apps.cli", "ui", "--port", port]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"--port {port}" in done.stderr
    assert "Traceback" not in done.stderr
