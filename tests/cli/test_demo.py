"""`headway demo ledger` and `headway demo uptime`, and the figures that they end with."""

import contextlib
import json
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from headway.testing.servers.loopback import free_port
from headway.testing.servers.process import Process, wait_until
from tests.cli.shops import COMMAND, WITH_CTRL_C
from tests.cli.test_command import headway

SOON = timedelta(seconds=20)


@contextlib.contextmanager
def started(folder: Path, *words: str) -> Iterator[tuple[Process, Path]]:
    """Start a demo, and give it with its log."""
    log = folder / "demo.log"
    process = Process(
        [*WITH_CTRL_C, *COMMAND, "demo", *words],
        log=log,
        environment={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
    )
    try:
        yield process, log
    finally:
        process.kill()


def test_the_ledger_demo_proves_the_books_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = headway(
        *("demo", "ledger", "--json", "--events", "100"),
        folder=tmp_path,
        environment={"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert shown["shortcomings"] == []
    runs = shown["runs"]
    sent = [(run["sent"], run["retry"]) for run in runs]
    assert sent == [(20, "off"), (20, "on"), (100, "off"), (100, "on")]
    assert all(run["exact"] for run in runs)
    assert [run["success_rate"] for run in runs if run["retry"] == "on"] == [1.0, 1.0]
    off = [run for run in runs if run["retry"] == "off"]
    assert all(run["conflicts"] == run["sent"] - run["stored"] for run in off)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_demo_that_cannot_start_names_its_database(tmp_path: Path) -> None:
    url = f"postgresql://u:s3cret@127.0.0.1:{free_port()}/x"
    done = headway("demo", "ledger", "--database", url, folder=tmp_path)
    assert done.returncode == 2
    assert "u:***@127.0.0.1" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGKILL])
def test_a_ledger_demo_that_is_stopped_leaves_no_server_behind(
    tmp_path: Path, order: signal.Signals
) -> None:
    with started(tmp_path, "ledger") as (demo, log):
        assert wait_until(lambda: len(demo.tree()) == 3 and "retry" in log.read_text(), SOON)
        assert demo.end(order, SOON)  # looks after its servers too
    if order is not signal.SIGKILL:
        assert [path.name for path in tmp_path.iterdir()] == ["demo.log"]
        assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGTERM])
def test_an_uptime_demo_that_is_stopped_leaves_nothing_behind(
    tmp_path: Path, order: signal.Signals
) -> None:
    with started(tmp_path, "uptime", "--picture", "-") as (demo, log):
        assert wait_until(lambda: "processing" in log.read_text(), SOON)
        assert demo.end(order, SOON)
    assert [path.name for path in tmp_path.iterdir()] == ["demo.log"]
    assert "Traceback" not in log.read_text()


def test_the_uptime_demo_meets_every_criterion_and_leaves_only_its_picture(tmp_path: Path) -> None:
    words = ("demo", "uptime", "--subscriptions", "80", "--seed", "4", "--json")
    done = headway(*words, folder=tmp_path, environment={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    plain, ordered = shown["runs"]
    assert shown["met"]
    assert [each["met"] for each in shown["criteria"]] == [True] * 8
    assert plain["false_misses"] > 100
    assert (ordered["false_misses"], ordered["true_misses"]) == (0, 4)
    assert ordered["applied"] == ordered["came"] == 3996
    assert [path.name for path in tmp_path.iterdir()] == ["uptime-demo.svg"]
    ET.parse(tmp_path / "uptime-demo.svg")  # noqa: S314 (our own)


def test_an_unmet_criterion_is_an_exit_code(tmp_path: Path) -> None:
    words = ("demo", "uptime", "--subscriptions", "10", "--backlog", "1", "--picture", "-")
    done = headway(*words, folder=tmp_path, environment={"COLUMNS": "70"})
    assert done.returncode == 1, done.stdout + done.stderr  # hardly any disorder, one true miss
    assert max(map(len, done.stdout.splitlines()[:-6])) <= 70
    assert "NOT MET" in done.stdout
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []
    done = headway("demo", "uptime", "--picture", "nowhere/a.svg", folder=tmp_path)
    assert (done.returncode, "--picture 'nowhere/a.svg'" in done.stderr) == (2, True)
