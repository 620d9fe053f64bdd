"""The list of mutants that no test finds, and what counts as one."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "mutants.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def test_every_survivor_is_a_change_of_code_that_is_there(tool: ModuleType) -> None:
    plan = tool.read(ROOT)
    sources = {
        module: [
            line.strip() for line in (ROOT / f"src/headway/{module}.py").read_text().splitlines()
        ]
        for module in plan.modules
    }
    for module, function, change in plan.reasons:
        gone = [line[1:] for line in change.splitlines() if line.startswith("-")]
        lost = [line for line in gone if line not in sources[module]]
        assert not lost, f"{module} {function}: take it out of mutants.toml, or list it anew"


@pytest.mark.parametrize(
    ("before", "after", "is_text"),
    [
        ('raise E(f"{n} is wrong")', "raise E(None)", True),
        ('return OddError("n", n)', "return OddError(None, n)", True),
        ('a = "two words"', 'a = "XXtwo wordsXX"', True),
        ('a = f"{b}: " "say"', 'a = f"{b}: " "SAY"', True),
        ('a = "word"', 'a = "XXwordXX"', False),
        ("if a < 1:\n    raise E", "if a <= 1:\n    raise E", False),
        ("raise E", "pass", False),
        ('f("two words", 1)', 'f("TWO WORDS", 2)', False),
    ],
)  # fmt: skip
def test_a_change_of_wording_is_no_mutant(
    tool: ModuleType, before: str, after: str, *, is_text: bool
) -> None:
    assert tool._only_text(ast.parse(before), ast.parse(after)) is is_text


def test_a_survivor_needs_a_reason(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    survivor = "[[survivor]]\nmodule = 'm'\nfunction = 'f'\nchange = '-a'\nreason = ' '\n"
    (tmp_path / "tools" / "mutants.toml").write_text(f"modules = []\ntests = []\n{survivor}")
    command = [sys.executable, str(TOOL), "--root", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "('m', 'f', '-a')" in ended.stderr
