"""Ingestion: what somebody submits is found, kept under the hash of its content, and announced."""

import logging
from datetime import datetime
from pathlib import Path
from typing import Any

from headway import BlockingWork, Event, Service
from headway.systems.consensus.events import (
    ArchiveIngested,
    ArchiveIngestionFailed,
    ArchiveSubmitted,
    announce,
    plain,
)
from headway.systems.consensus.keeping import Kept, keep
from headway.systems.consensus.mail.finding import find_archives
from headway.systems.consensus.mail.naming import as_path, in_text, readable
from headway.systems.consensus.mail.unpacking import format_of, unpack
from headway.systems.consensus.services.making import OF_THE_DATA, make_service
from headway.systems.consensus.settings import ConsensusSettings

_LOG = logging.getLogger("headway")


def ingestion_service(settings: ConsensusSettings) -> Service:
    """Make the service that takes ArchiveSubmitted and announces ArchiveIngested."""
    service = make_service(
        "ingestion", settings, failed_queue="archive.ingestion.failed", flood=OF_THE_DATA
    )

    @service.on(
        "ArchiveSubmitted",
        data=ArchiveSubmitted,
        failed="ArchiveIngestionFailed",
        failed_data=_failed_data,
    )
    def ingest(event: Event, work: BlockingWork) -> None:
        """Keep one archive; a folder, a pattern or a zip file is submitted again piece by piece.

        So a broken file among a thousand fails alone, with a letter of its own.
        """
        submitted: ArchiveSubmitted = event.data
        found = find_archives(as_path(submitted.path))
        if found.is_one:
            _ingest(submitted, found.archives[0], work, settings.data)
            return
        if found.passed_over:
            _LOG.info(
                "%d files in %s are no mail and were passed over, such as %s",
                len(found.passed_over),
                submitted.path,
                readable(found.passed_over[0]),
            )
        for path in found.archives:
            announce(work, _of_part(submitted, path))

    return service


def _of_part(submitted: ArchiveSubmitted, path: str) -> ArchiveSubmitted:
    return ArchiveSubmitted(
        path=in_text(path),
        source_name=submitted.source_name,
        source_type=submitted.source_type,
        source_url=submitted.source_url,
    )


def _ingest(submitted: ArchiveSubmitted, path: str, work: BlockingWork, data: Path) -> None:
    started = work.now()
    kept = keep(unpack(path), data)
    archives = work.documents("archives")
    if archives.get(kept.archive_id) is not None:
        return  # the same content, under whatever name: it is here
    told = _ingested(submitted, path, kept, started, work.now())
    archives.insert_new(_document(told, path))
    announce(work, told)


def _ingested(
    submitted: ArchiveSubmitted, path: str, kept: Kept, started: datetime, completed: datetime
) -> ArchiveIngested:
    return ArchiveIngested(
        archive_id=kept.archive_id,
        source_name=submitted.source_name,
        source_type=submitted.source_type,
        source_url=submitted.source_url or Path(path).absolute().as_uri(),
        file_path=kept.file_path,
        file_size_bytes=kept.size,
        file_hash_sha256=kept.file_hash,
        ingestion_started_at=started,
        ingestion_completed_at=completed,
    )


def _document(told: ArchiveIngested, path: str) -> dict[str, Any]:
    fields = plain(told)
    return {
        "_id": fields.pop("archive_id"),
        "file_hash": fields.pop("file_hash_sha256"),
        "source": told.source_name,
        "format": format_of(path),
        "ingestion_date": fields["ingestion_completed_at"],
        "message_count": 0,
        "storage_backend": "local",
        **fields,
    }


def rebuild_ingested(archive: dict[str, Any]) -> dict[str, Any]:
    """Make the data of ArchiveIngested again, from an archive whose event was lost."""
    same = ("source_name", "source_type", "source_url", "file_path", "file_size_bytes")
    dates = ("ingestion_started_at", "ingestion_completed_at")
    return {
        "archive_id": archive["_id"],
        "file_hash_sha256": archive["file_hash"],
        **{name: archive[name] for name in (*same, *dates)},
    }


def _failed_data(event: Event, facts: dict[str, Any]) -> dict[str, Any]:
    data = event.data
    if not isinstance(data, ArchiveSubmitted):  # that is why it failed
        data = ArchiveSubmitted(path="unknown", source_name="unknown")
    failed_at = datetime.fromisoformat(facts["failed_at"])
    return plain(
        ArchiveIngestionFailed(
            source_name=data.source_name,
            source_type=data.source_type,
            source_url=data.source_url or data.path,
            error_message=facts["error_message"],
            error_type=facts["error_type"],
            retry_count=facts["retry_count"],
            ingestion_started_at=_moment(event.timestamp) or failed_at,
            failed_at=failed_at,
        )
    )


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # from a client that does not say when
        return None
