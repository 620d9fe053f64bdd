"""HTML to plain text: what is read in it, in lines; quotations marked as in plain mail.

Not with html.parser: over tags that are never closed it takes a time that grows with the square of
their number, minutes for a few hundred kilobytes. Here every step goes through the page once.
"""

import re
from collections.abc import Iterator
from html import unescape
from typing import Final

_LONGEST = 2_000_000
_UNREAD: Final = frozenset({"script", "style", "title", "template", "noscript", "svg", "math"})
_APART: Final = frozenset(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "ul", "ol", "table", "hr"}
)
"""With an empty line before and after."""
_LINES: Final = _APART | {
    *("address", "article", "aside", "body", "center", "dd", "div", "dl", "dt", "fieldset"),
    *("figure", "footer", "form", "header", "li", "main", "nav", "section", "tr"),
}
_SPACES = re.compile(r"[ \t\r\n\f\xa0\u200b\u200c]+")
_TOKEN = re.compile(r"(<[a-zA-Z/!?][^<>]{0,4000}>)")
_NAME = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})")
_OPENS = re.compile(r"<!--|<(" + "|".join(sorted(_UNREAD)) + r")\b", re.IGNORECASE)
_DEEPEST = 20


def text_of(html: str) -> str:
    r"""Give the text of a page; scripts, styles and markup are left out.

    >>> text_of("<style>p{}</style><p>A &amp; B<br>c<blockquote>old</blockquote>")
    'A & B\nc\n\n> old'
    """
    reader = _Reader()
    for piece in _read_parts(html[:_LONGEST]):
        for token in _TOKEN.split(piece):
            tag = _NAME.match(token)
            if tag is not None and token[-1] == ">":
                reader.take_tag(tag[2].lower(), ends=bool(tag[1]))
            elif token and not token.startswith(("<!", "<?", "</")):
                reader.take_text(unescape(token))
    return reader.text()


def _read_parts(html: str) -> Iterator[str]:
    """Give a page without comments, scripts and their like; what has no end goes to the end."""
    lower = html.lower() if len(html.lower()) == len(html) else html
    at = 0
    while (opens := _OPENS.search(html, at)) is not None:
        yield html[at : opens.start()]
        closes = f"</{opens[1].lower()}" if opens[1] else "-->"
        end = lower.find(closes, opens.end())
        if end < 0:
            return
        at = end + len(closes)
        if opens[1]:
            at = html.find(">", at) + 1 or len(html)
    yield html[at:]


class _Reader:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._quoted = 0
        self._pre = 0

    def take_tag(self, tag: str, *, ends: bool) -> None:
        if tag == "br":
            self._end_line(even_if_empty=True)
        elif tag in _LINES:
            (self._end if ends else self._begin)(tag)
        elif tag in {"td", "th"} and self._line:
            self._line.append(" ")

    def _begin(self, tag: str) -> None:
        self._end_line()
        if tag in _APART:
            self._empty_line()
        if tag == "blockquote":
            self._quoted += 1
        elif tag == "pre":
            self._pre += 1
        elif tag == "li":
            self._line.append("- ")

    def _end(self, tag: str) -> None:
        self._end_line()
        if tag == "blockquote":
            self._quoted = max(0, self._quoted - 1)
        elif tag == "pre":
            self._pre = max(0, self._pre - 1)
        if tag in _APART:
            self._empty_line()

    def take_text(self, data: str) -> None:
        if not self._pre:
            data = _SPACES.sub(" ", data)
            if data == " " and not self._line:
                return
            self._line.append(data)
            return
        first, *others = data.split("\n")
        self._line.append(first)
        for each in others:
            self._end_line(even_if_empty=True)
            self._line.append(each)

    def _end_line(self, *, even_if_empty: bool = False) -> None:
        line = "".join(self._line)
        self._line.clear()
        line = line.rstrip() if self._pre else _SPACES.sub(" ", line).strip()
        if line or even_if_empty:
            mark = ">" * min(self._quoted, _DEEPEST)
            self._lines.append(f"{mark} {line}".rstrip() if mark else line)

    def _empty_line(self) -> None:
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def text(self) -> str:
        self._end_line()
        return "\n".join(self._lines).strip("\n")
