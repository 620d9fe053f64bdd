"""Change what decides in one small place after another, and show that a test finds each change.

Usage: `python tools/mutants.py [MODULE ...] [--seed N] [--sample N] [--jobs N] [--minutes N]`.
mutmut makes the changes (a mutant is one of them) and runs the tests that reach each. This program
tells it what to change, draws the sample, and holds what survives against mutants.toml: there are
the modules that decide, the tests, and each survivor with the reason why no test finds it.

Nothing in this checkout is changed: mutmut works on a temporary copy. In the copy a property is
written as a method and `name = property(name)`, because mutmut leaves decorated functions alone.

Wording is not a decision. So a mutant does not count if it only changes what is raised, the
arguments of an exception, an f-string or a text with a blank in it, or a function of `texts`.

A mutant is in the sample by a checksum of the seed, its function and its change: a change of the
code elsewhere leaves it there. The exit code is 1 if a mutant survives that is not listed, if more
than 5 % survive, or if the time is over; and 2 if the tests are red without a mutant.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from difflib import ndiff
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = Path("src", "headway")
_COPIED = ("src", "tests", "pyproject.toml")
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.db*")
_MOST_SURVIVE = 0.05
_SURVIVED = {0, 5, 33}
"""Exit codes that mutmut keeps: all tests were green, or none reaches the function."""
_KILLED = {1, 3}
_TIMED_OUT = {36, 24, -24, 152, 255, -9}
_SETTINGS = """\
[mutmut]
source_paths=src/headway
only_mutate=
    {modules}
pytest_add_cli_args_test_selection=
    {tests}
pytest_add_cli_args=
    -pno:cacheprovider
    -pno:xdist
    --hypothesis-profile=ci
timeout_multiplier=2
timeout_constant=5
use_git_change_detection=false
track_dependencies=false
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one function."""

    name: str
    """As mutmut calls it."""
    module: str
    """Under src/headway."""
    function: str
    change: str
    """The lines that go and those that come, as in a diff; a number behind equal ones."""

    @property
    def place(self) -> tuple[str, str, str]:
        """What stays the same from run to run, while the function does."""
        return self.module, self.function, self.change

    def rank(self, seed: int) -> str:
        return sha256("\n".join((str(seed), *self.place)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What mutants.toml says."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    texts: frozenset[str]
    """Functions that only write what people read."""
    reasons: Mapping[tuple[str, str, str], str]
    """Why a mutant survives, by its place."""


@dataclass(slots=True)
class Tally:
    """How the mutants of one module ended."""

    all: int = 0
    tried: int = 0
    killed: int = 0
    timed_out: int = 0
    survived: list[Mutant] = field(default_factory=list)


def read(root: Path) -> Plan:
    """Read the plan; a survivor without a reason is an error."""
    with (root / "tools" / "mutants.toml").open("rb") as file:
        found = tomllib.load(file)
    reasons = {}
    for each in found.get("survivor", ()):
        place = each["module"], each["function"], each["change"].strip("\n")
        if not each["reason"].strip() or place in reasons:
            raise SystemExit(f"mutants.toml: without a reason, or listed twice: {place}")
        reasons[place] = each["reason"]
    return Plan(
        modules=tuple(found["modules"]),
        tests=tuple(found["tests"]),
        texts=frozenset(found.get("texts", ())),
        reasons=reasons,
    )


def copied(root: Path, copy: Path, plan: Plan) -> None:
    """Copy what the tests need, with the settings of mutmut."""
    for name in _COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name, ignore=_NOT_COPIED)
        elif (root / name).exists():
            shutil.copy(root / name, copy / name)
    files = [str(_PACKAGE / f"{module}.py") for module in plan.modules]
    for file in files:
        (copy / file).write_text(_without_decorators((copy / file).read_text()))
    settings = _SETTINGS.format(modules="\n    ".join(files), tests="\n    ".join(plan.tests))
    (copy / "setup.cfg").write_text(settings)


def _without_decorators(source: str) -> str:
    """Write properties as methods and `name = property(name)`: see above."""
    lines = source.split("\n")
    for node in reversed(list(ast.walk(ast.parse(source)))):
        if not isinstance(node, ast.FunctionDef) or node.end_lineno is None:
            continue
        match node.decorator_list:
            case [ast.Name(id="property")]:
                lines.insert(node.end_lineno, f"    {node.name} = property({node.name})")
                del lines[node.decorator_list[0].lineno - 1]
    return "\n".join(lines)


def mutants(copy: Path, plan: Plan) -> Iterator[Mutant]:
    """Give all mutants of the modules, but for those of texts."""
    from mutmut.mutation.file_mutation import mutate_file_contents  # noqa: PLC0415 (a tool of its own)
    from mutmut.utils.format_utils import (  # noqa: PLC0415
        get_mutant_name,
        orig_function_and_class_names_from_key,
    )

    with chdir(copy):
        for module in plan.modules:
            path = _PACKAGE / f"{module}.py"
            mutated = mutate_file_contents(str(path), path.read_text())
            lines, spans = mutated.code.split("\n"), mutated.line_span_by_function_name
            seen = Counter[tuple[str, str]]()
            for name in mutated.mutant_names:
                inner, outer = orig_function_and_class_names_from_key(name)
                function = f"{outer}.{inner}" if outer else inner
                before, after = (
                    textwrap.dedent("\n".join(lines[spans[key].start - 1 : spans[key].end]))
                    .strip("\n")
                    .replace(key, inner)
                    for key in (re.sub(r"_[0-9]+$", "_orig", name), name)
                )
                if function in plan.texts or _only_text(ast.parse(before), ast.parse(after)):
                    continue
                change = "\n".join(
                    line.replace(" ", "", 1)
                    for line in ndiff(_squeezed(before), _squeezed(after))
                    if line[0] in "+-"
                )
                seen[function, change] += 1
                if seen[function, change] > 1:
                    change += f"\n({seen[function, change]})"
                key = get_mutant_name(path, name)
                yield Mutant(name=key, module=module, function=function, change=change)


def _squeezed(function: str) -> list[str]:
    return [line.strip() for line in function.split("\n") if line.strip()]


def _only_text(before: object, after: object) -> bool:
    """Say whether two trees differ in what people read, and in nothing else."""
    if _is_text(before) and _is_text(after):
        return True
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return all(_only_text(*pair) for pair in zip(before, after, strict=True))
    if isinstance(before, ast.AST) and type(before) is type(after):
        return all(
            _only_text(getattr(before, name, None), getattr(after, name, None))
            for name in before._fields
        )
    return before == after


def _is_text(node: object) -> bool:
    match node:
        case ast.Raise() | ast.JoinedStr():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name.endswith("Error")
        case ast.Constant(value=str(text)):
            return " " in text
    return False


def run(copy: Path, sample: Sequence[Mutant], jobs: int, minutes: float) -> dict[str, int | None]:
    """Let mutmut run the tests for each; give its exit codes by the names of the mutants."""
    program = str(Path(sys.executable).with_name("mutmut"))
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    ends = time.monotonic() + minutes * 60
    with (copy / "said").open("wb") as said:
        process = subprocess.Popen(  # noqa: S603 (a program of our own environment)
            [program, "run", "--max-children", str(jobs), *(mutant.name for mutant in sample)],
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None and time.monotonic() < ends:
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    done = sum(code is not None for code in _codes(copy, sample).values())
                    print(f"{done} of {len(sample)} mutants tried", file=sys.stderr, flush=True)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
    codes = _codes(copy, sample)
    if process.returncode and all(code is None for code in codes.values()):
        print((copy / "said").read_text(errors="replace")[-5000:], file=sys.stderr)
        raise SystemExit(2)
    return codes


def _codes(copy: Path, sample: Sequence[Mutant]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for module in {mutant.module for mutant in sample}:
        path = copy / "mutants" / _PACKAGE / f"{module}.py.meta"
        try:
            found.update(json.loads(path.read_text())["exit_code_by_key"])
        except (FileNotFoundError, ValueError):  # not written yet, or being written right now
            continue
    return {mutant.name: found.get(mutant.name) for mutant in sample}


def tallied(
    all_mutants: Sequence[Mutant], sample: Sequence[Mutant], codes: Mapping[str, int | None]
) -> dict[str, Tally]:
    tallies = {mutant.module: Tally() for mutant in all_mutants}
    for mutant in all_mutants:
        tallies[mutant.module].all += 1
    for mutant in sample:
        tally, code = tallies[mutant.module], codes[mutant.name]
        if code in _SURVIVED:
            tally.survived.append(mutant)
        elif code in _KILLED:
            tally.killed += 1
        elif code in _TIMED_OUT:
            tally.timed_out += 1
        else:
            continue
        tally.tried += 1
    return tallies


def report(plan: Plan, tallies: Mapping[str, Tally], *, asked: int) -> int:
    """Print the table and the survivors that are not listed, and give the exit code."""
    survived = [mutant for tally in tallies.values() for mutant in tally.survived]
    tried = sum(tally.tried for tally in tallies.values())
    unlisted = [mutant for mutant in survived if mutant.place not in plan.reasons]
    for mutant in unlisted:
        print(
            f'[[survivor]]\nmodule = "{mutant.module}"\nfunction = "{mutant.function}"\n'
            f"change = '''\n{mutant.change}'''\nreason = \"\"\n"
        )
    width = max(map(len, tallies))
    print(f"{'module':{width}}  mutants  tried  killed  too slow  survived")
    rows = [*tallies.items(), ("all", _sum(tallies))]
    for module, tally in rows:
        print(
            f"{module:{width}}  {tally.all:7}  {tally.tried:5}  {tally.killed:6}  "
            f"{tally.timed_out:8}  {len(tally.survived):8}"
        )
    share = len(survived) / max(tried, 1)
    print(
        f"{tried} of {asked} mutants tried, {len(survived)} survived ({share:.1%}), "
        f"{len(unlisted)} of them without a reason in mutants.toml."
    )
    return int(bool(unlisted) or share > _MOST_SURVIVE or tried < asked)


def _sum(tallies: Mapping[str, Tally]) -> Tally:
    total = Tally()
    for tally in tallies.values():
        total.all += tally.all
        total.tried += tally.tried
        total.killed += tally.killed
        total.timed_out += tally.timed_out
        total.survived += tally.survived
    return total


def outdated(plan: Plan, known: Sequence[Mutant], found: Collection[Mutant]) -> Iterator[str]:
    """Name what is listed as a survivor and is none."""
    places, found_places = ({mutant.place for mutant in each} for each in (known, found))
    for place in plan.reasons:
        if place not in places:
            yield "\n".join(("listed, and there is no such mutant any more:", *place))
        elif place in found_places:
            yield "\n".join(("listed, and a test finds it:", *place))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", metavar="MODULE", nargs="*", help="such as core/policy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=1_200, help="so many mutants; 0: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=60, help="the end, whatever is left")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    asked = parser.parse_args()
    plan = read(asked.root)
    if unknown := set(asked.modules) - set(plan.modules):
        parser.error(f"mutants.toml has no module {', '.join(sorted(unknown))}.")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        copied(asked.root, copy, plan)
        known = list(mutants(copy, plan))
        ranked = sorted(known, key=lambda mutant: mutant.rank(asked.seed))[: asked.sample or None]
        meant, sample = (
            [each for each in some if not asked.modules or each.module in asked.modules]
            for some in (known, ranked)
        )
        print(f"{len(sample)} of {len(meant)} mutants, seed {asked.seed}", file=sys.stderr)
        codes = run(copy, sample, asked.jobs, asked.minutes)
    found = [mutant for mutant in sample if codes[mutant.name] in _KILLED | _TIMED_OUT]
    for line in outdated(plan, known, found):
        print(line, file=sys.stderr)
    return report(plan, tallied(meant, sample, codes), asked=len(sample))


if __name__ == "__main__":
    sys.exit(main())
