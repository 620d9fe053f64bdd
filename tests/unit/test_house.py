"""Rules of the house that no linter knows."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "src" / "headway").rglob("*.py"))


def of(module: Path) -> str:
    return str(module.relative_to(ROOT))


@pytest.mark.parametrize(
    "module", [module for module in MODULES if ">>> " in module.read_text()], ids=of
)
def test_examples_in_docstrings_are_true(module: Path) -> None:
    name = ".".join(module.relative_to(ROOT / "src").with_suffix("").parts)
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed


def test_no_process_that_is_started_imports_from_the_current_folder() -> None:
    """`-m` alone puts it first: whatever lies there under a library's name would be run."""
    starting = [of(module) for module in MODULES if 'sys.executable, "-m"' in module.read_text()]
    assert not starting, "start it with -P"
