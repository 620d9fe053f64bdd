"""The header of a message or of one of its parts, however broken it is.

The parser of the standard library gives up at the first line that is no header and takes the rest
for text; here such a line is passed over while headers follow. Values are decoded by hand: the
modern policy of `email` raises over some broken ones, and takes long over others.
"""

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, a2b_qp
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.systems.consensus.mail.charsets import clean, decoded

_LONGEST_HEAD = 256 * 1024
"""So much of it is looked at; the text begins after all of it."""
_LONGEST_VALUE = 64 * 1024
_END = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r(?!\n)")
_FIELD = re.compile(rb"([!-9;-~]{1,100})[ \t]{0,10}:(.*)", re.DOTALL)
_KNOWN = re.compile(
    r"(?:x|list|content|resent|received|arc|dkim)-|(?:from|to|cc|bcc|subject|date|message-id|sender|"
    r"references|in-reply-to|reply-to|received|return-path|mime-version|user-agent|delivered-to)\Z"
)
_WORD = re.compile(r"=\?([^?\s]{1,60})\?([bBqQ])\?([^?\r\n]{0,4000})\?=")
_BETWEEN_WORDS = re.compile(r"(?<=\?=)\s+(?==\?[^?\s]{1,60}\?[bBqQ]\?)")


@dataclass(frozen=True, slots=True)
class Head:
    """The fields of a header as bytes, in their order, under names in small letters."""

    fields: Mapping[str, Sequence[bytes]]

    def all(self, name: str) -> list[str]:
        """Give every value of a field, in one line each, encoded words decoded."""
        return [readable(value) for value in self.raw(name)]

    def first(self, name: str) -> str:
        """Give the first value that is not empty: of double headers, clients show that one."""
        return next((value for value in map(readable, self.raw(name)) if value), "")

    def plain(self, name: str) -> str:
        """Give the first value in one line, with nothing decoded that stands for something else."""
        return next((value for value in map(one_line, self.raw(name)) if value), "")

    def raw(self, name: str) -> Sequence[bytes]:
        return self.fields.get(name, ())


def read_head(message: bytes) -> tuple[Head, int]:
    r"""Give the header, and where the text begins; what is no header is text from the beginning.

    >>> read_head(b"Subject: a\n b\nbroken line\nTo: c\n\ntext")[0].first("subject")
    'a b'
    """
    if message[:1] in {b"\n", b"\r"}:  # no header at all, which is allowed for parts
        return Head({}), 0
    end = _END.search(message)
    length = end.start() if end else len(message)
    block = message[: min(length, _LONGEST_HEAD)]
    spans: list[tuple[str, int, int]] = []
    rest = at = 0
    for line in block.splitlines(keepends=True):
        begin, at = at, at + len(line)
        if line[:1] in {b" ", b"\t"}:
            if spans and begin == rest:
                name, start, _ = spans[-1]
                spans[-1] = (name, start, at)
                rest = at
        elif (field := _FIELD.match(line)) is not None:
            name = field[1].decode("ascii").lower()
            # After a broken line, only a name that everybody knows says that this is no text yet.
            if begin == rest or _KNOWN.match(name) is not None:
                spans.append((name, begin + field.start(2), at))
                rest = at
        elif begin == rest and at == len(block) < length:  # cut off in the name of a field
            rest = at
    fields: dict[str, list[bytes]] = {}
    for name, start, stop in spans:
        fields.setdefault(name, []).append(block[start : min(stop, start + _LONGEST_VALUE)])
    if spans and rest >= len(block):
        rest = end.end() if end else length
    return Head(fields), rest


def one_line(value: bytes) -> str:
    """Give a value unfolded, without decoding encoded words."""
    return " ".join(clean(decoded(value)).split())


def readable(value: bytes) -> str:
    """Give a value as people read it: unfolded, encoded words decoded where they can be."""
    text = one_line(value)
    if "=?" not in text:
        return text
    return " ".join(clean(_words_decoded(text)).split())


def _words_decoded(text: str) -> str:
    """Decode encoded words; what is broken stays as it is.

    Words side by side are one text: some programs cut in the middle of a letter.
    """
    text = _BETWEEN_WORDS.sub("", text)
    result: list[str] = []
    octets, charset, at = b"", "", 0
    for word in _WORD.finditer(text):
        piece = _octets(word[2], word[3])
        if piece is None:
            continue
        its_charset = word[1].partition("*")[0].lower()
        if word.start() > at or its_charset != charset:
            result += [decoded(octets, charset), text[at : word.start()]]
            octets, charset = b"", its_charset
        octets += piece
        at = word.end()
    return "".join([*result, decoded(octets, charset), text[at:]])


def _octets(encoding: str, word: str) -> bytes | None:
    try:
        if encoding in "qQ":
            return a2b_qp(word.encode("ascii"), header=True)
        return base64_octets(word.encode("ascii"))
    except (UnicodeEncodeError, Base64Error):
        return None


_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]+")


def base64_octets(text: bytes) -> bytes:
    """Decode base64 that may be cut off, badly padded or mixed with other characters."""
    digits = _NOT_BASE64.sub(b"", text)
    whole = digits[: len(digits) - (1 if len(digits) % 4 == 1 else 0)]
    return a2b_base64(whole + b"=" * (-len(whole) % 4))
