"""The Markdown of summaries as HTML. Whatever it does not know is text, and all text is escaped."""

import re
from collections.abc import Callable
from html import escape

Cite = Callable[[int], str]
"""Gives the HTML of a citation by its number."""

_INLINE = re.compile(
    r"\\(?P<char>[!-/:-@\[-`{-~])"
    r"|\*\*(?P<bold>(?:\\.|[^*\\])+)\*\*"
    r"|\*(?P<slanted>(?:\\.|[^*\\\s])(?:\\.|[^*\\])*)\*"
    r"|`(?P<code>[^`]+)`"
    r"|\[(?P<number>\d{1,4})\]"
)
_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+(.*)")


def to_html(markdown: str, cite: Cite) -> str:
    """Render headings, lists, paragraphs, emphasis, code and citations."""
    parts: list[str] = []
    open_list = False
    for block in re.split(r"\n\s*\n", markdown.strip()):
        paragraph: list[str] = []
        for line in block.split("\n"):
            heading, item = _HEADING.match(line), _ITEM.match(line)
            if open_list and item is None:
                parts.append("</ul>")
                open_list = False
            if (heading or item) and paragraph:
                parts.append(f"<p>{' '.join(paragraph)}</p>")
                paragraph = []
            if heading:
                level = min(len(heading[1]) + 1, 6)  # the page has the first level for itself
                parts.append(f"<h{level}>{line_to_html(heading[2], cite)}</h{level}>")
            elif item:
                parts += ["<ul>"] if not open_list else []
                open_list = True
                parts.append(f"<li>{line_to_html(item[1], cite)}</li>")
            elif line.strip():
                paragraph.append(line_to_html(line.strip(), cite))
        if paragraph:
            parts.append(f"<p>{' '.join(paragraph)}</p>")
    return "\n".join([*parts, *(["</ul>"] if open_list else [])])


def line_to_html(text: str, cite: Cite) -> str:
    """Render one line."""
    parts: list[str] = []
    end = 0
    for found in _INLINE.finditer(text):
        parts += [escape(text[end : found.start()]), _rendered(found, cite)]
        end = found.end()
    return "".join([*parts, escape(text[end:])])


def _rendered(found: re.Match[str], cite: Cite) -> str:
    if found["char"] is not None:
        return escape(found["char"])
    if found["bold"] is not None:
        return f"<strong>{line_to_html(found['bold'], cite)}</strong>"
    if found["slanted"] is not None:
        return f"<em>{line_to_html(found['slanted'], cite)}</em>"
    if found["code"] is not None:
        return f"<code>{escape(found['code'])}</code>"
    return cite(int(found["number"]))
