"""A text taken apart: what its author wrote, what was quoted, and the signature."""

import re
from dataclasses import dataclass
from itertools import groupby

_READ = 300
"""Characters of a line that are looked at: no line that means something is longer."""
_QUOTED = re.compile(r"\s{0,3}(?:[A-Z]{1,4})?>")
_SIGNATURE = re.compile(r"--\s?\Z")
_RULE = re.compile(r"[_=*-]{20,}\s*\Z")
_LIST_FOOTER = re.compile(
    r"mailing list|unsubscribe|list archives?|/listinfo/|to post to this", re.IGNORECASE
)
_ORIGINAL = re.compile(
    r"\s{0,3}(?:-{2,}|_{2,})\s?(?:original message|original appointment|ursprüngliche nachricht|"
    r"message d'origine|mensaje original|messaggio originale|original-nachricht)\s?(?:-{2,}|_{2,})",
    re.IGNORECASE,
)
_OUTLOOK = re.compile(r"\s{0,3}\*?(?:From|Von|De|Da):\*?\s")
_OUTLOOK_NEXT = re.compile(r"\s{0,3}\*?(?:Sent|Date|To|Gesendet|Datum|An|Envoyé|Enviado):\*?\s")
_ATTRIBUTION_BEGINS = re.compile(
    r"\s{0,3}(?:On\s|Am\s|Le\s|El\s|Il\s|Op\s|Den\s|At\s|In message|In article|Quoting|\S)",
)
_ATTRIBUTION_ENDS = re.compile(
    r"(?:wrote|writes|said|schrieb|écrit|escribió|scritto|schreef|skrev|says|quoted)"
    r"[^:.!?]{0,120}:\s*\Z|:\s*\Z",
    re.IGNORECASE,
)
_SURE = re.compile(
    r"\s{0,3}(?:On|Am|Le|El|Il)\s.{0,250}\b(?:wrote|schrieb|écrit|escribió|scritto)\b.{0,120}:\s*\Z",
    re.IGNORECASE,
)
_ATTRIBUTION_LINES = 3
_EMPTY_LINES = re.compile(r"\n{3,}")

NEW, OLD, SIGNATURE = range(3)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a text; each is what is left if the others are taken away."""

    new: str
    quoted: str
    signature: str


def take_apart(text: str) -> Parts:
    r"""Keep apart what is new in a text, what it quotes and how it is signed.

    >>> take_apart("Yes.\n\nOn Monday Ann wrote:\n> Shall we?\n\n-- \nBob")
    Parts(new='Yes.', quoted='On Monday Ann wrote:\n> Shall we?', signature='Bob')
    """
    lines = [line.rstrip() if line != "-- " else line for line in text.split("\n")]
    kinds = _kinds(lines)
    parts: dict[int, list[str]] = {NEW: [], OLD: [], SIGNATURE: []}
    for kind, group in groupby(zip(kinds, lines, strict=True), key=lambda pair: pair[0]):
        parts[kind].append("\n".join(line for _, line in group))
    return Parts(
        new=_joined(parts[NEW]),
        quoted=_joined(parts[OLD]),
        signature=_joined(parts[SIGNATURE]).removeprefix("--").lstrip(" \n"),
    )


def _joined(pieces: list[str]) -> str:
    return _EMPTY_LINES.sub("\n\n", "\n".join(pieces)).strip("\n")


def _kinds(lines: list[str]) -> list[int]:
    """Say of every line which part it belongs to."""
    kinds: list[int] = []
    state = NEW
    for number, line in enumerate(lines):
        start = line[:_READ]
        if _QUOTED.match(start):
            kinds.append(OLD)
            if state == NEW:
                _claim_attribution(lines, kinds, number)
            continue
        if state != OLD:
            if _is_rest_quoted(lines, number, start):
                state = OLD
            elif _SIGNATURE.match(start) or _begins_footer(lines, number, start):
                state = SIGNATURE
        kinds.append(state)
    return kinds


def _is_rest_quoted(lines: list[str], number: int, start: str) -> bool:
    """Say whether an old message follows that is not marked line by line."""
    if _ORIGINAL.match(start):
        return True
    if _OUTLOOK.match(start):
        return any(_OUTLOOK_NEXT.match(line[:_READ]) for line in lines[number + 1 : number + 3])
    return False


def _begins_footer(lines: list[str], number: int, start: str) -> bool:
    """Say whether a mailing list's own lines follow."""
    if not _RULE.match(start):
        return False
    return any(_LIST_FOOTER.search(line[:_READ]) for line in lines[number + 1 : number + 3])


def _claim_attribution(lines: list[str], kinds: list[int], number: int) -> None:
    """Count the line before a quotation with it, if it says who wrote that."""
    last = number - 1
    while last >= 0 and last >= number - 2 and not lines[last].strip():
        last -= 1
    if last < 0 or kinds[last] != NEW or not _ATTRIBUTION_ENDS.search(lines[last][-_READ:]):
        return
    first = last
    if not _SURE.match(lines[last][:_READ]):
        first = _beginning(lines, kinds, last)
    for each in range(first, number):
        kinds[each] = OLD


def _beginning(lines: list[str], kinds: list[int], last: int) -> int:
    """Give where an attribution begins that goes over several lines; mostly it is one."""
    for first in range(last, max(-1, last - _ATTRIBUTION_LINES), -1):
        if kinds[first] != NEW or not lines[first].strip():
            break
        if _SURE.match(" ".join(lines[first : last + 1])[: 2 * _READ]):
            return first
    return last
