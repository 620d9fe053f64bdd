"""Chunking: a message's own text in parts, each small enough to be embedded.

The chunks of a message are made once: their ids are its id and their number. A message without text
is processed, has no chunks and is heard of no more.
"""

import asyncio
from typing import Any

from headway import Event, Service, Work
from headway.metrics import create_metrics_collector
from headway.systems.consensus.events import ChunksPrepared, JSONParsed, announce
from headway.systems.consensus.identity import chunk_id
from headway.systems.consensus.models.embedder import open_tokenizer
from headway.systems.consensus.services.making import make_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.text.chunks import Chunk, chunked
from headway.systems.consensus.text.tokens import Tokenizer

_LONG = 20_000
"""Characters from which on chunking takes so long that others should not wait for it."""


class Chunking:
    """Parts texts in one way, which has a name."""

    def __init__(self, settings: ConsensusSettings, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._size = settings.chunk_tokens
        self._overlap = settings.chunk_overlap
        self.strategy = f"sentences-{self._size}-{self._overlap}-{tokenizer.name}"

    async def chunks(self, text: str) -> list[Chunk]:
        """Part a text; a long one in a thread, so that nobody waits for it."""
        if len(text) < _LONG:
            return self._chunked(text)
        return await asyncio.to_thread(self._chunked, text)

    def _chunked(self, text: str) -> list[Chunk]:
        return chunked(text, self._tokenizer, size=self._size, overlap=self._overlap)


def chunking_service(settings: ConsensusSettings, *, tokenizer: Tokenizer | None = None) -> Service:
    """Make the service that turns JSONParsed into ChunksPrepared."""
    chunking = make_service("chunking", settings, failed_queue="chunking.failed")
    way = Chunking(settings, tokenizer or open_tokenizer(settings))
    metrics = create_metrics_collector()

    @chunking.on(
        "JSONParsed",
        data=JSONParsed,
        failed="ChunkingFailed",
        dedup="message_doc_ids",
        documents=("messages", "message_doc_ids"),
        rebuild=parsed_again,
    )
    async def chunk(event: Event, work: Work) -> None:
        # All of the event's, so that one that is not visible yet is waited for and not left out.
        messages = await work.documents("messages").require(event.data.message_doc_ids)
        to_do = set(work.document_ids)
        made: list[dict[str, Any]] = []
        for message in messages:
            if message["_id"] in to_do:
                made += await _chunks_of(message, work, way)
        if made:
            announce(work, _prepared(made, way.strategy))
        metrics.increment("chunks_created_total", len(made))
        for each in made:
            metrics.observe("chunk_size_tokens", each["token_count"])

    return chunking


async def _chunks_of(message: dict[str, Any], work: Work, way: Chunking) -> list[dict[str, Any]]:
    """Give the chunks of a message: those that it has, or else new ones."""
    there = message.get("chunk_ids")
    if there:  # somebody asks for it again: by other settings they would be other chunks
        return await work.documents("chunks").require(there)
    parts = await way.chunks(message.get("body_normalized") or "")
    chunks = [_document(message, part, way.strategy) for part in parts]
    work.documents("chunks").insert_new(chunks)
    ids = [each["_id"] for each in chunks]
    work.documents("messages").update(message["_id"], {"chunk_ids": ids})
    return chunks


def _document(message: dict[str, Any], part: Chunk, strategy: str) -> dict[str, Any]:
    return {
        "_id": chunk_id(message["_id"], part.index),
        "message_doc_id": message["_id"],
        "message_id": message.get("message_id") or "",
        "thread_id": message["thread_id"],
        "archive_id": message["archive_id"],
        "subject": message.get("subject") or "",
        "from": _name(message.get("from")),
        "date": message.get("date") or "",
        "chunk_index": part.index,
        "text": part.text,
        "offset": part.offset,
        "token_count": part.tokens,
        "embedding_generated": False,
        "chunking_strategy": strategy,
    }


def _name(sender: object) -> str:
    """Call somebody by name; by the address where there is no name."""
    named = (sender.get("name") or sender.get("email")) if isinstance(sender, dict) else sender
    return str(named or "")


def _prepared(chunks: list[dict[str, Any]], strategy: str) -> ChunksPrepared:
    tokens = [each["token_count"] for each in chunks]
    return ChunksPrepared(
        message_doc_ids=list(dict.fromkeys(each["message_doc_id"] for each in chunks)),
        chunk_count=len(chunks),
        chunk_ids=[each["_id"] for each in chunks],
        chunks_ready=True,
        chunking_strategy=strategy,
        avg_chunk_size_tokens=round(sum(tokens) / len(tokens)),
    )


def parsed_again(message: dict[str, Any]) -> dict[str, Any]:
    """Make the event of a message that is stuck."""
    return {
        "archive_id": message["archive_id"],
        "message_count": 1,
        "message_doc_ids": [message["_id"]],
        "thread_count": 1,
        "thread_ids": [message["thread_id"]],
        "parsing_duration_seconds": 0.0,
    }
