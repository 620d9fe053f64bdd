"""Where the messages of an mbox lie: offsets, found without reading the file into memory.

An mbox has no structure but this: a message begins with a line `From ADDRESS DATE`, after an empty
line, and such lines in texts were quoted as `>From `. Many programs leave out the empty line, the
date or the quoting. So a line is taken for a postmark by what it looks like *and* by what comes
before and after it; in doubt it is text, for a message too long is better than two that are wrong.
"""

import re
from collections.abc import Iterator
from mmap import mmap

Buffer = bytes | mmap

_CANDIDATE = re.compile(rb"[\r\n]From ")
_LONGEST_LINE = 1_000
_DAYS = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTHS = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = (
    # `Mon Jan  5 10:00:00 2026`, with a zone before or after the year, or `Mon, 5 Jan 2026 10:00`
    _DAYS
    + rb",? {1,3}(?:"
    + _MONTHS
    + rb" {1,3}\d{1,2}|\d{1,2} "
    + _MONTHS
    + rb" \d{4}) {1,3}\d{1,2}:\d{2}(?::\d{2})?(?: {1,3}[-+\w.:]{1,10}){0,3} *\Z"
)
_DATED = re.compile(rb"From [^\r\n]{0,400}?\b" + _DATE)
_EXACT = re.compile(rb"From \S{1,200}(?: at \S{1,200})? {1,3}" + _DATE)
_YEAR = re.compile(rb" (?:19|20)\d{2}\b")
_BARE = re.compile(rb"From (?:[^\s@]{1,200}@[^\s@]{1,200}|-)(?: [^\r\n]{0,100})? *\Z")
_HEADER = re.compile(rb"[!-9;-~]{1,100}:|>From ")
_BEFORE = 4
_BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,4096}")


def find_messages(mail: Buffer) -> Iterator[tuple[int, int]]:
    r"""Give the first byte of every message and the byte after its last one.

    Together they cover the whole buffer, so nothing in it is passed over: what stands before the
    first postmark is a message too, if a strange one.

    >>> list(find_messages(b"From a@b.c Mon Jan  5 10:00:00 2026\nTo: d\n\nFrom here on\n"))
    [(0, 56)]
    """
    start = 0
    first = _first_line(mail)
    for found in _CANDIDATE.finditer(mail, max(0, first - 1)):
        at = found.start() + 1
        if at > first and _is_postmark(mail, at):
            yield start, at
            start = at
    if start < len(mail):
        yield start, len(mail)


def begins_with_postmark(mail: Buffer) -> bool:
    """Say whether these bytes begin as an mbox does, empty lines apart."""
    first = _first_line(mail)
    return bytes(mail[first : first + 5]) == b"From "


def _first_line(mail: Buffer) -> int:
    found = _BEGINNING.match(mail)
    return found.end() if found else 0


def _is_postmark(mail: Buffer, at: int) -> bool:
    line, rest = _line(mail, at)
    is_dated = _DATED.match(line) is not None and _YEAR.search(line) is not None
    if not is_dated and _BARE.match(line) is None:
        return False
    if _HEADER.match(_line(mail, rest)[0]) is not None:
        return is_dated or _is_after_empty_line(mail, at)
    # A message without any header: only if nothing else can be meant by the line.
    return is_dated and _EXACT.match(line) is not None and _is_after_empty_line(mail, at)


def _line(mail: Buffer, at: int) -> tuple[bytes, int]:
    """Give a line without its end, and where the next one begins; a very long one is cut."""
    piece = bytes(mail[at : at + _LONGEST_LINE])
    lines = piece.splitlines(keepends=True)
    if not lines:
        return b"", at
    line = lines[0]
    # A piece may end between \r and \n, or in the line: it is no postmark then in any case.
    return line.rstrip(b"\r\n"), at + len(line)


def _is_after_empty_line(mail: Buffer, at: int) -> bool:
    before = bytes(mail[max(0, at - _BEFORE) : at])
    return before.endswith((b"\n\n", b"\n\r\n", b"\r\r")) or not before.strip(b"\r\n")
