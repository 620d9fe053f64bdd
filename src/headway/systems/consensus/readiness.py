"""Whether all of a thread is there: every message chunked, and every chunk embedded."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from headway import DocumentNotFoundError, Lifecycle, Work
from headway.systems.consensus import selecting
from headway.systems.consensus.events import SummarizationRequested
from headway.systems.consensus.failures import InputGivenUpError
from headway.systems.consensus.lifecycles import CHUNKS, MESSAGES, SLICES
from headway.systems.consensus.models.summarizer import Speech
from headway.systems.consensus.twins import once_each

Document = dict[str, Any]
_ON_ITS_WAY = ("pending", "failed")
_GIVEN_UP = "failed_max_retries"
_AT_ONCE = 200
_LONG = 50_000
"""Characters from which on choosing takes so long that others should not wait for it."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """All of a thread, each message once."""

    messages: Sequence[Document]
    chunks: Sequence[Document]


class Missing(NamedTuple):
    """What a thread still waits for."""

    what: str
    ids: Sequence[str]
    lifecycle: Lifecycle
    """Of the documents that have these ids, whose work is not done."""

    def error(self) -> DocumentNotFoundError:
        return DocumentNotFoundError(self.what, self.ids)


async def refuse_unless_on_its_way(work: Work, missing: Missing) -> None:
    """Raise, unless all that is missing can be seen to be on its way: waiting, or to be swept.

    Raises:
        InputGivenUpError: Some of it was given up, and stays so until a person decides.
        DocumentNotFoundError: It is not visible, or nobody is at it.
    """
    lifecycle = missing.lifecycle
    found = await work.documents(lifecycle.collection).require(missing.ids)
    given_up = [str(each["_id"]) for each in found if lifecycle.state(each) == _GIVEN_UP]
    if given_up:
        raise InputGivenUpError(lifecycle.collection, given_up)
    if any(lifecycle.state(each) not in _ON_ITS_WAY for each in found):
        raise missing.error()


async def gather(work: Work, thread: Document) -> Gathered | Missing:
    """Read a thread from its last message backwards, and stop at the first that is not ready.

    Few at first: while a thread is on its way, the first look mostly finds something missing.
    """
    if thread.get("slices"):
        return Missing("slices", thread["slices"], SLICES)
    left = list(thread.get("message_ids") or [])
    messages: list[Document] = []
    chunks: list[Document] = []
    size = 1
    while left:
        left, ids = left[:-size], left[-size:]
        found = await work.documents("messages").require(ids)
        if unchunked := [str(each["_id"]) for each in found if each.get("chunk_ids") is None]:
            return Missing("chunks of messages", unchunked, MESSAGES)
        parts = await require_embedded(work, [one for each in found for one in each["chunk_ids"]])
        if isinstance(parts, Missing):
            return parts
        messages += found
        chunks += parts
        size = min(size * 2, _AT_ONCE)
    kept = once_each(thread, messages)
    shown = {each["_id"] for each in kept}
    return Gathered(kept, [each for each in chunks if each["message_doc_id"] in shown])


async def require_embedded(work: Work, ids: Sequence[str]) -> list[Document] | Missing:
    """Give chunks that must be there, or those of them that are not embedded."""
    if not ids:
        return []
    found = await work.documents("chunks").require(ids)
    waiting = [str(each["_id"]) for each in found if each.get("embedding_generated") is not True]
    return Missing("embedded chunks", waiting, CHUNKS) if waiting else found


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
