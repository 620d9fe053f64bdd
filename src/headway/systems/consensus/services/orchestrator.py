"""Orchestrator: when all of a thread is embedded, request its summary, once for the same text."""

from collections.abc import Iterable
from typing import Any

from headway import Event, Service, Work
from headway.systems.consensus import identity
from headway.systems.consensus.events import (
    EmbeddingsGenerated,
    OrchestrationFailed,
    ThreadGathered,
    announce,
    plain,
)
from headway.systems.consensus.lifecycles import THREADS
from headway.systems.consensus.readiness import (
    Gathered,
    Missing,
    gather,
    request_of,
    require_embedded,
)
from headway.systems.consensus.services.making import make_service
from headway.systems.consensus.settings import ConsensusSettings


def orchestrator_service(settings: ConsensusSettings) -> Service:
    """Make the service."""
    service = make_service("orchestrator", settings, failed_queue="orchestration.failed")

    @service.on(
        "EmbeddingsGenerated",
        data=EmbeddingsGenerated,
        failed="OrchestrationFailed",
        failed_data=_failed,
    )
    async def take_up(event: Event, work: Work) -> None:
        chunks = await require_embedded(work, event.data.chunk_ids)
        if isinstance(chunks, Missing):
            raise chunks.error()
        await _orchestrate(work, {str(each["thread_id"]) for each in chunks}, settings)

    @service.on(
        "ThreadGathered", data=ThreadGathered, failed="OrchestrationFailed", failed_data=_failed
    )
    async def look_at(event: Event, work: Work) -> None:
        await _orchestrate(work, event.data.thread_ids, settings)

    return service


async def _orchestrate(work: Work, thread_ids: Iterable[str], settings: ConsensusSettings) -> None:
    threads = await work.documents("threads").require(sorted(set(thread_ids)))
    for thread in threads:
        if _is_requested(thread):  # an event comes for each message; all but one are too late
            _close_if_summarized(work, thread)
            continue
        gathered = await gather(work, thread)
        if isinstance(gathered, Gathered):  # else a later event comes for it
            await _request(work, thread, gathered, settings)


def _is_requested(thread: dict[str, Any]) -> bool:
    """Say whether its last request was for all messages that it has: they only ever get more."""
    asked_for = thread.get("requested_messages")
    return not thread.get("slices") and asked_for == len(thread["message_ids"])


def _close_if_summarized(work: Work, thread: dict[str, Any]) -> None:
    """Have a thread done whose new messages said nothing: its summary is still the right one."""
    is_done = thread.get("status") == THREADS.processed
    if not is_done and thread.get("summary_id") == thread["request_id"]:
        work.documents("threads").update(
            str(thread["_id"]),
            {"status": THREADS.processed},
            expect={each: thread[each] for each in ("slices", "request_id", "summary_id")},
        )


async def _request(
    work: Work, thread: dict[str, Any], gathered: Gathered, settings: ConsensusSettings
) -> None:
    thread_id = str(thread["_id"])
    if not gathered.chunks:
        # There is nothing to summarize, and nothing will come: it must not look stuck.
        work.documents("threads").update(thread_id, {"status": THREADS.processed})
        return
    request_id = identity.request_id(thread_id, (str(each["_id"]) for each in gathered.chunks))
    counted = {
        "requested_messages": len(thread["message_ids"]),
        "distinct_messages": len(gathered.messages),
    }
    if thread.get("request_id") == request_id:
        work.documents("threads").update(thread_id, counted, expect={"request_id": request_id})
        _close_if_summarized(work, thread)
        return
    wanted = await request_of(thread_id, gathered, top_k=settings.top_k, prompt=settings.prompt)
    # Two events may find the same thread ready: whoever comes second finds the request there.
    work.documents("threads").update(
        thread_id,
        {
            "request": plain(wanted),
            "request_id": request_id,
            **counted,
            **THREADS.anew(),
        },
        expect={"request_id": thread.get("request_id")},
    )
    announce(work, wanted)


def _failed(event: Event, facts: dict[str, Any]) -> dict[str, Any]:
    """Of chunks nobody knows the threads, while they cannot be read."""
    data = event.data
    return plain(
        OrchestrationFailed(
            thread_ids=list(data.thread_ids) if isinstance(data, ThreadGathered) else [],
            error_type=facts["error_type"],
            error_message=facts["error_message"],
            retry_count=facts["retry_count"],
        )
    )
