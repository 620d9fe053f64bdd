"""Which chunks of a thread go into its summary, and under which name that is requested.

Pure: the orchestrator and the summarization service select by the same function, so that a thread
whose event was lost gets the same summary.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headway.systems.consensus.centrality import centralities, weigh
from headway.systems.consensus.cues import Cue, cue_of
from headway.systems.consensus.events import (
    ContextSelection,
    SelectedChunk,
    SummarizationRequested,
)
from headway.systems.consensus.identity import request_id

SELECTOR = "first-last-decisive-central"
VERSION = "1"
_SHARE = 4
"""One in four goes to the last messages, and one in four to where people decide."""
_WEIGHT = {Cue.DECIDES: 3, Cue.OBJECTS: 2, Cue.SUPPORTS: 1}
_HEAVIEST_FIRST = sorted(_WEIGHT.values(), reverse=True)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A chunk that was chosen, and why."""

    chunk_id: str
    source: str
    score: float


def in_order(messages: Sequence[Document]) -> list[Document]:
    """Give messages as they were written; one without a date follows the one before it."""
    dated: list[tuple[str, str, int, str, Document]] = []
    last = ""
    for each in sorted(messages, key=_place):
        last = _utc(each.get("date")) or last
        dated.append((last, *_place(each), each))
    return [each for *_, each in sorted(dated, key=lambda found: found[:-1])]


def select(messages: Sequence[Document], chunks: Sequence[Document], top_k: int) -> list[Choice]:
    """Choose at most `top_k` chunks: how it began and ended, what decides, what is most central.

    The most important come first. Ties go to the smaller id, so that the same thread always gives
    the same.
    """
    place = {str(each["_id"]): number for number, each in enumerate(in_order(messages))}
    ordered = sorted(chunks, key=lambda each: _within(each, place))
    scores = dict(zip((str(each["_id"]) for each in ordered), _scores(ordered), strict=True))
    sources: dict[str, str] = {}
    for first in ordered[:1]:
        sources[str(first["_id"])] = "first"
    for last in _openings_of_the_last(ordered, top_k // _SHARE):
        sources.setdefault(str(last["_id"]), "last")
    for decisive in _decisive(ordered, top_k // _SHARE):
        sources.setdefault(str(decisive["_id"]), "decisive")
    for chunk in sorted(scores, key=lambda one: (-scores[one], one)):
        sources.setdefault(chunk, "central")
    return [
        Choice(chunk_id=chunk, source=source, score=scores[chunk])
        for chunk, source in list(sources.items())[:top_k]
    ]


def request(
    thread_id: str,
    messages: Sequence[Document],
    chunks: Sequence[Document],
    *,
    top_k: int,
    prompt: str,
) -> SummarizationRequested:
    """Make the request for the summary of a thread.

    Its id is made from *all* chunks of the thread: new text is a new request, whether or not it
    would be chosen.
    """
    chosen = select(messages, chunks, top_k)
    return SummarizationRequested(
        thread_ids=[thread_id],
        top_k=top_k,
        prompt_template=prompt,
        selected_chunks=[
            SelectedChunk(chunk_id=each.chunk_id, source=each.source, score=each.score, rank=rank)
            for rank, each in enumerate(chosen)
        ],
        context_selection=ContextSelection(
            selector_type=SELECTOR,
            selector_version=VERSION,
            request_id=request_id(thread_id, (str(each["_id"]) for each in chunks)),
        ),
    )


def _place(message: Document) -> tuple[str, int, str]:
    position = message.get("position")
    return (
        str(message.get("archive_id", "")),
        position if isinstance(position, int) else 0,
        str(message["_id"]),
    )


def _utc(date: object) -> str:
    """Give a date as a text that sorts; one that cannot be read is none."""
    if not isinstance(date, str):
        return ""
    try:
        read = datetime.fromisoformat(date)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return ""


def _within(chunk: Document, place: Mapping[str, int]) -> tuple[int, int, str]:
    message = str(chunk.get("message_doc_id", ""))
    return place.get(message, len(place)), int(chunk.get("chunk_index") or 0), str(chunk["_id"])


def _scores(chunks: Sequence[Document]) -> list[float]:
    return centralities(weigh([str(each.get("text") or "") for each in chunks]))


def _decisive(ordered: Sequence[Document], count: int) -> list[Document]:
    """Give the chunks in which people decide, object or agree: the weightiest, the last first.

    From the end backwards, and no farther than to so many that nothing weighs more.
    """
    found: dict[int, list[Document]] = {weight: [] for weight in _HEAVIEST_FIRST}
    for each in reversed(ordered):
        if len(found[_HEAVIEST_FIRST[0]]) >= count:
            break
        weight = _weight(str(each.get("text") or ""))
        if weight:
            found[weight].append(each)
    return [each for its in found.values() for each in its][:count]


def _weight(text: str) -> int:
    heaviest = 0
    for line in text.split("\n"):
        for sentence in _SENTENCE_END.split(line):
            cue = cue_of(sentence)
            heaviest = max(heaviest, _WEIGHT.get(cue, 0) if cue is not None else 0)
            if heaviest == _HEAVIEST_FIRST[0]:
                return heaviest
    return heaviest


def _openings_of_the_last(ordered: Sequence[Document], count: int) -> list[Document]:
    """Give the first chunk of each of the last messages, the last one first."""
    openings: dict[str, Document] = {}
    for each in ordered:
        openings.setdefault(str(each.get("message_doc_id", "")), each)
    return list(openings.values())[::-1][:count]
