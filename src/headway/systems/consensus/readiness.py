"""Whether all of a thread is there: every message chunked, and every chunk embedded."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from headway import DocumentNotFoundError, Work
from headway.systems.consensus import selecting
from headway.systems.consensus.events import SummarizationRequested
from headway.systems.consensus.models.summarizer import Speech

Document = dict[str, Any]
_AT_ONCE = 200
_LONG = 50_000
"""Characters from which on choosing takes so long that others should not wait for it."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """All of a thread."""

    messages: Sequence[Document]
    chunks: Sequence[Document]


class Missing(NamedTuple):
    """What a thread still waits for."""

    collection: str
    ids: Sequence[str]

    def error(self) -> DocumentNotFoundError:
        return DocumentNotFoundError(self.collection, self.ids)


async def gather(work: Work, thread: Document) -> Gathered | Missing:
    """Read a thread from its last message backwards, and stop at the first that is not ready.

    Few at first: while a thread is on its way, the first look mostly finds something missing.
    """
    if thread.get("slices"):
        return Missing("slices", thread["slices"])
    left = list(thread.get("message_ids") or [])
    messages: list[Document] = []
    chunks: list[Document] = []
    size = 1
    while left:
        left, ids = left[:-size], left[-size:]
        found = await work.documents("messages").require(ids)
        if unchunked := [str(each["_id"]) for each in found if each.get("chunk_ids") is None]:
            return Missing("chunks of messages", unchunked)
        parts = await require_embedded(work, [one for each in found for one in each["chunk_ids"]])
        if isinstance(parts, Missing):
            return parts
        messages += found
        chunks += parts
        size = min(size * 2, _AT_ONCE)
    return Gathered(messages, chunks)


async def require_embedded(work: Work, ids: Sequence[str]) -> list[Document] | Missing:
    """Give chunks that must be there, or those of them that are not embedded."""
    if not ids:
        return []
    found = await work.documents("chunks").require(ids)
    waiting = [str(each["_id"]) for each in found if each.get("embedding_generated") is not True]
    return Missing("embedded chunks", waiting) if waiting else found


async def request_of(
    thread_id: str, gathered: Gathered, *, top_k: int, prompt: str
) -> SummarizationRequested:
    """Make the request for a thread; of a long one in a thread of its own, so that nobody waits."""
    make = partial(
        selecting.request,
        thread_id,
        gathered.messages,
        gathered.chunks,
        top_k=top_k,
        prompt=prompt,
    )
    letters = sum(len(each.get("text") or "") for each in gathered.chunks)
    return make() if letters < _LONG else await asyncio.to_thread(make)


def speech_of(message: Document) -> Speech:
    """Give a message as a part of a discussion."""
    return Speech(
        message_doc_id=str(message["_id"]),
        message_id=str(message.get("message_id") or message["_id"]),
        sender=name_of(message.get("from")),
        date=date_of(message.get("date")),
        body=str(message.get("body_normalized") or ""),
    )


def name_of(sender: object) -> str:
    """Call somebody by name; by the address where there is no name."""
    if isinstance(sender, dict):
        sender = sender.get("name") or sender.get("email")
    return " ".join(str(sender).split()) if sender else "somebody"


def date_of(date: object) -> datetime | None:
    if not isinstance(date, str):
        return None
    try:
        return datetime.fromisoformat(date)
    except ValueError:
        return None
