"""Every event of the pipeline: its data, as a type that both sides are held to.

Consumers read an event with its type (`on(..., data=JSONParsed)`), publishers send it through
`announce`, which checks the same type. So nothing is sent that its consumer would refuse.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headway import BlockingWork, Work

Id = Annotated[str, Meta(pattern="^[0-9a-f]{16,64}$")]
Ids = list[Id]
SomeIds = Annotated[Ids, Meta(min_length=1)]
Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
SourceType = Literal["rsync", "imap", "http", "local"]


class EventData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data of one type of event; the class has the name of the type."""


class ArchiveSubmitted(EventData, frozen=True, kw_only=True):
    """Somebody wants this file or folder to be read."""

    path: Text
    """Or a file:// URL, for a name that is no text."""
    source_name: Text
    source_type: SourceType = "local"
    source_url: str = ""


class ArchiveIngested(EventData, frozen=True, kw_only=True):
    """An archive is kept, under its content's hash."""

    archive_id: Id
    source_name: Text
    source_type: SourceType
    source_url: str
    file_path: str | UnsetType = UNSET
    file_size_bytes: Count
    file_hash_sha256: Hash
    ingestion_started_at: datetime
    ingestion_completed_at: datetime


class ArchiveIngestionFailed(EventData, frozen=True, kw_only=True):
    source_name: Text
    source_type: SourceType
    source_url: str
    error_message: str
    error_type: str
    retry_count: Count
    ingestion_started_at: datetime
    failed_at: datetime


class ArchiveSliced(EventData, frozen=True, kw_only=True):
    """A part of an archive, small enough for one commit, waits to be parsed."""

    archive_id: Id
    slice_ids: SomeIds


class JSONParsed(EventData, frozen=True, kw_only=True):
    """Messages were read; there is one event for each."""

    archive_id: Id
    message_count: Count
    message_doc_ids: SomeIds
    thread_count: Count
    thread_ids: Ids
    parsing_duration_seconds: Seconds


class ParsingFailed(EventData, frozen=True, kw_only=True):
    archive_id: Id
    file_path: str | UnsetType = UNSET
    error_message: str
    error_type: str
    messages_parsed_before_failure: Count
    retry_count: Count
    failed_at: datetime


class ChunksPrepared(EventData, frozen=True, kw_only=True):
    message_doc_ids: SomeIds
    chunk_count: Count
    chunk_ids: SomeIds
    chunks_ready: bool
    chunking_strategy: Text
    avg_chunk_size_tokens: Count


class ChunkingFailed(EventData, frozen=True, kw_only=True):
    message_doc_ids: Ids
    error_message: str
    error_type: str
    retry_count: Count
    failed_at: datetime


class EmbeddingsGenerated(EventData, frozen=True, kw_only=True):
    chunk_ids: SomeIds
    embedding_count: Count
    embedding_model: Text
    embedding_backend: Text
    embedding_dimension: Count
    vector_store_collection: Text
    vector_store_updated: bool
    avg_generation_time_ms: Seconds


class EmbeddingGenerationFailed(EventData, frozen=True, kw_only=True):
    chunk_ids: Ids
    error_message: str
    error_type: str
    embedding_backend: str
    retry_count: Count
    failed_at: datetime


class ThreadGathered(EventData, frozen=True, kw_only=True):
    """All parts of a thread are parsed, and the last of them brought no text to wait for."""

    thread_ids: SomeIds


class SelectedChunk(EventData, frozen=True, kw_only=True):
    chunk_id: Id
    source: Text
    score: float
    rank: Count
    metadata: dict[str, Any] | UnsetType = UNSET


class ContextSelection(EventData, frozen=True, kw_only=True):
    selector_type: Text
    selector_version: Text
    request_id: Id
    """A hash of the thread and its chunks: the same request is made once."""


class SummarizationRequested(EventData, frozen=True, kw_only=True):
    thread_ids: SomeIds
    top_k: Annotated[int, Meta(ge=1)]
    prompt_template: str
    selected_chunks: list[SelectedChunk] | UnsetType = UNSET
    context_selection: ContextSelection | UnsetType = UNSET


class OrchestrationFailed(EventData, frozen=True, kw_only=True):
    thread_ids: Ids
    error_type: str
    error_message: str
    retry_count: Count


class Citation(EventData, frozen=True, kw_only=True):
    message_id: Text
    chunk_id: Id
    offset: Count
    text: str | UnsetType = UNSET


class SummaryComplete(EventData, frozen=True, kw_only=True):
    summary_id: Id
    thread_id: Id
    summary_markdown: str
    citations: list[Citation]
    llm_backend: Text
    llm_model: Text
    tokens_prompt: Count
    tokens_completion: Count
    latency_ms: Seconds


class SummarizationFailed(EventData, frozen=True, kw_only=True):
    thread_id: Id
    error_type: str
    error_message: str
    retry_count: Count


class ReportPublished(EventData, frozen=True, kw_only=True):
    thread_id: Id
    report_id: Id
    format: Text
    notified: bool
    delivery_channels: list[str]
    summary_url: str


class ReportDeliveryFailed(EventData, frozen=True, kw_only=True):
    report_id: Id
    thread_id: Id
    delivery_channel: str
    error_message: str
    error_type: str
    retry_count: Count


EVENTS: tuple[type[EventData], ...] = (
    ArchiveSubmitted,
    ArchiveIngested,
    ArchiveIngestionFailed,
    ArchiveSliced,
    JSONParsed,
    ParsingFailed,
    ChunksPrepared,
    ChunkingFailed,
    EmbeddingsGenerated,
    EmbeddingGenerationFailed,
    ThreadGathered,
    SummarizationRequested,
    OrchestrationFailed,
    SummaryComplete,
    SummarizationFailed,
    ReportPublished,
    ReportDeliveryFailed,
)


def plain(data: EventData) -> dict[str, Any]:
    """Give an event's data as JSON objects, checked as its consumer will check it."""
    values: dict[str, Any] = msgspec.to_builtins(data)
    msgspec.convert(values, type(data))
    return values


def announce(work: Work | BlockingWork, data: EventData) -> None:
    """Publish an event with the commit of the handler."""
    work.publish(type(data).__name__, plain(data))
