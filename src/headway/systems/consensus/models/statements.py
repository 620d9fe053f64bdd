"""What a mail states, sentence by sentence, without greetings, signatures and code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_ITEM = re.compile(r"^[ \t]*(?:[-*\N{BULLET}\N{EN DASH}]|\(?\d{1,2}[.)])[ \t]+", re.MULTILINE)
_STOP = r"(?<=[.!?\N{HORIZONTAL ELLIPSIS}])[\"')\]\N{RIGHT DOUBLE QUOTATION MARK}]*\s+"
_END = re.compile(_STOP + r"(?=[\"'(\[]?[^\W_a-z])")
_END_IN_SMALL_LETTERS = re.compile(_STOP + r"(?=[\"'(\[]?\w)")
"""For those who never write capitals."""
_ABBREVIATION = re.compile(
    r"\b(?:[eE]\.g|[iI]\.e|etc|vs|cf|approx|resp|Mr|Mrs|Ms|Dr|Prof|St|No|Fig|[A-Z])\.$"
)
_GREETING = re.compile(
    r"^(?:hi|hello|hey|hallo|dear|greetings|good (?:morning|afternoon|evening|day))\b[^.?]{0,40}$",
    re.IGNORECASE,
)
_FAREWELL = re.compile(
    r"^(?:many thanks|thanks|thank you|thx|cheers|regards|best|best regards|best wishes|"
    r"kind regards|warm regards|ciao|bye|yours|sincerely|see you|have a (?:nice|good|great)|"
    r"hope (?:this|that) helps)"
    r"\b[^?]{0,40}$",
    re.IGNORECASE,
)
_WROTE = re.compile(r"\b(?:wrote|writes|schrieb|said):$", re.IGNORECASE)
_CODE = re.compile(r"^(?: {4,}|\t|\$ |>{3} |#!|[|+]-|```|[<{}\[\]];?$)")
_WORDLIKE = re.compile(r"[^\W\d_]{2,}")
_FEWEST_WORDS = 4
_FEWEST_WORDS_OF_AN_ITEM = 8
"""Of what has no end: a part of a list says little without the rest."""
_MOST_WORDS = 60
_ENDS = (".", "!", "?", '."', '!"', '?"', ".)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence, and where it is in its message."""

    text: str
    """On one line."""
    start: int
    end: int

    @property
    def is_quotable(self) -> bool:
        """Say whether it tells something to a person who has not read the rest."""
        count = len(_WORDLIKE.findall(self.text))
        least = _FEWEST_WORDS if self.text.endswith(_ENDS) else _FEWEST_WORDS_OF_AN_ITEM
        return least <= count <= _MOST_WORDS and not self.text.endswith(":")


def statements(body: str) -> list[Statement]:
    """Give the sentences of a message in their order."""
    return [
        each
        for start, end in _blocks(body)
        for each in _sentences(body, start, end)
        if not _is_manners(each.text)
    ]


def _blocks(body: str) -> Iterator[tuple[int, int]]:
    """Give paragraphs and items of lists; code is left out."""
    start = 0
    for gap in [*(found.span() for found in _PARAGRAPH.finditer(body)), (len(body), len(body))]:
        end = gap[0]
        cuts = [start, *(item.end() for item in _ITEM.finditer(body, start, end)), end]
        for one, other in pairwise(cuts):
            marked = _ITEM.search(body, one, other)
            stop = marked.start() if marked else other
            if body[one:stop].strip() and not _is_code(body[one:stop]):
                yield one, stop
        start = gap[1]


def _is_code(block: str) -> bool:
    lines = [line for line in block.split("\n") if line.strip()]
    coded = sum(_CODE.match(line) is not None for line in lines)
    letters = sum(each.isalpha() or each.isspace() for each in block)
    short = len(block) < 20  # noqa: PLR2004 ("+1" and its like)
    return coded * 2 > len(lines) or (not short and letters < 0.7 * len(block))


def _sentences(body: str, start: int, end: int) -> Iterator[Statement]:
    begin = start
    first = next(filter(str.isalpha, body[start:end]), "")
    ends = _END_IN_SMALL_LETTERS if first.islower() else _END
    for found in [*ends.finditer(body, start, end), None]:
        stop = end if found is None else found.start()
        if found is not None and _ABBREVIATION.search(body[begin:stop]):
            continue
        if found is not None:  # closing quotes belong to the sentence
            stop += len(found.group().rstrip())
        raw = body[begin:stop]
        text = " ".join(raw.split())
        if text:
            lead = len(raw) - len(raw.lstrip())
            yield Statement(text, begin + lead, begin + lead + len(raw.strip()))
        begin = end if found is None else found.end()


def _is_manners(text: str) -> bool:
    return bool(_GREETING.match(text) or _FAREWELL.match(text) or _WROTE.search(text))
