"""`headway demo ledger`, and the figures it ends with."""

import json
import re
from pathlib import Path

import pytest

from headway.apps.cli import figures
from headway.systems.ledger.load.run import Report
from headway.testing.servers.loopback import free_port
from tests.cli.test_command import headway


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
    assert done.returncode == 1
    assert "did not start" in done.stderr
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
