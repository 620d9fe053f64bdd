"""Words: what a text is found by, whatever form a word stands in."""

import re
import unicodedata
from collections.abc import Collection, Iterator

_APOSTROPHE = "\N{RIGHT SINGLE QUOTATION MARK}"
_WORD = re.compile(rf"[^\W_]+(?:['{_APOSTROPHE}][^\W_]+)?")
_UNBROKEN = re.compile(r"[^\W_]+")
_WITHOUT_GAPS = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_LONGEST = 64
_SHORTEST_STEM = 3
_VOWELS = frozenset("aeiouy")
_KEPT_DOUBLE = frozenset("lsz")

_SAYING_NOTHING = """
a about after all also am an and any anybody anyone are as ask asked at be because been before
being between but by can could did do does doing done for from get give given had has have he
her him his how i if in into is it its just let make many may me might more most much must my no
nobody not of on one or our out over people person said same say says shall she should so some
somebody someone such tell than that the their them then there these they this those to too up
us use used using very was way we were what when where which while who whom whose why will with
would you your
"""
# Words of a question that are in every text: they are looked for only if there are no others.


def terms(text: str) -> list[str]:
    """Give the words of a text in the form by which they are compared, in their order.

    Capitals, accents and common endings make no difference. Of scripts without gaps between words,
    every two neighbours are a word.

    >>> terms("Retries, retried, RETRYING: the café's policies")
    ['retri', 'retri', 'retri', 'the', 'caf', 'polici']
    """
    return [term for _, _, found in _words(text) for term in found]


def terms_of_question(question: str) -> list[str]:
    """Give the words of a question that say what it is about, each once."""
    asked = {term: None for _, _, found in _words(question) for term in found}
    telling = [term for term in asked if term not in _STEMS_SAYING_NOTHING]
    return telling or list(asked)


def places(text: str, wanted: Collection[str]) -> list[tuple[int, int]]:
    """Say where in a text words stand that are compared as these are."""
    return [(start, end) for start, end, found in _words(text) if not set(found).isdisjoint(wanted)]


def _words(text: str) -> Iterator[tuple[int, int, list[str]]]:
    for word in _WORD.finditer(text):
        if _WITHOUT_GAPS.search(word[0]):
            for run in _UNBROKEN.finditer(word[0]):
                yield from _pairs(run[0], word.start() + run.start())
        else:
            stem = _stem(_plain(word[0])[:_LONGEST])
            yield word.start(), word.end(), [stem] if stem else []


def _pairs(run: str, start: int) -> Iterator[tuple[int, int, list[str]]]:
    if len(run) == 1:
        yield start, start + 1, [run]
    for at in range(len(run) - 1):
        yield start + at, start + at + 2, [run[at : at + 2].casefold()]


def _plain(word: str) -> str:
    if word.isascii():
        return word.lower()
    apart = unicodedata.normalize("NFKD", word.casefold())
    return "".join(each for each in apart if each.isalnum() or each == "'")


def _stem(word: str) -> str:
    """Take off the common endings of English, as the first steps of Porter's rule do."""
    word = word.replace(_APOSTROPHE, "'").partition("'")[0]
    if not word.isascii() or len(word) <= _SHORTEST_STEM or any(map(str.isdigit, word)):
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith(("sses", "ies")) else word[:-1]
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _SHORTEST_STEM and not _VOWELS.isdisjoint(stem):
            word = _mended(stem)
            break
    if len(word) > _SHORTEST_STEM and word.endswith("y") and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    return word.rstrip("e") if len(word) > _SHORTEST_STEM else word


def _mended(stem: str) -> str:
    """Give what is left without an ending the form that the word has alone: stopp, stop."""
    if stem[-1] == stem[-2] and stem[-1] not in _KEPT_DOUBLE and stem[-1] not in _VOWELS:
        return stem[:-1]
    return stem


_STEMS_SAYING_NOTHING = frozenset(map(_stem, _SAYING_NOTHING.split()))
