"""Write the reference pages that are made from the code: `python tools/reference.py [--check]`."""

import sys
from pathlib import Path

from headway.core.catalogue import RULES
from headway.core.classify import ANY, Rule
from headway.core.metrics import CATALOGUE, Metric
from headway.systems.ledger.metrics import CATALOGUE as LEDGER

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
_MANY = 20
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
        ]
    )


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
        "| rule | verdict | error type | matches |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {rule.name} | {rule.verdict} | {rule.error_type} | {_matches(rule)} |" for rule in RULES
    ]
    return "\n".join([*lines, ""])


def _metrics(catalogue: tuple[Metric, ...]) -> list[str]:
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in catalogue:
        labels = ", ".join(metric.labels) or "none"
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    return rows


def _matches(rule: Rule) -> str:
    parts = []
    if rule.types != ANY:
        parts.append(", ".join(f"`{name}`" for name in sorted(rule.types)))
    codes = [f"{code}" for code in sorted(rule.codes, key=str)]
    if len(codes) > _MANY:
        codes = [f"{codes[0]} to {codes[-1]}, but those above"]
    codes += [f"{start}..." for start in rule.classes]
    if codes:
        parts.append(f"{rule.at[0]} {', '.join(codes)}")
    if rule.text:
        parts.append("text " + ", ".join(f'"{fragment}"' for fragment in rule.text))
    return "; ".join(parts)


def main() -> int:
    pages = {"metrics.md": metrics_page(), "errors.md": errors_page()}
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
