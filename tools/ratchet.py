"""Let no figure rise that is to come down: `python tools/ratchet.py [--record | --list FIGURE]`.

The figures are in ratchet.json: lines that import the inner modules of headway where its public
names should do, and words that say neither who acts nor what happened. One that rose is an error;
one that fell is recorded, so that it stays down.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

RECORD = Path(__file__).with_suffix(".json")
_INNER = re.compile(r"[ \t]*(from|import) headway\.(core|ports|runtime|adapters|assembly|apps)\b")
_BANNED = (
    "nobody",
    "somebody",
    "whoever",
    "is not accepted",
    "put off",
    "let go",
    "take down",
    "taken down",
    "spoilt",
)
_GAP = r"(?:[\s\"'#]|f\")+"  # a sentence may go on in the next line, of a text or a comment too
_WORDS = re.compile(
    r"\b(" + "|".join(words.replace(" ", _GAP) for words in _BANNED) + r")\b", re.IGNORECASE
)
_WRITTEN = {".py", ".html", ".md"}
Found = Iterator[tuple[Path, int]]
"""Files and the numbers of their lines."""


def inner_imports(folder: Path) -> Found:
    for path in sorted(folder.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if _INNER.match(line):
                yield path, number


def banned_words(files: Iterable[Path]) -> Found:
    for path in sorted(each for each in files if each.suffix in _WRITTEN):
        text = path.read_text()
        for match in _WORDS.finditer(text):
            yield path, text.count("\n", 0, match.start()) + 1


def figures(root: Path) -> dict[str, list[tuple[Path, int]]]:
    """Give all that is counted, by the names of the figures."""
    return {
        "inner-imports-in-tests": list(inner_imports(root / "tests")),
        "inner-imports-in-systems": list(inner_imports(root / "src" / "headway" / "systems")),
        "banned-words-in-src": list(banned_words((root / "src").rglob("*"))),
        "banned-words-in-docs": list(banned_words((root / "docs").rglob("*"))),
        "banned-words-in-readme": list(banned_words([root / "README.md"])),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write down the figures that fell")
    parser.add_argument("--list", metavar="FIGURE", help="show the lines that a figure counts")
    parser.add_argument("--root", type=Path, default=RECORD.parents[1], help="the checkout")
    asked = parser.parse_args()
    found = figures(asked.root)
    if asked.list:
        if asked.list not in found:
            parser.error(f"There is no figure {asked.list!r}. There are: {', '.join(found)}.")
        for path, number in found[asked.list]:
            print(f"{path.relative_to(asked.root)}:{number}")
        return 0
    record = asked.root / "tools" / RECORD.name
    recorded = {**dict.fromkeys(found, 0), **json.loads(record.read_text())}
    now = {name: len(lines) for name, lines in found.items()}
    rose = [name for name in now if now[name] > recorded[name]]
    fell = [name for name in now if now[name] < recorded[name]]
    for name in rose:
        print(
            f"{name} rose from {recorded[name]} to {now[name]}. Take back what this change added: "
            f"git diff shows it, and tools/ratchet.py --list {name} shows all."
        )
    if asked.record:
        lower = {name: min(now[name], recorded[name]) for name in now}
        record.write_text(json.dumps(lower, indent=2) + "\n")
    else:
        for name in fell:
            print(
                f"{name} fell from {recorded[name]} to {now[name]}. Record it: "
                "python tools/ratchet.py --record"
            )
    return bool(rose)


if __name__ == "__main__":
    sys.exit(main())
