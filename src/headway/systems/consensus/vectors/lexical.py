"""What the words of a passage count: the rule called BM25, without regard to length.

A passage is a chunk, so none is long; and on a mailing list the short ones are "+1" and "thanks".
"""

import math
import struct
from collections import Counter
from zlib import crc32

from headway.systems.consensus.text.words import terms
from headway.systems.consensus.vectors.store import Passage

Scored = list[tuple[str, float]]
"""Ids of chunks with their scores, best first."""

_SATURATION = 1.2
"""How slowly a word that is there again and again stops counting more (k1)."""
_SUBJECT = 0.3
"""What a word in the subject counts, against one in the text: all answers of a thread have it."""


def number(term: str) -> int:
    """Give the number that a word is kept by; the few that share one are taken for each other."""
    return crc32(term.encode())


def word_weights(passage: Passage) -> dict[int, float]:
    """Say how much each word of a passage counts: n (k1 + 1) / (n + k1), where it is n times."""
    times: dict[int, float] = dict(Counter(map(number, terms(passage.text))))
    for each in set(map(number, terms(passage.subject))):
        times[each] = times.get(each, 0.0) + _SUBJECT
    return {each: n * (_SATURATION + 1) / (n + _SATURATION) for each, n in times.items()}


def packed(weights: dict[int, float]) -> bytes:
    """Write down what the words of a passage count: four bytes for the number, four for that."""
    return b"".join(struct.pack("<If", each, weight) for each, weight in weights.items())


def rarity(passages: int, of: int) -> float:
    """Say what a word counts that is in so many of all passages: ln(1 + (all - n + ½) / (n + ½)).

    >>> round(rarity(1, 1000), 2), round(rarity(1000, 1000), 4)
    (6.5, 0.0005)
    """
    return math.log(1 + (of - passages + 0.5) / (passages + 0.5))
