"""Tokens: how long a text is for a model."""

import re
from collections.abc import Sequence
from typing import Protocol

_VISIBLE = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")
_LETTERS = 5
_BYTES = 3


class Tokenizer(Protocol):
    """Counts tokens as one model does."""

    @property
    def name(self) -> str:
        """Names the way of counting."""
        ...

    def count(self, texts: Sequence[str]) -> list[int]:
        """Say how many tokens each text has; a text that is visible has at least one."""
        ...


class PlainTokenizer:
    """Counts by a simple rule, for models whose own tokenizer is not here.

    Five letters or digits of plain English are a token, and so are three bytes of anything else:
    rather too many tokens than too few, so that a model refuses no chunk for its length.

    >>> PlainTokenizer().count(["retry it", "internationally!", "再試行"])
    [2, 4, 3]
    """

    name = "plain"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [sum(map(_tokens, _VISIBLE.findall(text))) for text in texts]


def _tokens(word: str) -> int:
    if word.isascii():
        return -(-len(word) // _LETTERS)
    return -(-len(word.encode("utf-8", "surrogatepass")) // _BYTES)
