"""Embedding: a vector for every chunk, kept where it can be found.

The vectors are kept first, the chunks are marked in the commit: what happens twice in between puts
the same vectors in the same place.
"""

import time
from typing import Any

from headway import BlockingWork, Event, Service
from headway.metrics import create_metrics_collector
from headway.systems.consensus.events import ChunksPrepared, EmbeddingsGenerated, announce
from headway.systems.consensus.mail.fields import base_subject
from headway.systems.consensus.models.embedder import Embedder, open_embedder
from headway.systems.consensus.services.making import make_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.vectors.store import Passage, Point, VectorStore, open_vectors

_MILLISECONDS = 1000


def embedding_service(
    settings: ConsensusSettings,
    *,
    embedder: Embedder | None = None,
    vectors: VectorStore | None = None,
) -> Service:
    """Make the service that turns ChunksPrepared into EmbeddingsGenerated."""
    embedding = make_service("embedding", settings, failed_queue="embedding.generation.failed")
    model = embedder or open_embedder(settings)
    store = vectors or open_vectors(settings, model.model)
    metrics = create_metrics_collector()

    def failed(_: Event, facts: dict[str, Any]) -> dict[str, Any]:
        return {**facts, "embedding_backend": model.backend}

    @embedding.on(
        "ChunksPrepared",
        data=ChunksPrepared,
        failed="EmbeddingGenerationFailed",
        failed_data=failed,
        dedup="chunk_ids",
        documents=("chunks", "chunk_ids"),
        rebuild=prepared_again,
    )
    def embed(event: Event, work: BlockingWork) -> None:
        # All of the event's, so that one that is not visible yet is waited for and not left out.
        chunks = work.documents("chunks").require(event.data.chunk_ids)
        to_do = set(work.document_ids)
        left = [each for each in chunks if each["_id"] in to_do]
        began = time.perf_counter()
        embedded = model.embed(
            [each["text"] for each in left],
            [base_subject(each.get("subject") or "")[0] for each in left],
        )
        seconds = time.perf_counter() - began
        store.upsert(
            [
                Point(vector=vector, passage=passage(chunk))
                for chunk, vector in zip(left, embedded, strict=True)
            ]
        )
        # Also those that were embedded before; not those that somebody else has, or gave up.
        ready = [each for each in chunks if each["_id"] in to_do or each.get("embedding_generated")]
        announce(
            work,
            EmbeddingsGenerated(
                chunk_ids=[each["_id"] for each in ready],
                embedding_count=len(left),
                embedding_model=model.model,
                embedding_backend=model.backend,
                embedding_dimension=max(map(len, embedded), default=0),
                vector_store_collection=store.collection,
                vector_store_updated=True,
                avg_generation_time_ms=seconds * _MILLISECONDS / max(1, len(left)),
            ),
        )
        metrics.increment("embeddings_generated_total", len(left))
        metrics.observe("embedding_seconds", seconds)

    return embedding


def passage(chunk: dict[str, Any]) -> Passage:
    """Give what of a chunk is kept with its vector."""
    return Passage(
        chunk_id=chunk["_id"],
        message_doc_id=chunk["message_doc_id"],
        message_id=chunk.get("message_id") or "",
        thread_id=chunk["thread_id"],
        archive_id=chunk["archive_id"],
        chunk_index=chunk["chunk_index"],
        offset=chunk["offset"],
        subject=chunk.get("subject") or "",
        sender=chunk.get("from") or "",
        date=chunk.get("date") or "",
        text=chunk["text"],
    )


def prepared_again(chunk: dict[str, Any]) -> dict[str, Any]:
    """Make the event of a chunk that is stuck."""
    return {
        "message_doc_ids": [chunk["message_doc_id"]],
        "chunk_count": 1,
        "chunk_ids": [chunk["_id"]],
        "chunks_ready": True,
        "chunking_strategy": chunk.get("chunking_strategy") or "unknown",
        "avg_chunk_size_tokens": chunk.get("token_count") or 0,
    }
