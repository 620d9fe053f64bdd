"""Whether some bytes are the beginning of mail."""

import re

from headway.systems.consensus.mail.boundaries import begins_with_postmark
from headway.systems.consensus.mail.headers import read_head

SNIFFED = 64 * 1024
"""Bytes that are looked at."""
GZIP = b"\x1f\x8b"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_POSTMARK = re.compile(rb"[\r\n]From [^\r\n]{1,400}\d{4}[^\r\n]{0,20}[\r\n]+[!-9;-~]{1,100}:")
_OF_MAIL = frozenset(
    {"from", "to", "subject", "date", "message-id", "received", "return-path", "delivered-to"}
)
_ENOUGH = 2


def looks_like_mail(beginning: bytes) -> bool:
    """Say whether this may be an mbox or a single message.

    >>> looks_like_mail(b"From a@b Mon Jan  5 10:00:00 2026"), looks_like_mail(b"From Paris")
    (True, False)
    """
    if begins_with_postmark(beginning):
        line = beginning.lstrip(b"\xef\xbb\xbf\r\n\t ").splitlines()[0]
        return re.search(rb"\d:\d\d|@", line) is not None or _has_fields(beginning)
    return _has_fields(beginning) or _POSTMARK.search(beginning) is not None


def _has_fields(beginning: bytes) -> bool:
    head, _ = read_head(beginning.lstrip(b"\xef\xbb\xbf\r\n\t "))
    return len(_OF_MAIL & head.fields.keys()) >= _ENOUGH
