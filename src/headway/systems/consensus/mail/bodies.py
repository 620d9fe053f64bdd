"""The text of a message: its parts found, decoded and put together; attachments are left out.

The parts are found here and not by the parser of `email`: that one calls itself for every level of
nesting, compares each line with the boundaries of all levels, and has no limit for either. Of
`email` we take what reads a Content-Type with its parameters, in the policy compat32: it leaves
values alone, where the modern policy raises over some broken ones.
"""

import re
from binascii import a2b_qp
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.policy import compat32

from headway.systems.consensus.mail.charsets import clean, decoded
from headway.systems.consensus.mail.flowed import unflowed
from headway.systems.consensus.mail.headers import Head, base64_octets, one_line, read_head
from headway.systems.consensus.mail.html_to_text import text_of

_DEEPEST = 20
_MOST_PARTS = 500
_LONGEST_TYPE = 1_000
_GUESSED_BOUNDARY = re.compile(rb"\s{0,100}--([^\r\n]{1,200}?)[ \t]*\r?\n")
_REST_OF_LINE = re.compile(rb"(--)?[ \t]{0,200}(?=\r|\n|\Z)")
_TRIVIAL = re.compile(
    r"text/plain\s*(?:;\s*charset=\"?([\w.:-]{1,40})\"?\s*;?\s*)?\Z", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a part says that it is."""

    name: str = "text/plain"
    charset: str = ""
    boundary: bytes = b""
    flowed: bool = False
    delete_space: bool = False


@dataclass(slots=True)
class _Budget:
    """How many parts may still be looked at: a message of a million parts is an attack."""

    left: int = _MOST_PARTS

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def read_text(head: Head, body: bytes) -> str:
    """Give everything in a message that is to be read, as plain text."""
    return clean(_text(head, body, 0, _Budget()))


def _text(head: Head, body: bytes, depth: int, budget: _Budget) -> str:
    kind = _kind(head)
    if depth and _is_attachment(head):
        return ""
    if kind.name.startswith("multipart/") and depth < _DEEPEST:
        return _of_parts(kind, body, depth, budget)
    if kind.name in {"message/rfc822", "message/global"}:
        return _of_enclosed(body, depth, budget)
    if kind.name == "text/html":
        return text_of(_characters(head, kind, body))
    if kind.name not in {"text/plain", "text/enriched", "text/markdown"}:
        return ""
    text = clean(_characters(head, kind, body))
    return unflowed(text, delete_space=kind.delete_space) if kind.flowed else text


def _of_parts(kind: _Kind, body: bytes, depth: int, budget: _Budget) -> str:
    parts = _split(kind.boundary, body)
    if parts is None:  # it says that it has parts, and has none
        return clean(decoded(body))
    texts: list[tuple[str, str]] = []
    for part in parts:
        if not budget.take():
            break
        head, start = read_head(part)
        default = "message/rfc822" if kind.name == "multipart/digest" else "text/plain"
        if not head.raw("content-type") and default != "text/plain":
            head = Head({**head.fields, "content-type": [default.encode()]})
        text = _text(head, part[start:], depth + 1, budget).strip("\n")
        if text.strip():
            texts.append((_kind(head).name, text))
    if kind.name == "multipart/alternative":
        return _best(texts)
    return "\n\n".join(text for _, text in texts)


def _best(texts: list[tuple[str, str]]) -> str:
    """Of texts that say the same, take the plain one; it needs no guessing."""
    plain = [text for name, text in texts if name == "text/plain"]
    return plain[0] if plain else texts[-1][1] if texts else ""


def _of_enclosed(body: bytes, depth: int, budget: _Budget) -> str:
    if depth >= _DEEPEST or not budget.take():
        return ""
    head, start = read_head(body)
    text = _text(head, body[start:], depth + 1, budget)
    return "\n\n".join(filter(None, [head.first("subject"), text]))


def _split(boundary: bytes, body: bytes) -> Iterator[bytes] | None:
    """Give the parts between boundaries; the last one may be missing its end."""
    for each in (boundary, _guessed(body)):
        if each and (first := next(_delimiters(each, body), None)) is not None:
            return _between(each, body, first.end)
    return None


def _guessed(body: bytes) -> bytes:
    guess = _GUESSED_BOUNDARY.match(body)
    return guess[1] if guess else b""


@dataclass(frozen=True, slots=True)
class _Delimiter:
    start: int
    end: int
    is_last: bool


def _delimiters(boundary: bytes, body: bytes, start: int = 0) -> Iterator[_Delimiter]:
    """Give the lines that are a boundary; looked for as plain bytes, for a body may be large."""
    mark = b"--" + boundary
    at = body.find(mark, start)
    while at >= 0:
        rest = _REST_OF_LINE.match(body, at + len(mark))
        if rest is not None and (at == 0 or body[at - 1] in b"\r\n"):
            before = 2 if body[max(0, at - 2) : at] == b"\r\n" else 1
            yield _Delimiter(max(start, at - before), rest.end(), bool(rest[1]))
        at = body.find(mark, at + len(mark))


def _between(boundary: bytes, body: bytes, start: int) -> Iterator[bytes]:
    for found in _delimiters(boundary, body, start):
        yield _without_line_end(body[start : found.start])
        if found.is_last:
            return
        start = found.end
    yield _without_line_end(body[start:])


def _without_line_end(part: bytes) -> bytes:
    """Leave out the rest of the boundary's own line."""
    return part[2:] if part[:2] == b"\r\n" else part[1:] if part[:1] in {b"\n", b"\r"} else part


def _is_attachment(head: Head) -> bool:
    return head.plain("content-disposition").lower().lstrip().startswith("attachment")


def _kind(head: Head) -> _Kind:
    value = head.plain("content-type")[:_LONGEST_TYPE]
    if not value:
        return _Kind()
    if (trivial := _TRIVIAL.match(value)) is not None:
        return _Kind(charset=trivial[1] or "")
    part = Message(policy=compat32)
    part["Content-Type"] = value
    name = part.get_content_type()
    if not value.lower().lstrip().startswith(name):
        name = "text/plain"  # what is no type at all is read as text
    boundary = _parameter(part, "boundary")
    return _Kind(
        name=name,
        charset=_parameter(part, "charset"),
        boundary=boundary.encode("utf-8", "replace").rstrip(),
        flowed=_parameter(part, "format").lower() == "flowed",
        delete_space=_parameter(part, "delsp").lower() == "yes",
    )


def _parameter(part: Message, name: str) -> str:
    try:
        value = part.get_param(name, "")
    except (ValueError, LookupError):  # a broken RFC 2231 value
        return ""
    if isinstance(value, tuple):  # charset, language and value, by RFC 2231
        value = value[2]
    return str(value)


def _characters(head: Head, kind: _Kind, body: bytes) -> str:
    return decoded(_octets(head, body), kind.charset)


def _octets(head: Head, body: bytes) -> bytes:
    encoding = one_line(b"".join(head.raw("content-transfer-encoding")[:1])).lower().strip(" \"'")
    if encoding.startswith("quoted"):
        return a2b_qp(body)
    if encoding.startswith("base64"):
        return base64_octets(_base64_only(body))
    return body


_AFTER_BASE64 = re.compile(rb"=[ \t\r]*\n[ \t\r]*\n")


def _base64_only(body: bytes) -> bytes:
    """Leave out what mailing lists append behind base64 in plain text."""
    end = _AFTER_BASE64.search(body)
    return body[: end.start()] if end else body
