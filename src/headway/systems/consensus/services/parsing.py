"""Parsing: an archive becomes slices and threads, a slice becomes messages.

An archive may hold a hundred thousand messages, and a commit should not. So the first handler only
looks through the headers, and the second one parses a slice of at most 200 messages at a time.
"""

import logging
from datetime import datetime, timedelta
from typing import Any

from headway import BlockingWork, Event, Service
from headway.systems.consensus.events import (
    ArchiveIngested,
    ArchiveSliced,
    JSONParsed,
    ParsingFailed,
    announce,
    plain,
)
from headway.systems.consensus.keeping import opened
from headway.systems.consensus.services.gathering import add_slices, gather, those_there
from headway.systems.consensus.services.ingestion import rebuild_ingested
from headway.systems.consensus.services.making import OF_THE_DATA, make_service
from headway.systems.consensus.services.messages import Parsed, parse_slice
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.slicing import Slice, plan

_LOG = logging.getLogger("headway")
_CLOCKS_DIFFER = timedelta(days=1)


def parsing_service(settings: ConsensusSettings) -> Service:
    """Make the service that takes ArchiveIngested and announces JSONParsed for every message."""
    service = make_service("parsing", settings, failed_queue="parsing.failed", flood=OF_THE_DATA)

    @service.on(
        "ArchiveIngested",
        data=ArchiveIngested,
        dedup="archive_id",
        documents=("archives", "archive_id"),
        rebuild=rebuild_ingested,
        failed="ParsingFailed",
        failed_data=_failed_data,
    )
    def part(event: Event, work: BlockingWork) -> None:
        """Part an archive into slices, and make its threads."""
        (archive,) = work.documents("archives").require(event.data.archive_id)
        ingested = datetime.fromisoformat(archive["ingestion_date"])
        latest = ingested + _CLOCKS_DIFFER
        with opened(settings.data, archive["file_path"]) as mail:
            planned = plan(archive["_id"], mail, latest=latest)
        # Some are there if a person set the archive going again.
        old = those_there("slices", [each.slice_id for each in planned.slices], work)
        new = [each for each in planned.slices if each.slice_id not in old]
        work.documents("slices").insert_new(_slice(archive, each, latest) for each in new)
        add_slices(planned.threads, {each.slice_id for each in new}, archive["_id"], work)
        for each in planned.slices:
            announce(work, ArchiveSliced(archive_id=archive["_id"], slice_ids=[each.slice_id]))
        work.documents("archives").update(
            archive["_id"],
            {
                "message_count": planned.message_count,
                "has_duplicates": planned.duplicate_count > 0,
                "duplicate_count": planned.duplicate_count,
                "differing_count": planned.differing_count,
            },
        )
        if planned.duplicate_count:
            _LOG.warning(
                "%d messages of archive %s have the id, date, sender and subject of one before "
                "them, and were passed over; %d of these have another text",
                planned.duplicate_count,
                archive["_id"],
                planned.differing_count,
            )

    @service.on(
        "ArchiveSliced",
        data=ArchiveSliced,
        dedup="slice_ids",
        documents=("slices", "slice_ids"),
        rebuild=lambda each: {"archive_id": each["archive_id"], "slice_ids": [each["_id"]]},
        failed="ParsingFailed",
        failed_data=_failed_data,
    )
    def parse(event: Event, work: BlockingWork) -> None:  # noqa: ARG001 (a handler's shape)
        """Parse the messages of a slice; one that cannot be read gets a slice of its own."""
        for each in work.documents("slices").require(work.document_ids):
            began = work.now()
            with opened(settings.data, each["file_path"]) as mail:
                parsed = parse_slice(each, mail)
            work.documents("messages").insert_new(parsed.messages)
            gather(each, parsed.messages, work)
            _announce(each, parsed, work, work.now() - began)

    return service


def _slice(archive: dict[str, Any], part: Slice, latest: datetime) -> dict[str, Any]:
    return {
        "_id": part.slice_id,
        "archive_id": archive["_id"],
        "file_path": archive["file_path"],
        "latest": latest.isoformat(),
        "messages": [[each.start, each.end, each.thread_id] for each in part.places],
    }


def _announce(part: dict[str, Any], parsed: Parsed, work: BlockingWork, took: timedelta) -> None:
    for each in parsed.messages:
        announce(
            work,
            JSONParsed(
                archive_id=part["archive_id"],
                message_count=1,
                message_doc_ids=[each["_id"]],
                thread_count=1,
                thread_ids=[each["thread_id"]],
                parsing_duration_seconds=took.total_seconds() / len(parsed.messages),
            ),
        )
    work.documents("slices").insert_new(parsed.set_aside)
    for each in parsed.set_aside:
        announce(work, ArchiveSliced(archive_id=part["archive_id"], slice_ids=[each["_id"]]))


def _failed_data(event: Event, facts: dict[str, Any]) -> dict[str, Any]:
    return plain(
        ParsingFailed(
            archive_id=event.data.archive_id,
            error_message=facts["error_message"],
            error_type=facts["error_type"],
            messages_parsed_before_failure=0,  # all of a slice, or none
            retry_count=facts["retry_count"],
            failed_at=datetime.fromisoformat(facts["failed_at"]),
        )
    )
