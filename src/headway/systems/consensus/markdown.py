"""The little Markdown that summaries are written in: escaped text, and numbered citations."""

import re

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&])")
_AT_THE_BEGINNING = re.compile(r"^(\d*)([-+=.)])(?=\s|$)")
"""What would make a list or a heading of it."""
_UNTAMED = re.compile(r"[\\<>\[\]`~]")
"""Also what opens a fence: one left open takes in what follows, and lets out what is in others."""


def escaped(text: str) -> str:
    r"""Give a text of somebody else's as Markdown that shows it as it is, on one line.

    >>> print(escaped("see *this* [1] <b>"))
    see \*this\* \[1\] \<b\>
    """
    line = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return _AT_THE_BEGINNING.sub(r"\1\\\2", line)


def tamed(markdown: str) -> str:
    r"""Give a model's Markdown with no HTML, link, image or fence: nothing in it can load or run.

    >>> print(tamed("<img src=x> ![a](http://b)"))
    \<img src=x\> !\[a\](http://b)
    """
    return _UNTAMED.sub(r"\\\g<0>", markdown)
