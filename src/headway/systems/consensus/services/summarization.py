"""Summarization: one summary for each request, under an id that is made from the thread's text."""

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET

from headway import Event, Service, Work
from headway.systems.consensus import selecting
from headway.systems.consensus.events import (
    Citation,
    SummarizationFailed,
    SummarizationRequested,
    SummaryComplete,
    announce,
    plain,
)
from headway.systems.consensus.identity import summary_document_id
from headway.systems.consensus.models.summarizer import (
    Cited,
    Discussion,
    Passage,
    Summarizer,
    open_summarizer,
)
from headway.systems.consensus.readiness import (
    Missing,
    gather,
    refuse_unless_on_its_way,
    request_of,
    speech_of,
)
from headway.systems.consensus.services.making import make_service
from headway.systems.consensus.settings import ConsensusSettings

Document = dict[str, Any]


def summarization_service(
    settings: ConsensusSettings, summarizer: Summarizer | None = None
) -> Service:
    """Make the service; with a summarizer of one's own, or the one that the settings name."""
    service = make_service("summarization", settings, failed_queue="summarization.failed")
    model = summarizer or open_summarizer(settings)

    def rebuild(thread: Document) -> Document:
        """Request again what was requested; if nothing was, let the service choose by itself."""
        bare = {
            "thread_ids": [thread["_id"]],
            "top_k": settings.top_k,
            "prompt_template": settings.prompt,
        }
        return thread.get("request") or bare

    @service.on(
        "SummarizationRequested",
        data=SummarizationRequested,
        dedup=_key,
        documents=("threads", "thread_ids"),
        rebuild=rebuild,
        failed="SummarizationFailed",
        failed_data=_failed,
    )
    async def summarize(event: Event, work: Work) -> None:
        for thread in await work.documents("threads").require(work.document_ids):
            request = await _current(work, thread, event.data, settings)
            if isinstance(request, Missing):
                # A sweep has come before the rest of the thread, and nobody is to blame for it.
                await refuse_unless_on_its_way(work, request)
                work.put_off(str(thread["_id"]))
            elif request is not None:
                await _answer(work, thread, request, model)

    return service


def _key(event: Event) -> str:
    data: SummarizationRequested = event.data
    if isinstance(data.context_selection, msgspec.UnsetType):
        return f"summarization-{'-'.join(data.thread_ids)}-{event.event_id}"
    return f"summarization-{data.context_selection.request_id}"


async def _current(
    work: Work, thread: Document, asked: SummarizationRequested, settings: ConsensusSettings
) -> SummarizationRequested | Missing | None:
    """Give what is to be summarized: what was requested last, whichever event comes for it.

    So an older event never makes an older summary. Where nothing was requested, its event was lost,
    and the same choice is made here; of a thread without any text there is none to make.
    """
    if thread.get("request") is not None:
        return msgspec.convert(thread["request"], SummarizationRequested)
    gathered = await gather(work, thread)
    if isinstance(gathered, Missing):
        return gathered
    if not gathered.chunks:
        return None
    prompt = asked.prompt_template or settings.prompt
    return await request_of(str(thread["_id"]), gathered, top_k=asked.top_k, prompt=prompt)


async def _answer(
    work: Work, thread: Document, request: SummarizationRequested, model: Summarizer
) -> None:
    requested = plain(request)
    summary_id = requested["context_selection"]["request_id"]
    summaries = work.documents("summaries")
    summary = await summaries.get(summary_document_id(summary_id))
    if summary is None:
        summary = await _made(work, thread, requested, model)
        summaries.insert_new(summary)
    # If another request was made in the meantime, this runs again at once, for that one.
    work.documents("threads").update(
        str(thread["_id"]),
        {
            "summary_id": summary_id,
            "has_consensus": summary["has_consensus"],
            "request": requested,
            "request_id": summary_id,
        },
        expect={"request_id": thread.get("request_id")},
    )
    announce(work, complete(summary))


async def _discussion(work: Work, thread: Document, requested: Document) -> Discussion:
    """Read the chosen chunks and their messages, and put them in the order of the discussion."""
    chosen = [each["chunk_id"] for each in requested["selected_chunks"]]
    chunks = await work.documents("chunks").require(chosen)
    ids = sorted({str(each["message_doc_id"]) for each in chunks})
    messages = selecting.in_order(await work.documents("messages").require(ids))
    speeches = {str(each["_id"]): speech_of(dict(each)) for each in messages}
    place = {one: number for number, one in enumerate(speeches)}
    passages = [
        Passage(
            chunk_id=str(each["_id"]),
            speech=speeches[str(each["message_doc_id"])],
            offset=int(each.get("offset") or 0),
            text=str(each.get("text") or ""),
        )
        for each in chunks
    ]
    passages.sort(key=lambda each: (place[each.speech.message_doc_id], each.offset))
    return Discussion(subject=str(thread.get("subject") or ""), passages=passages)


async def _made(work: Work, thread: Document, requested: Document, model: Summarizer) -> Document:
    discussion = await _discussion(work, thread, requested)
    summary_id = requested["context_selection"]["request_id"]
    began = work.now()
    made = await asyncio.to_thread(model.summarize, discussion, requested["prompt_template"])
    now = work.now()
    return {
        "_id": summary_document_id(summary_id),
        "summary_id": summary_id,
        "thread_id": str(thread["_id"]),
        "summary_type": "extractive" if model.backend == "extractive" else "abstractive",
        "content_markdown": made.markdown,
        "has_consensus": made.has_consensus,
        "generated_at": now.isoformat(),
        "citations": [_cited(each) for each in made.citations],
        "llm_backend": model.backend,
        "llm_model": model.model,
        "tokens_prompt": made.tokens_prompt,
        "tokens_completion": made.tokens_completion,
        "latency_ms": round((now - began).total_seconds() * 1000, 3),
    }


def _cited(cited: Cited) -> Document:
    speech = cited.passage.speech
    return {
        "message_id": speech.message_id,
        "message_doc_id": speech.message_doc_id,
        "chunk_id": cited.passage.chunk_id,
        "offset": cited.offset,
        "text": cited.text,
    }


def complete(summary: Document) -> SummaryComplete:
    """Make the event of a summary from its document."""
    return SummaryComplete(
        summary_id=summary["summary_id"],
        thread_id=summary["thread_id"],
        summary_markdown=summary["content_markdown"],
        citations=[
            Citation(
                message_id=each["message_id"],
                chunk_id=each["chunk_id"],
                offset=each["offset"],
                text=each.get("text", UNSET),
            )
            for each in summary["citations"]
        ],
        llm_backend=summary["llm_backend"],
        llm_model=summary["llm_model"],
        tokens_prompt=summary["tokens_prompt"],
        tokens_completion=summary["tokens_completion"],
        latency_ms=summary["latency_ms"],
    )


def _failed(event: Event, facts: dict[str, Any]) -> Document:
    return plain(
        SummarizationFailed(
            thread_id=event.data.thread_ids[0],
            error_type=facts["error_type"],
            error_message=facts["error_message"],
            retry_count=facts["retry_count"],
        )
    )
