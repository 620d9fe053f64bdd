"""The public API is a text file: a change to it is a change to tests/approved/api.txt."""

import ast
import enum
import importlib
import inspect
import pkgutil
import re
from collections import Counter
from pathlib import Path
from types import ModuleType, UnionType

import pytest

import headway

APPROVED = Path(__file__).parents[1] / "approved" / "api.txt"


BESIDE = sorted(each.name for each in pkgutil.iter_modules(headway.__path__) if not each.ispkg)
MODULES = [
    importlib.import_module(name)
    for name in ("headway", *(f"headway.{each}" for each in [*BESIDE, "testing"]))
]


def rendered() -> str:
    lines: list[str] = []
    for module in MODULES:
        lines += [f"[{module.__name__}]"]
        lines += [line for name in sorted(module.__all__) for line in _lines(module, name)]
    return "\n".join(lines) + "\n"


def _lines(module: ModuleType, name: str) -> list[str]:
    thing = getattr(module, name)
    if not callable(thing) or isinstance(thing, UnionType):
        return [f"{name}: {type(thing).__name__}"]
    if not isinstance(thing, type):
        return [f"{name}{_signature(thing)}"]
    if issubclass(thing, enum.Enum):
        return [f"{name}: {', '.join(member.name for member in thing)}"]
    bases = ", ".join(base.__name__ for base in thing.__bases__ if base is not object)
    head = f"{name}{_signature(thing)}" + (f" is {bases}" if bases else "")
    return [head, *(f"    .{line}" for line in _members(thing))]


def _members(kind: type) -> list[str]:
    """Give the public methods of a class; its fields are in the signature of its constructor."""
    members = {
        member: value
        for member, value in vars(kind).items()
        if not member.startswith("_") and not inspect.isdatadescriptor(value)
    }
    return [
        f"{member}{_signature(getattr(kind, member))}"
        for member, value in sorted(members.items())
        if callable(value) or isinstance(value, classmethod)
    ]


def _signature(thing: object) -> str:
    assert callable(thing)
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return "(...)"  # Python's own exceptions take anything
    parameters = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            default=_Shown(parameter.default)
            if parameter.default is not inspect.Parameter.empty
            else inspect.Parameter.empty,
        )
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return str(inspect.Signature(parameters))


class _Shown:
    """Shows a default value the same way on every machine and Python."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        value = self._value
        if isinstance(value, enum.Enum):
            return str(value.value)
        if isinstance(value, frozenset):
            return f"{{{', '.join(sorted(map(repr, value)))}}}"
        shown = repr(value)
        return f"{type(value).__name__}()" if " at 0x" in shown else shown


def test_the_public_api_is_the_approved_one() -> None:
    assert rendered() == APPROVED.read_text(), (
        "The public API has changed. If that is meant, say so in the changelog and approve it:\n"
        f"    python {Path(__file__).relative_to(Path(__file__).parents[2])}"
    )


def test_each_public_name_has_one_module() -> None:
    names = Counter(name for module in MODULES for name in module.__all__)
    assert [name for name, count in names.items() if count > 1] == []


def test_there_is_no_other_public_name() -> None:
    assert dir(headway) == sorted(headway.__all__)
    assert len(headway.__all__) <= 25  # few enough to learn
    with pytest.raises(AttributeError, match="module 'headway' has no attribute 'nothing'"):
        headway.nothing  # type: ignore[attr-defined]  # noqa: B018  (a checker refuses it too)


def test_every_public_name_is_known_to_type_checkers_from_the_same_place() -> None:
    tree = ast.parse(Path(headway.__file__).read_text())
    checking = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: str(node.module).removeprefix("headway.")
        for node in checking.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == headway._HOME
    assert sorted(seen) == headway.__all__


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", headway.__version__)


if __name__ == "__main__":
    APPROVED.write_text(rendered())
