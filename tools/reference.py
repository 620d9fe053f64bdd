"""Write the reference pages that are made from the code: `python tools/reference.py [--check]`."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from enum import Enum
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import cast

import headway
from headway.apps.cli.codes import MEANINGS, NOT_WELL
from headway.core.classify import ANY
from headway.core.metrics import CATALOGUE
from headway.metrics import Metric
from headway.retrying import DEFAULT_RULES, Rule
from headway.systems.ledger.metrics import CATALOGUE as LEDGER
from headway.systems.uptime.metrics import CATALOGUE as UPTIME

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
_MANY = 20
_WIDTH = 100
_SQLSTATE_LENGTH = 5
_MADE = "<!-- Made by tools/reference.py from the code: do not edit. -->"


def metrics_page() -> str:
    return "\n".join(
        [
            "# Metrics",
            "",
            _MADE,
            "",
            "## Everywhere",
            "",
            *_metrics(CATALOGUE),
            "",
            "## Ledger",
            "",
            *_metrics(LEDGER),
            "",
            "## Uptime",
            "",
            *_metrics(UPTIME),
            "",
        ]
    )


def api_page() -> str:
    lines = [
        "# API",
        "",
        _MADE,
        "",
        "Import every name from the module under which it stands. All other modules are internal.",
    ]
    for module in public_modules():
        lines += ["", f"## {module.__name__}", "", _doc(module)]
        for name in sorted(module.__all__, key=str.lower):
            thing = getattr(module, name)
            lines += ["", f"### {name}", "", "```text", _signature(name, thing), "", _doc(thing)]
            lines += ["```", *_methods(name, thing)]
    return "\n".join([*lines, ""])


def public_modules() -> list[ModuleType]:
    """Give `headway`, the modules beside it that are no packages, and `headway.testing`."""
    beside = [each.name for each in pkgutil.iter_modules(headway.__path__) if not each.ispkg]
    names = ["headway", *(f"headway.{name}" for name in [*sorted(beside), "testing"])]
    return [importlib.import_module(name) for name in names]


def _methods(name: str, thing: object) -> list[str]:
    """Give what is called on a class of ours, in the order in which it stands there."""
    lines = []
    for each, method in vars(thing).items() if isinstance(thing, type) else ():
        if inspect.isfunction(method) and not each.startswith("_"):
            awaited = "await " * inspect.iscoroutinefunction(method)
            lines += ["", "```text", _signature(f"{awaited}{name}.{each}", method)]
            lines += [*(["", _doc(method)] if method.__doc__ else []), "```"]
    return lines


def _signature(name: str, thing: object) -> str:
    if isinstance(thing, type) and issubclass(thing, Enum):
        return f"{name}: {', '.join(str(member.value) for member in thing)}"
    if not callable(thing):
        return f"{name}: {type(thing).__name__}"
    try:
        found = inspect.signature(cast("Callable[..., object]", thing))
    except ValueError:  # Python's own exceptions take anything
        return f"{name}(...)"
    given = [parameter for parameter in found.parameters.values() if parameter.name != "self"]
    parameters = [_parameter(parameter) for parameter in given]
    line = f"{name}({', '.join(parameters)})"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + ")"


def _parameter(parameter: inspect.Parameter) -> str:
    name = f"*{parameter.name}" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name
    default = parameter.default
    if default is parameter.empty:
        return name
    shown = f"{type(default).__name__}()" if " at 0x" in repr(default) else repr(default)
    return f"{name}={shown.replace('datetime.', '')}"


def _doc(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def errors_page() -> str:
    lines = [
        "# Error tables",
        "",
        _MADE,
        "",
        "In the order in which the rules are asked: the first that matches wins, and rules by text",
        "come after all others. What no rule knows is transient for `retry`, permanent for",
        "transactions, which retry only OC000_TRANSACTION_CONFLICT and CONNECTION_ERROR.",
        "",
    ]
    for family, rules in groupby(DEFAULT_RULES, key=lambda rule: rule.name.partition(".")[0]):
        lines += [
            f"## {family}",
            "",
            "| rule | verdict | error type | matches |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {rule.name} | {rule.verdict} | {rule.error_type} | {_matches(rule)} |"
            for rule in rules
        ]
        lines.append("")
    return "\n".join([*lines, ""])


def exit_codes_page() -> str:
    return "\n".join(
        [
            "# Exit codes",
            "",
            _MADE,
            "",
            "The same for every command:",
            "",
            "| exit code | |",
            "|---|---|",
            *(f"| {code} | {_cell(meaning)} |" for code, meaning in MEANINGS.items()),
            "",
            "What 1 means:",
            "",
            "| command | |",
            "|---|---|",
            *(f"| `headway {name}` | {_cell(meaning)} |" for name, meaning in NOT_WELL.items()),
            "",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _metrics(catalogue: tuple[Metric, ...]) -> list[str]:
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in catalogue:
        labels = ", ".join(metric.labels) or "none"
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    return rows


def _matches(rule: Rule) -> str:
    parts = []
    if rule.types != ANY:
        parts.append(", ".join(f"`{name}`" for name in sorted(map(str, rule.types))))
    codes = ["none" if code is None else f"{code}" for code in sorted(rule.codes, key=str)]
    if len(codes) > _MANY:
        codes = [f"{codes[0]} to {codes[-1]}, but those above"]
    codes += [start if len(start) == _SQLSTATE_LENGTH else f"{start}..." for start in rule.classes]
    if codes:
        parts.append(f"{' or '.join(rule.at)}: {', '.join(codes)}")
    if any(rule.text):
        parts.append("text " + ", ".join(f'"{fragment}"' for fragment in rule.text))
    return "; ".join(parts)


def main() -> int:
    pages = {
        "api.md": api_page(),
        "metrics.md": metrics_page(),
        "errors.md": errors_page(),
        "exit-codes.md": exit_codes_page(),
    }
    stale = [name for name, text in pages.items() if _read(name) != text]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/reference/{name} is not what the code says: run tools/reference.py")
        return bool(stale)
    for name in stale:
        (REFERENCE / name).write_text(pages[name])
    return 0


def _read(name: str) -> str:
    path = REFERENCE / name
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
