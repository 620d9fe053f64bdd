"""Reporting: a page for each thread that has a summary, and an index of all."""

import asyncio
from typing import Any

from headway import Event, Service, Work
from headway.systems.consensus.events import (
    ReportDeliveryFailed,
    ReportPublished,
    SummaryComplete,
    announce,
    plain,
)
from headway.systems.consensus.identity import report_id, summary_document_id
from headway.systems.consensus.pages.catalogue import Catalogue
from headway.systems.consensus.pages.report import Post, Quotation, Report
from headway.systems.consensus.readiness import speech_of
from headway.systems.consensus.selecting import in_order
from headway.systems.consensus.services.making import make_service
from headway.systems.consensus.services.summarization import complete
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.twins import once_each, stand_ins

CHANNEL = "files"
Document = dict[str, Any]


def reporting_service(settings: ConsensusSettings) -> Service:
    """Make the service."""
    service = make_service(
        "reporting",
        settings,
        failed_queue="report.delivery.failed",
        announces=["ReportPublished"],
    )
    catalogue = Catalogue(settings.reports)

    @service.on(
        "SummaryComplete",
        data=SummaryComplete,
        dedup=_key,
        documents=("summaries", _about),
        rebuild=lambda summary: plain(complete(summary)),
        failed="ReportDeliveryFailed",
        failed_data=_failed,
    )
    async def report(event: Event, work: Work) -> None:
        data: SummaryComplete = event.data
        # First the summary: once it can be seen, so can what was committed with it.
        (summary,) = await work.documents("summaries").require(summary_document_id(data.summary_id))
        (thread,) = await work.documents("threads").require(data.thread_id)
        if thread.get("summary_id") != data.summary_id:
            return  # there is a newer one, and an event for it
        messages = await work.documents("messages").require(thread["message_ids"])
        made = _report(thread, summary, messages)
        path = await asyncio.to_thread(catalogue.publish, made)
        announce(
            work,
            ReportPublished(
                thread_id=data.thread_id,
                report_id=report_id(data.thread_id, data.summary_id),
                format="html",
                notified=False,
                delivery_channels=[CHANNEL],
                summary_url=path.absolute().as_uri(),
            ),
        )

    return service


def _about(event: Event) -> list[str]:
    return [summary_document_id(event.data.summary_id)]


def _key(event: Event) -> str:
    return f"reporting-{event.data.thread_id}-{event.data.summary_id}"


def _report(thread: Document, summary: Document, messages: list[Document]) -> Report:
    shown = stand_ins(thread, messages)
    return Report(
        thread_id=str(thread["_id"]),
        subject=str(thread.get("subject") or ""),
        posts=[_post(dict(each)) for each in in_order(once_each(thread, messages))],
        summary=summary["content_markdown"],
        quotations=[
            Quotation(
                message_doc_id=shown.get(each["message_doc_id"], each["message_doc_id"]),
                offset=each["offset"],
                length=len(each.get("text") or ""),
            )
            for each in summary["citations"]
        ],
        has_consensus=bool(summary.get("has_consensus")),
        made_by=f"{summary['llm_backend']} {summary['llm_model']}",
    )


def _post(message: Document) -> Post:
    return Post(
        speech=speech_of(message),
        quoted=str(message.get("quoted") or ""),
        signature=str(message.get("signature") or ""),
    )


def _failed(event: Event, facts: dict[str, Any]) -> Document:
    data = event.data
    return plain(
        ReportDeliveryFailed(
            report_id=report_id(data.thread_id, data.summary_id),
            thread_id=data.thread_id,
            delivery_channel=CHANNEL,
            error_message=facts["error_message"],
            error_type=facts["error_type"],
            retry_count=facts["retry_count"],
        )
    )
