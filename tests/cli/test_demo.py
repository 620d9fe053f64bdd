"""`headway demo ledger`, and the figures it ends with."""

import contextlib
import json
import re
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headway.apps.cli import figures
from headway.systems.ledger.load.run import Report
from headway.testing.servers.loopback import free_port
from headway.testing.servers.process import Process, wait_until
from tests.cli.test_command import COMMAND, headway

SOON = timedelta(seconds=20)


def test_the_demo_proves_the_books_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = headway(
        "demo", "ledger", "--json", folder=tmp_path, environment={"TMPDIR": str(tmp_path)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert shown["shortcomings"] == []
    runs = shown["runs"]
    assert [(run["sent"], run["retry"]) for run in runs] == [
        (20, "off"),
        (20, "on"),
        (400, "off"),
        (400, "on"),
    ]
    assert all(run["exact"] for run in runs)
    assert [run["success_rate"] for run in runs if run["retry"] == "on"] == [1.0, 1.0]
    off = [run for run in runs if run["retry"] == "off"]
    assert all(run["conflicts"] == run["sent"] - run["stored"] for run in off)
    assert list(tmp_path.iterdir()) == []


def test_a_demo_that_cannot_start_says_why(tmp_path: Path) -> None:
    url = f"postgresql://u:s3cret@127.0.0.1:{free_port()}/x"
    done = headway("demo", "ledger", "--database", url, folder=tmp_path)
    assert done.returncode == 2
    assert "did not start" in done.stderr
    assert "is the server running there" in done.stderr
    assert "u:***@127.0.0.1" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def a_report(**changes: object) -> Report:
    fields: dict[str, object] = {
        "sent": 400,
        "stored": 399,
        "stored_at_once": 398,
        "statuses": {201: 399, 500: 1},
        "conflicts": 1234,
        "retries": 1233,
        "p50_ms": 123.4,
        "p99_ms": 12345.6,
        "seconds": 1.0,
        "faults": (),
    }
    return Report(**fields | changes)  # type: ignore[arg-type]


def test_the_table_leaves_out_columns_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    figures.show(["load", "retry"], [(("4 types x 5", "off"), a_report())])
    said = capsys.readouterr().out
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 60
    assert said.split()[:7] == ["load", "retry", "sent", "stored", "conflicts", "success", "exact"]
    assert re.search(r"4 types x 5 +off +400 +399 +1234 +99\.8% +yes", said)


def test_without_a_terminal_each_run_is_a_line_and_the_end_says_what_is_next(
    tmp_path: Path,
) -> None:
    words = ("demo", "ledger", "--events", "40")
    done = headway(*words, folder=tmp_path, environment={"COLUMNS": "60"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.splitlines() == [
        "starting servers",
        "4 types x 5, retry off",
        "4 types x 5, retry on",
        "20 clients, retry off",
        "20 clients, retry on",
    ]
    assert max(map(len, done.stdout.splitlines())) <= 60
    assert "headway ledger serve" in done.stdout
    assert "docs/how-to/run-the-ledger.md" in done.stdout


@contextlib.contextmanager
def a_running_demo(folder: Path) -> Iterator[Process]:
    """Start the demo, and give it once both of its servers run."""
    process = Process(
        # In the background of a shell Ctrl-C is ignored, and so it would be by the demo.
        ["env", "--default-signal=INT", *COMMAND, "demo", "ledger"],
        log=folder / "demo.log",
        environment={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
    )
    try:
        assert wait_until(lambda: len(process.tree()) == 3, SOON)
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_demo_that_is_stopped_leaves_nothing_behind(
    tmp_path: Path, order: signal.Signals
) -> None:
    with a_running_demo(tmp_path) as demo:
        assert demo.end(order, SOON)  # looks after its servers too
    assert [path.name for path in tmp_path.iterdir()] == ["demo.log"]


def test_a_demo_that_is_killed_leaves_no_server_behind(tmp_path: Path) -> None:
    with a_running_demo(tmp_path) as demo:
        assert demo.end(signal.SIGKILL, SOON)


def test_ctrl_c_is_answered_by_one_word(tmp_path: Path) -> None:
    log = tmp_path / "demo.log"
    with a_running_demo(tmp_path) as demo:
        assert wait_until(lambda: "retry" in log.read_text(), SOON)
        assert demo.end(signal.SIGINT, SOON)
    assert log.read_text().splitlines()[-1] == "stopped"
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_table_fits_and_holds_no_control_codes(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    bad = a_report(faults=("a", "b"))
    figures.show(["load", "retry"], [(("4 types x 5", "off"), a_report()), (("big", "on"), bad)])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= int(columns)
    assert re.search(r"4 types x 5 +off +400 +399 +1234 +1233 +99\.8% +123 +12346 +yes", said)
    assert re.search(r"big +on +400 .* NO *\n", said)
    assert said.endswith("big, on: a\nbig, on: b\n")
