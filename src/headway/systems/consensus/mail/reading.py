"""The bytes of one message to a Mail: everything in it that the pipeline works with."""

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from headway.systems.consensus.mail.bodies import read_text
from headway.systems.consensus.mail.errors import TooLargeError, UnreadableMailError
from headway.systems.consensus.mail.fields import Address, read_addresses, read_date, read_ids
from headway.systems.consensus.mail.headers import Head, read_head
from headway.systems.consensus.mail.quoting import take_apart
from headway.systems.consensus.mail.threading import Link

MOST_BYTES = 25 * 1024 * 1024
"""Of one message, attachments included."""
_LONGEST_SUBJECT = 2_000
_LONGEST_TEXT = 1_000_000
_LONGEST_REST = 200_000
_POSTMARK = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,4096}(From [^\r\n]{0,2000}(?:\r\n|\n|\r|\Z))?")
_QUOTED_POSTMARK = re.compile(rb"^>(?=>{0,20}From )", re.MULTILINE)
_EVERY_MAIL_HAS_ONE = frozenset({"from", "to", "subject", "date", "message-id", "received"})
_SHOWN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the header of a message says."""

    message_id: str
    """Without brackets. Of a message that has none, made from its content."""
    date: datetime | None
    """In UTC; None if nothing in the message says when, or only a clock that was wrong."""
    date_given: str
    """As it stands in the header, right or wrong."""
    sender: Address
    to: tuple[Address, ...]
    cc: tuple[Address, ...]
    subject: str
    in_reply_to: str
    references: tuple[str, ...]

    def link(self) -> Link:
        """Give what threads are made from."""
        answered = (self.in_reply_to,) if self.in_reply_to else ()
        return Link(self.message_id, self.references or answered, self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A message: its envelope, and its text in three parts."""

    envelope: Envelope
    text: str
    """What the author wrote."""
    quoted: str
    signature: str
    is_cut: bool
    """Its text was longer than anybody reads; the rest is only in the archive."""


def read_envelope(message: bytes, *, latest: datetime) -> Envelope:
    """Read the header only.

    Args:
        message: Its bytes, with or without the postmark of an mbox.
        latest: No message was sent after this.

    Raises:
        UnreadableMailError: It has no header at all.
        TooLargeError: It is larger than any message should be.
    """
    head, postmark, _ = _opened(message)
    return _envelope(message, head, postmark, latest)


def read_mail(message: bytes, *, latest: datetime) -> Mail:
    """Read a whole message; see `read_envelope`."""
    head, postmark, body = _opened(message)
    if postmark and b">From " in body:
        body = _QUOTED_POSTMARK.sub(b"", body)
    text = read_text(head, body)
    parts = take_apart(text[: 4 * _LONGEST_TEXT])
    return Mail(
        envelope=_envelope(message, head, postmark, latest),
        text=parts.new[:_LONGEST_TEXT],
        quoted=parts.quoted[:_LONGEST_REST],
        signature=parts.signature[:_LONGEST_REST],
        is_cut=len(parts.new) > _LONGEST_TEXT or len(text) > 4 * _LONGEST_TEXT,
    )


def _opened(message: bytes) -> tuple[Head, bytes, bytes]:
    if len(message) > MOST_BYTES:
        raise TooLargeError(
            f"the message has {len(message) / 1e6:.0f} MB, and {MOST_BYTES / 1e6:.0f} are the most "
            "that is read: take it out of the archive"
        )
    begin = _POSTMARK.match(message)
    postmark, start = (begin[1] or b"", begin.end()) if begin else (b"", 0)
    head, rest = read_head(message[start:])
    if _EVERY_MAIL_HAS_ONE.isdisjoint(head.fields):
        raise UnreadableMailError(
            f"these {len(message)} bytes are no message: nothing of From, To, Subject, Date and "
            f"Message-ID is in them; they begin with {message[start : start + _SHOWN]!r}"
        )
    return head, postmark, message[start + rest :]


def _envelope(message: bytes, head: Head, postmark: bytes, latest: datetime) -> Envelope:
    own = read_ids(head.raw("message-id")[:3])
    senders = read_addresses((head.raw("from") or head.raw("sender"))[:3])
    answered = read_ids(head.raw("in-reply-to"))
    return Envelope(
        message_id=own[0] if own else _made_id(message, postmark),
        date=read_date(head, postmark, latest),
        date_given=head.plain("date")[:100],
        sender=senders[0] if senders else Address("", ""),
        to=tuple(read_addresses(head.raw("to")[:10])),
        cc=tuple(read_addresses(head.raw("cc")[:10])),
        subject=head.first("subject")[:_LONGEST_SUBJECT],
        in_reply_to=answered[0] if answered else "",
        references=tuple(read_ids(head.raw("references"))),
    )


def _made_id(message: bytes, postmark: bytes) -> str:
    """Name a message by its content: the same wherever it lies in an archive."""
    start = message.find(postmark) + len(postmark)
    content = message[start:].strip(b"\r\n")
    return f"{sha256(content).hexdigest()[:32]}@no-message-id.invalid"
