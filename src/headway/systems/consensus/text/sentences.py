"""Where a text may be cut: after paragraphs, sentences, lines, words, and inside a word at last."""

import re
import unicodedata
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

_WITHOUT_GAP = "\u3002\uff01\uff1f\uff61"
"""Full stops, exclamation and question marks of scripts that have no gaps between sentences."""
_GAP = re.compile(rf"\s+|[{_WITHOUT_GAP}]+")
_ENDS_A_SENTENCE = frozenset(".!?…:;" + _WITHOUT_GAP)
_CLOSES = "\"')]}»\u201d\u2019"
_CLOSING_AT_MOST = 3
_ZERO_WIDTH_JOINER = "\N{ZERO WIDTH JOINER}"
_LONGEST_CLUSTER = 16


class Border(IntEnum):
    """What ends where a text is cut; the higher, the better a place it is."""

    INSIDE = 0
    """Inside a word, because it is longer than a chunk."""
    WORD = 1
    LINE = 2
    SENTENCE = 3
    PARAGRAPH = 4


class Piece(NamedTuple):
    """A part of a text, from start to end, and what ends with it."""

    start: int
    end: int
    border: Border


def pieces_of(text: str, start: int, end: int, *, longest: int) -> Iterator[Piece]:
    """Part text[start:end] into sentences of at most so many characters; nothing is left out."""
    begin = start
    for gap in _GAP.finditer(text, start, end):
        border = _border(text, gap)
        if border >= Border.SENTENCE and gap.end() < end:
            yield from _no_longer(text, Piece(begin, gap.end(), border), longest)
            begin = gap.end()
    if begin < end:
        yield from _no_longer(text, Piece(begin, end, Border.PARAGRAPH), longest)


def cut(text: str, piece: Piece, parts: int) -> Iterator[Piece]:
    """Cut a piece into about so many parts of like length, between words where there are any."""
    step = max(1, -(-(piece.end - piece.start) // parts))
    begin = piece.start
    while piece.end - begin > step:
        place, border = _cut_before(text, begin, begin + step)
        if place >= piece.end:  # all accents, or all one emoji: then through the middle of it
            place = begin + step
        yield Piece(begin, place, border)
        begin = place
    yield Piece(begin, piece.end, piece.border)


def _border(text: str, gap: re.Match[str]) -> Border:
    found = gap[0]
    if not found[0].isspace():
        return Border.SENTENCE
    if found.count("\n") > 1:
        return Border.PARAGRAPH
    before = text[max(gap.start() - 1 - _CLOSING_AT_MOST, 0) : gap.start()].rstrip(_CLOSES)
    if before and before[-1] in _ENDS_A_SENTENCE:
        return Border.SENTENCE
    return Border.LINE if "\n" in found else Border.WORD


def _no_longer(text: str, piece: Piece, longest: int) -> Iterator[Piece]:
    length = piece.end - piece.start
    if length <= longest:
        yield piece
    else:
        yield from cut(text, piece, -(-length // longest))


def _cut_before(text: str, begin: int, place: int) -> tuple[int, Border]:
    """Find the last gap between words before a place; if there is none, cut inside the word.

    Only the second half is looked through: a part that is too short would not be worth it.
    """
    for at in range(place, begin + (place - begin) // 2, -1):
        if text[at - 1].isspace():
            return at, Border.LINE if text[at - 1] == "\n" else Border.WORD
    return _outside_a_cluster(text, place), Border.INSIDE


def _outside_a_cluster(text: str, place: int) -> int:
    """Move a cut behind accents and the parts of an emoji, unless there is no end of them."""
    for at in range(place, min(place + _LONGEST_CLUSTER, len(text))):
        if not _joins(text[at - 1], text[at]):
            return at
    return place


def _joins(left: str, right: str) -> bool:
    return (
        _ZERO_WIDTH_JOINER in {left, right}
        or unicodedata.combining(right) != 0
        or unicodedata.category(right) in {"Mn", "Me", "Mc"}  # variation selectors are Mn
        or "\U0001f3fb" <= right <= "\U0001f3ff"  # colours of skin
    )
