"""The documents of threads while their archives are parsed: which slices are still to come."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from headway import BlockingWork, DocumentNotFoundError
from headway.systems.consensus.events import ThreadGathered, announce
from headway.systems.consensus.lifecycles import THREADS
from headway.systems.consensus.mail.fields import without_reply
from headway.systems.consensus.slicing import Thread

_AT_ONCE = 500
_NEVER = "9999"
"""Later than any date, as a text."""


def add_slices(
    threads: Sequence[Thread], new: set[str], archive_id: str, work: BlockingWork
) -> None:
    """Have threads wait for the slices of an archive; one that was summarized begins anew."""
    collection = work.documents("threads")
    there = those_there("threads", [each.thread_id for each in threads], work)
    for thread in threads:
        slices = [each for each in thread.slices if each in new]
        old = there.get(thread.thread_id)
        if old is None:
            collection.insert_new(_document(thread, archive_id, slices))
            # If another archive has begun it in the meantime, this runs again, and joins it.
            mine = {"archive_id": archive_id}
            collection.update(thread.thread_id, mine, expect=mine)
        elif slices:
            collection.update(
                thread.thread_id, _joined(old, thread, slices), expect={"slices": old["slices"]}
            )


def those_there(
    collection: str, ids: Sequence[str], work: BlockingWork
) -> dict[str, dict[str, Any]]:
    """Give those of some documents that are there, in few reads."""
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        try:
            documents = work.documents(collection).require(some)
        except DocumentNotFoundError as error:
            missing = set(error.missing)
            documents = work.documents(collection).require(
                [each for each in some if each not in missing]
            )
        found.update({each["_id"]: each for each in documents})
    return found


def _document(thread: Thread, archive_id: str, slices: list[str]) -> dict[str, Any]:
    return {
        "_id": thread.thread_id,
        "archive_id": archive_id,
        "subject": thread.subject,
        "has_root": thread.has_root,
        "first_date": _text(thread.first_date),
        "last_date": _text(thread.last_date),
        "participants": sorted(thread.participants),
        "message_ids": [],
        "slices": slices,
        "summary_id": None,
        "has_consensus": False,
        "request": None,
    }


def _joined(old: dict[str, Any], thread: Thread, slices: list[str]) -> dict[str, Any]:
    # Both are in UTC and written alike, so their texts are in the order of time.
    first = [each for each in (old["first_date"], _text(thread.first_date)) if each]
    last = [each for each in (old["last_date"], _text(thread.last_date)) if each]
    # Whichever archive is parted first, the thread gets the same subject.
    before = (not old["has_root"], old["first_date"] or _NEVER)
    begins = (not thread.has_root, _text(thread.first_date) or _NEVER) < before
    return {
        "subject": thread.subject if begins else old["subject"],
        "has_root": old["has_root"] or thread.has_root,
        "slices": [*old["slices"], *(each for each in slices if each not in old["slices"])],
        "first_date": min(first, default=None),
        "last_date": max(last, default=None),
        "participants": sorted({*old["participants"], *thread.participants}),
        **THREADS.anew(),
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def gather(part: dict[str, Any], messages: Iterable[dict[str, Any]], work: BlockingWork) -> None:
    """Give the threads of a slice its messages, and say which of them wait for nothing more.

    Those that got a text from it are announced when that is embedded, and not here.
    """
    texts: dict[str, set[str]] = {named: set() for _, _, named in part["messages"] if named}
    for message in messages:
        with_text = texts.setdefault(message["thread_id"], set())
        if message["body_normalized"].strip():
            with_text.add(message["_id"])
        if not any(message["thread_id"] == named for _, _, named in part["messages"]):
            _begin_alone(message, work)
    collection = work.documents("threads")
    for thread in collection.require(texts):
        with_text = texts[thread["_id"]]
        slices = [each for each in thread["slices"] if each != part["_id"]]
        message_ids = sorted({*thread["message_ids"], *with_text})
        collection.update(
            thread["_id"],
            {"message_ids": message_ids, "slices": slices},
            expect={"message_ids": thread["message_ids"], "slices": thread["slices"]},
        )
        if not slices and not with_text:
            announce(work, ThreadGathered(thread_ids=[thread["_id"]]))


def _begin_alone(message: dict[str, Any], work: BlockingWork) -> None:
    """Have a thread for a message that nobody could read when its archive was parted."""
    sender = message["from"]["name"] or message["from"]["email"]
    alone = Thread(
        thread_id=message["thread_id"],
        subject=without_reply(message["subject"]),
        participants={sender} - {""},
    )
    document = _document(alone, message["archive_id"], [])
    document["first_date"] = document["last_date"] = message["date"]
    work.documents("threads").insert_new(document)
