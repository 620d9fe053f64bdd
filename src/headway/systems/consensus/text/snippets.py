"""Snippets: the part of a passage that holds the words that were asked for, with these marked."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from headway.systems.consensus.text.words import places, terms

_LONGEST = 240
_BEFORE = 40
"""Characters to show in front of the first word."""
_MARKS_AT_MOST = 200
_LEFT_OUT = "…"


@dataclass(frozen=True, slots=True)
class Snippet:
    """One line of text, and where the words in it stand."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()

    def parts(self) -> Iterator[tuple[str, bool]]:
        """Give the text in parts, and of each whether it is one of the words."""
        behind = 0
        for start, end in self.marks:
            if start > behind:
                yield self.text[behind:start], False
            yield self.text[start:end], True
            behind = end
        if behind < len(self.text):
            yield self.text[behind:], False

    def marked(self, before: str = "**", after: str = "**") -> str:
        """Give the text with signs around the words."""
        return "".join(
            f"{before}{part}{after}" if is_word else part for part, is_word in self.parts()
        )


def snippet(text: str, wanted: Collection[str], longest: int = _LONGEST) -> Snippet:
    """Show the place with most of these words (in the form that `terms` gives them)."""
    line = " ".join(text.split())
    found = _joined(places(line, wanted))[:_MARKS_AT_MOST]
    start = _best_start(line, found, longest)
    end = min(len(line), start + longest)
    if end < len(line):
        end = line.rfind(" ", start + longest // 2, end) + 1 or end
    front = _LEFT_OUT if start else ""
    shown = front + line[start:end].rstrip() + (_LEFT_OUT if end < len(line) else "")
    shift = len(front) - start
    marks = [
        (first + shift, last + shift) for first, last in found if first >= start and last <= end
    ]
    return Snippet(shown, tuple(marks))


def _joined(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Make one of places that overlap, as pairs of Chinese characters do."""
    joined: list[tuple[int, int]] = []
    for start, end in found:
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _best_start(line: str, found: list[tuple[int, int]], longest: int) -> int:
    """Begin where most different words follow, a little before the first of them."""
    best, most = 0, 0
    for start, _ in found:
        begin = max(0, start - _BEFORE)
        words = {
            tuple(terms(line[first:last]))
            for first, last in found
            if begin <= first and last <= begin + longest
        }
        if len(words) > most:
            best, most = begin, len(words)
    if best + longest >= len(line):
        best = max(0, len(line) - longest)
    return line.find(" ", best, best + _BEFORE) + 1 or best if best else 0
