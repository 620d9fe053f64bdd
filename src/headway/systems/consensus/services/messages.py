"""A slice of an archive to the documents of its messages."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from headway.systems.consensus.identity import thread_id
from headway.systems.consensus.mail.boundaries import Buffer
from headway.systems.consensus.mail.errors import MailError, TooLargeError, located
from headway.systems.consensus.mail.reading import MOST_BYTES, Mail, read_mail
from headway.systems.consensus.mail.threading import find_roots
from headway.systems.consensus.slicing import NO_THREAD, Place, key_of, make_slice


@dataclass(slots=True)
class Parsed:
    """What came of a slice."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    set_aside: list[dict[str, Any]] = field(default_factory=list)
    """Slices of one message each, that could not be read with the others."""


def parse_slice(part: dict[str, Any], mail: Buffer) -> Parsed:
    """Read every message of a slice.

    Raises:
        Exception: The only message of the slice cannot be read, whatever the reason.
    """
    parsed = Parsed()
    latest = datetime.fromisoformat(part["latest"])
    places = [Place(*each) for each in part["messages"]]
    for place in places:
        try:
            read = _read(mail, place, latest)
        except Exception as error:
            if len(places) == 1 and isinstance(error, MailError):
                raise located(error, part["file_path"], place.start, place.end) from None
            if len(places) == 1:
                raise
            # Whatever it is, it comes again where the message is alone, and is told there.
            parsed.set_aside.append(_alone(part, place))
        else:
            parsed.messages.append(_document(part["archive_id"], place, read))
    return parsed


def _read(mail: Buffer, place: Place, latest: datetime) -> Mail:
    size = place.end - place.start
    if size > MOST_BYTES:
        raise TooLargeError(
            f"the message has {size / 1e6:.0f} MB, and "
            f"{MOST_BYTES / 1e6:.0f} are the most that is read: take it out of the archive"
        )
    return read_mail(bytes(mail[place.start : place.end]), latest=latest)


def _alone(part: dict[str, Any], place: Place) -> dict[str, Any]:
    own = make_slice(part["archive_id"], [place])
    return {
        "_id": own.slice_id,
        "archive_id": part["archive_id"],
        "file_path": part["file_path"],
        "latest": part["latest"],
        "messages": [[place.start, place.end, place.thread_id]],
    }


def _document(archive: str, place: Place, mail: Mail) -> dict[str, Any]:
    envelope = mail.envelope
    key = key_of(archive, envelope)
    thread = place.thread_id
    if thread == NO_THREAD:
        thread = thread_id(find_roots([envelope.link()])[0])
    return {
        "_id": key,
        "message_key": key,
        "message_id": envelope.message_id,
        "archive_id": archive,
        "thread_id": thread,
        "subject": envelope.subject,
        "from": asdict(envelope.sender),
        "to": [asdict(each) for each in envelope.to],
        "cc": [asdict(each) for each in envelope.cc],
        "date": None if envelope.date is None else envelope.date.isoformat(),
        "in_reply_to": envelope.in_reply_to or None,
        "references": list(envelope.references),
        "body_normalized": mail.text,
        "quoted": mail.quoted,
        "signature": mail.signature,
        "is_cut": mail.is_cut,
        "position": place.start,
        "chunk_ids": None,
    }
