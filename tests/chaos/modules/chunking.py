"""Chunking and embedding in small, with the races and faults that such services meet."""

import os
from datetime import timedelta
from pathlib import Path

from headway import Event, RetryPolicy, Service, Work
from headway.retrying import Exponential

SITE = Path(os.environ["SITE"])
QUICK = RetryPolicy(
    max_attempts=3,
    backoff=Exponential(base=timedelta(milliseconds=50), cap=timedelta(milliseconds=600)),
)

ingestion = Service("ingestion")
chunking = Service("chunking")
embedding = Service("embedding", transient=QUICK)
audit = Service("audit")


@ingestion.on("MessageArrived")
async def store(event: Event, work: Work) -> None:
    work.documents("messages").insert_new(
        {"_id": event.data["id"], "status": "pending", "text": event.data["text"]}
    )


@chunking.on(
    "JSONParsed",
    failed="ChunkingFailed",
    dedup="message_doc_ids",
    documents=("messages", "message_doc_ids"),
)
async def chunk(event: Event, work: Work) -> None:
    log("chunk", event, work)
    messages = await work.documents("messages").require(event.data["message_doc_ids"])
    chunks = [
        {"_id": f"{message['_id']}-{number}", "text": word, "embedding_generated": False}
        for message in messages
        for number, word in enumerate(message["text"].split())
    ]
    work.documents("chunks").insert_new(chunks)
    work.publish("ChunksPrepared", {"chunk_ids": [each["_id"] for each in chunks]})


@embedding.on("ChunksPrepared", failed="EmbeddingGenerationFailed", dedup="chunk_ids")
async def embed(event: Event, work: Work) -> None:
    log("embed", event, work)
    if (SITE / "fault").exists():
        raise TypeError("a fault of its author")
    for chunk_id in event.data["chunk_ids"]:
        await work.documents("chunks").require(chunk_id)
        work.documents("chunks").update(chunk_id, {"embedding_generated": True})
        work.documents("totals").increment("embedded", "chunks")


@audit.on("ChunkingFailed")
@audit.on("EmbeddingGenerationFailed")
async def note(event: Event, work: Work) -> None:
    work.documents("failures").add({"type": event.event_type, **event.data})


def log(step: str, event: Event, work: Work) -> None:
    with (SITE / "calls.log").open("a") as file:
        file.write(f"{step} {event.event_id} {work.attempt}\n")
