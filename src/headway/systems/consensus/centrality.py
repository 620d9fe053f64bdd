"""How central a text is among others: what most of them speak of, it speaks of too."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from headway.systems.consensus.text.words import terms

_SAYING_NOTHING = frozenset(
    terms(
        """a about above after again all also am an and any anyone anything are as at be because
        been before being both but by can cannot could did do does doing done down each either else
        even ever every few for from further get give go going got had has have having he her here
        hers him his how however i if in into is it its itself just know let like made make many
        may maybe me might more most much must my need no nor not now of off on once one only or
        other our out over own perhaps please put rather re really said same say see seem she
        should since so some still such sure take than thank thanks that the their them then there
        these they thing think this those though through to too under until up us use very want was
        way we well were what when where whether which while who whom why will with without would
        yes yet you your don't isn't i'm"""
    )
)


_WORD = re.compile(r"[^\W_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}][^\W_]+)?")


def words(text: str) -> list[str]:
    """Give the words that say what a text is about.

    >>> words("The servers were moved to the new rack.")
    ['server', 'mov', 'new', 'rack']
    """
    return [term for word in _WORD.findall(text) for term in _telling(word)]


@lru_cache(maxsize=50_000)  # a discussion has many words, and few that differ
def _telling(word: str) -> tuple[str, ...]:
    return tuple(term for term in terms(word) if term not in _SAYING_NOTHING)


Weights = dict[str, float]


def weigh(texts: Sequence[str]) -> list[Weights]:
    """Weigh the words of each text by TF-IDF; every one that has words is of length 1."""
    counted = [Counter(words(text)) for text in texts]
    found_in: Counter[str] = Counter()
    for each in counted:
        found_in.update(each.keys())
    rarity = {word: 1.0 + math.log(len(texts) / count) for word, count in found_in.items()}
    return [_normalized({w: n * rarity[w] for w, n in each.items()}) for each in counted]


def _normalized(weights: Weights) -> Weights:
    length = math.hypot(*weights.values())
    return {word: weight / length for word, weight in weights.items()} if length else {}


def similarity(one: Weights, other: Weights) -> float:
    """Give the cosine of two texts, from 0 to 1."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    return sum(weight * many[word] for word, weight in few.items() if word in many)


def centralities(weighed: Sequence[Weights]) -> list[float]:
    """Give the similarity of each text to the middle of all, from 0 to 1, to six digits.

    It costs as much as there are words, so that a thread of thousands of messages is no burden.
    """
    middle: Weights = {}
    for weights in weighed:
        for word, weight in weights.items():
            middle[word] = middle.get(word, 0.0) + weight
    middle = _normalized(middle)
    # Rounded, so that the order of a sum never decides between two texts.
    return [round(min(similarity(weights, middle), 1.0), 6) for weights in weighed]
