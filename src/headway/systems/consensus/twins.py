"""Messages that are in several archives of a thread: each is counted and shown once.

Every archive has its own document of such a message, for its archive is a part of its name. Those
with the same Message-ID and the same text are one message; with another text they are two.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

Document = Mapping[str, Any]
D = TypeVar("D", bound=Document)


def stand_ins(thread: Document, messages: Sequence[Document]) -> dict[str, str]:
    """Give for the id of each message the id of the one that is shown for it.

    That is the one of the archive that began the thread, if it is in there: so what another archive
    brings once more changes nothing.
    """
    began = str(thread.get("archive_id") or "")

    def place(message: Document) -> tuple[bool, str, str]:
        archive = str(message.get("archive_id") or "")
        return archive != began, archive, str(message["_id"])

    first: dict[tuple[str, str], str] = {}
    for each in sorted(messages, key=place):
        first.setdefault(_said(each), str(each["_id"]))
    return {str(each["_id"]): first[_said(each)] for each in messages}


def once_each(thread: Document, messages: Sequence[D]) -> list[D]:
    """Leave out the messages for which another one stands."""
    shown = stand_ins(thread, messages)
    return [each for each in messages if shown[str(each["_id"])] == each["_id"]]


def count(thread: Document) -> int:
    """Count the messages of a thread; until they were compared, those of all archives."""
    number = len(thread.get("message_ids") or ())
    compared = thread.get("requested_messages") == number
    return int(thread.get("distinct_messages") or number) if compared else number


def _said(message: Document) -> tuple[str, str]:
    named = str(message.get("message_id") or message["_id"])
    return named, str(message.get("body_normalized") or "")
