"""Plant known bugs, one at a time, and show that a test finds each of them.

Usage: `python tools/planted.py [NAME ...] [--list] [--jobs N]`. The bugs are in planted.toml: for
each the file under src/headway, the text that a bug replaces, what a user would suffer, and the
tests that must turn red. Nothing in this checkout is changed: the bugs are planted in temporary
copies. A copy has a virtual environment of its own, in which `headway` is the copy and all other
packages are links to those of this Python: so processes that a test starts with an empty
environment run the copy too.

Each of the tests runs once without a bug and has to be green; one has to turn red with the bug.
The exit code is 1 if a bug survives, and 2 if its text is not in the code any more.
"""

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = Path("src", "headway")
_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "*.db*")
_OF_ONE_TEST = 60
_OF_ALL_TESTS = 600
"""Seconds."""
_GREEN, _RED = 0, 1
"""Exit codes of pytest. Any other one means that no test has run, or not to its end."""

T = TypeVar("T")
R = TypeVar("R")


class NotPlantableError(Exception):
    """The data about a bug does not fit the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One bug, as planted.toml describes it."""

    name: str
    file: str
    """Under src/headway."""
    old: str
    new: str
    harm: str
    """What a user would suffer."""
    tests: tuple[str, ...]
    """Files or node ids."""

    @property
    def files(self) -> tuple[str, ...]:
        """Name the files of the tests: those of one file run together while there is no bug."""
        return tuple(dict.fromkeys(test.partition("::")[0] for test in self.tests))

    def planted(self, root: Path) -> str:
        """Give the text of the file with the bug in it."""
        path = root / _PACKAGE / self.file
        text = path.read_text() if path.is_file() else ""
        number = text.count(self.old)
        if number == 0:
            raise NotPlantableError(
                f"text of bug {self.name} not found: the code changed, plant it anew"
            )
        if number > 1:
            raise NotPlantableError(
                f"text of bug {self.name} found {number} times in {self.file}: name more of it"
            )
        planted = text.replace(self.old, self.new)
        if path.suffix == ".py":
            try:
                compile(planted, self.file, "exec", dont_inherit=True)
            except SyntaxError as error:
                raise NotPlantableError(f"bug {self.name} is no Python: {error}") from None
        return planted


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run of tests."""

    code: int
    seconds: float
    red: str
    """The first test that turned red, or the last words of a run that found none."""


class Copy:
    """A copy of the checkout in which bugs are planted."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = folder / "copy"
        shutil.copytree(root, self._root, ignore=_NOT_COPIED)
        place = folder / "venv"
        venv.EnvBuilder(symlinks=True).create(place)
        self._python = place / "bin" / "python"
        packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(place)}))
        for each in Path(sysconfig.get_path("purelib")).iterdir():
            if not (each.suffix == ".pth" and "headway" in each.name):  # the editable install
                (packages / each.name).symlink_to(each)
        (packages / "planted.pth").write_text(f"{self._root / 'src'}\n")
        self._check()

    def _check(self) -> None:
        """Make sure that the copy is what its Python imports, whatever the environment says."""
        program = "import headway; print(headway.__path__[0])"
        command = [str(self._python), "-I", "-c", program]
        said = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        if Path(said.stdout.strip()) != self._root / _PACKAGE:
            raise NotPlantableError(f"the tests would run {said.stdout.strip()} and not the copy")

    @contextmanager
    def with_bug(self, bug: Bug) -> Iterator[None]:
        """Have a bug in the copy inside the block."""
        path = self._root / _PACKAGE / bug.file
        text = path.read_text()
        _write(path, bug.planted(self._root))
        try:
            yield
        finally:
            _write(path, text)

    def run(self, tests: Sequence[str]) -> Run:
        """Run tests until one is red."""
        options = ("-q", "-x", "--tb=no", "-rfE", "-pno:cacheprovider", f"--timeout={_OF_ONE_TEST}")
        # A server that is missing has to turn a test red before a bug is planted: so as in CI.
        environment = {**os.environ, "CI": "true"}
        environment.pop("PYTHONPATH", None)
        began = time.monotonic()
        process = subprocess.Popen(  # noqa: S603 (our own Python and tests)
            [str(self._python), "-m", "pytest", *options, *tests],
            cwd=self._root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            said, _ = process.communicate(timeout=_OF_ALL_TESTS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that it stops the servers that it started
            said, _ = process.communicate()
        return Run(process.returncode, time.monotonic() - began, _first_red(said))


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    # Python compares times in seconds, and two versions may have the same length.
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def _first_red(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    for line in lines:
        for word in ("FAILED ", "ERROR "):
            if line.startswith(word):
                return line.removeprefix(word).partition(" - ")[0].strip()
    return lines[-1].strip() if lines else ""


def read(root: Path) -> dict[str, Bug]:
    """Read the bugs, by their names."""
    with (root / "tools" / "planted.toml").open("rb") as file:
        found = tomllib.load(file)
    return {
        name: Bug(name=name, **{**fields, "tests": tuple(fields["tests"])})
        for name, fields in found.items()
    }


class Trial:
    """Runs tests in several copies at the same time, and says how far it is."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._copies = SimpleQueue[Copy]()
        self._jobs = len(copies)
        for copy in copies:
            self._copies.put(copy)

    def each(
        self, what: str, items: Sequence[T], name: Callable[[T], str], run: Callable[[Copy, T], R]
    ) -> list[R]:
        """Do something for each item, in any copy that is free."""
        done = 0

        def one(item: T) -> R:
            nonlocal done
            copy = self._copies.get()
            try:
                result = run(copy, item)
            finally:
                self._copies.put(copy)
            done += 1
            print(f"{what} {done}/{len(items)}: {name(item)}", file=sys.stderr, flush=True)
            return result

        with ThreadPoolExecutor(self._jobs) as pool:
            return list(pool.map(one, items))


def _with(copy: Copy, bug: Bug) -> Run:
    with copy.with_bug(bug):
        return copy.run(bug.tests)


def _said(bug: Bug, before: Run, after: Run | None) -> tuple[bool, str]:
    """Say whether a bug was found, and by which test."""
    if after is None:
        return False, f"not tried: red without it: {before.red}"
    match after.code:
        case code if code == _RED:
            return True, after.red
        case code if code == _GREEN:
            return False, f"SURVIVED: {bug.harm}"
        case code:
            return False, f"the tests did not run to their end (code {code}): {after.red}"


def try_all(root: Path, bugs: Sequence[Bug], jobs: int) -> int:
    """Try bugs, print the table, and give the exit code."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        trial = Trial([Copy(root, Path(folder, str(number))) for number in range(jobs)])
        tests: dict[tuple[str, ...], dict[str, None]] = {}
        for bug in bugs:
            tests.setdefault(bug.files, {}).update(dict.fromkeys(bug.tests))
        runs = trial.each(
            "without a bug", list(tests), " ".join, lambda copy, files: copy.run(list(tests[files]))
        )
        before = dict(zip(tests, runs, strict=True))
        tried = [bug for bug in bugs if before[bug.files].code == _GREEN]
        found = trial.each("planted", tried, lambda bug: bug.name, _with)
    after = dict(zip((bug.name for bug in tried), found, strict=True))
    width = max(len(bug.name) for bug in bugs)
    count = 0
    print(f"{'bug':{width}}  seconds  found by")
    for bug in bugs:
        run = after.get(bug.name)
        is_found, said = _said(bug, before[bug.files], run)
        count += is_found
        print(f"{bug.name:{width}}  {run.seconds if run else 0.0:7.1f}  {said}")
    print(f"{count} of {len(bugs)} bugs are found.")
    return int(count < len(bugs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help="of a bug; without any, all")
    parser.add_argument("--list", action="store_true", help="only show the bugs")
    parser.add_argument("--jobs", type=int, default=1, help="so many copies at the same time")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    asked = parser.parse_args()
    known = read(asked.root)
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"There is no bug {', '.join(unknown)}. --list shows all.")
    if asked.jobs < 1:
        parser.error("--jobs takes a number from 1.")
    bugs = [known[name] for name in dict.fromkeys(asked.names)] or list(known.values())
    if asked.list:
        for bug in bugs:
            print(f"{bug.name} ({bug.file}): {bug.harm}\n    {' '.join(bug.tests)}")
        return 0
    wrong = []
    for bug in bugs:
        try:
            bug.planted(asked.root)
        except NotPlantableError as error:
            wrong.append(str(error))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    return try_all(asked.root, bugs, min(asked.jobs, len(bugs)))


if __name__ == "__main__":
    sys.exit(main())
