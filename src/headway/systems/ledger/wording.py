"""What is wrong with a field, in plain words and with its cure.

msgspec's own sentences name Python types and regular expressions, which say little to a sender.
"""

import re
from collections.abc import Callable

from headway.systems.ledger.events import EVENT_TYPES, IDENTIFIER, IDENTIFIER_IN_WORDS

_TYPES = f"use one of {', '.join(EVENT_TYPES)}"
_TIME = "write it like 2026-11-15T12:00:00Z"
_LONGEST_QUOTE = 60

_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "datetime": f"a time: {_TIME}",
    "float": "a number with a fraction",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a text",
}


def _kind(name: str) -> str:
    return _KINDS.get(name, name)


def _no_such_type(match: re.Match[str]) -> str:
    return f"{match[1][:_LONGEST_QUOTE]} is no event type: {_TYPES}"


def _other_kind(match: re.Match[str]) -> str:
    found = _kind(match[2])
    return f"is {found} and must be {_kind(match[1])}"


def _shape(match: re.Match[str]) -> str:
    if match[1] == repr(IDENTIFIER):
        return f"use {IDENTIFIER_IN_WORDS}"
    return "leave out line breaks and other control characters"


_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"Object missing required field `event_type`", f"is missing: {_TYPES}"),
    (r"Object missing required field .*", "is missing"),
    (r"Object contains unknown field .*", "is not known here: mend its spelling or leave it out"),
    (r"Invalid value (.*)", _no_such_type),
    (r"Invalid RFC3339 encoded datetime", f"is no time: {_TIME}"),
    (r"Expected `datetime` with a timezone component", f"has no time zone: {_TIME}"),
    (r"Expected `str` matching regex (.*)", _shape),
    (r"Expected `str` of length >= 1", "is empty and must not be"),
    (r"Expected `str` of length <= (\d+)", r"is longer than \1 characters"),
    (r"Expected `int` >= (-?\d+)", r"must be at least \1"),
    (r"Expected `int` <= (-?\d+)", r"must be at most \1"),
    (r"Expected `(\w+)`, got `(\w+)`", _other_kind),
    # Only the type of an event is checked without a word on what came instead.
    (r"Expected `str`", f"must be a text: {_TYPES}"),
)
_COMPILED = tuple((re.compile(pattern, re.DOTALL), words) for pattern, words in _WORDS)


def in_plain_words(sentence: str) -> str:
    """Say a sentence of msgspec's in ours; one that we do not know stays as it is."""
    for pattern, words in _COMPILED:
        if match := pattern.fullmatch(sentence):
            return match.expand(words) if isinstance(words, str) else words(match)
    return sentence
