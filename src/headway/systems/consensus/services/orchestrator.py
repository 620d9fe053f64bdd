"""Orchestrator: when all of a thread is embedded, request its summary, once for the same text."""

from collections.abc import Iterable
from typing import Any

from headway import Event, Service, Work
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
        gathered = await gather(work, thread)
        if isinstance(gathered, Gathered):  # else a later event comes for it
            await _request(work, thread, gathered, settings)


async def _request(
    work: Work, thread: dict[str, Any], gathered: Gathered, settings: ConsensusSettings
) -> None:
    thread_id = str(thread["_id"])
    if not gathered.chunks:
        # There is nothing to summarize, and nothing will come: it must not look stuck.
        work.documents("threads").update(thread_id, {"status": THREADS.processed})
        return
    wanted = await request_of(thread_id, gathered, top_k=settings.top_k, prompt=settings.prompt)
    requested = plain(wanted)
    request_id = requested["context_selection"]["request_id"]
    if thread.get("request_id") == request_id:
        return
    # Two events may find the same thread ready: whoever comes second finds the request there.
    work.documents("threads").update(
        thread_id,
        {
            "request": requested,
            "request_id": request_id,
            "status": "pending",
            "attemptCount": 0,
            "lastAttemptTime": None,  # or a sweep would leave it for a day to whoever had it last
            "lastError": None,
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
