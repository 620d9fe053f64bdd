"""The tools of developers: what they count, and what they refuse."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.testing.trial import Trial

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"


def run(tool: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(TOOLS / tool), *words]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def traced(*words: str) -> Any:
    ended = run("trace.py", *words, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_files_of_an_event_are_traced_in_the_order_of_their_execution() -> None:
    found = traced("event", "memory")
    files = [row["file"] for row in found["executed"]]
    assert all((ROOT / "src" / "headway" / file).is_file() for file in files)
    assert found["files"] == len(set(files)) == len(files)
    assert found["calls"] == sum(row["calls"] for row in found["executed"])
    # It is published by two calls in one file, which the worker has no need of.
    assert found["executed"][0] == {"file": of(Trial), "calls": 2, "entries": 1}


def of(kind: type) -> str:
    """Name the file of a class as the tracer does."""
    return str(Path(inspect.getfile(kind)).relative_to(ROOT / "src" / "headway"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one inner import and two banned words, all of them recorded."""
    for folder in ("tests", "src/headway/systems", "docs", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests" / "test_one.py").write_text("def test():\n    import headway.core.event\n")
    (tmp_path / "src" / "headway" / "one.py").write_text('"""Nobody is met_nobody."""\n')
    (tmp_path / "docs" / "one.md").write_text("An event is put\noff.\n")
    (tmp_path / "README.md").write_text("Headway\n")
    record = {
        "inner-imports-in-tests": 1,
        "inner-imports-in-systems": 0,
        "banned-words-in-src": 1,
        "banned-words-in-docs": 1,
        "banned-words-in-readme": 0,
    }
    (tmp_path / "tools" / "ratchet.json").write_text(json.dumps(record))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "line", "figure"),
    [
        ("tests/test_two.py", "from headway.runtime import worker", "inner-imports-in-tests"),
        ("src/headway/systems/two.py", "import headway.apps.cli", "inner-imports-in-systems"),
        ("src/headway/two.py", '"it is not "\n"accepted"', "banned-words-in-src"),
        ("docs/two.md", "Whoever publishes", "banned-words-in-docs"),
        ("README.md", "spoilt", "banned-words-in-readme"),
    ],
)
def test_a_figure_that_rises_is_refused(checkout: Path, file: str, line: str, figure: str) -> None:
    (checkout / file).write_text(f"{line}\n")
    ended = run("ratchet.py", "--root", str(checkout), "--record")
    assert ended.returncode == 1
    assert ended.stdout.startswith(f"{figure} rose from ")
    assert run("ratchet.py", "--root", str(checkout)).returncode == 1  # nothing higher is recorded
    assert f"{file}:1\n" in run("ratchet.py", "--root", str(checkout), "--list", figure).stdout


def test_a_figure_that_falls_is_recorded(checkout: Path) -> None:
    assert run("ratchet.py", "--root", str(checkout)).stdout == ""
    (checkout / "tests" / "test_one.py").write_text("import headway\n")
    assert run("ratchet.py", "--root", str(checkout), "--record").returncode == 0
    record = json.loads((checkout / "tools" / "ratchet.json").read_text())
    assert record["inner-imports-in-tests"] == 0


PLANTED = """
[subtracts]
harm = "sums are wrong"
file = "sums.py"
old = "a + b"
new = "a - b"
tests = ["tests/test_sums.py"]

[adds-in-any-order]
harm = "none"
file = "sums.py"
old = "a + b"
new = "b + a"
tests = ["tests/test_sums.py"]
"""
TEST_SUMS = """
import subprocess
import sys


def test_without_an_environment() -> None:
    program = "from headway.sums import add; assert add(1, 2) == 3"
    assert subprocess.run([sys.executable, "-c", program], env={}).returncode == 0
"""


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """A checkout with one function, its test, and two changes of which one is a bug."""
    for folder in ("tests", "src/headway", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src" / "headway" / "__init__.py").touch()
    (tmp_path / "src" / "headway" / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "tests" / "test_sums.py").write_text(TEST_SUMS)
    (tmp_path / "tools" / "planted.toml").write_text(PLANTED)
    return tmp_path


def test_a_planted_bug_that_no_test_finds_is_named(sums: Path) -> None:
    ended = run("planted.py", "--root", str(sums))
    found, survived, summary = ended.stdout.splitlines()[1:]
    assert found.startswith("subtracts ")
    assert found.endswith(" tests/test_sums.py::test_without_an_environment")
    assert survived.startswith("adds-in-any-order ")
    assert survived.endswith(" SURVIVED: none")
    assert (summary, ended.returncode) == ("1 of 2 bugs are found.", 1)
    assert "planted 2/2: adds-in-any-order" in ended.stderr
    (sums / "src" / "headway" / "sums.py").write_text("def add(*all):\n    return sum(all)\n")
    gone = run("planted.py", "subtracts", "--root", str(sums))
    assert (gone.returncode, gone.stdout, "subtracts" in gone.stderr) == (2, "", True)
