"""The pipeline as it is run: from an archive of mail to the pages of its threads."""

import asyncio
import importlib
import re
import sys
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headway import connect, run_services
from headway.systems.consensus import events
from headway.systems.consensus.status import FAILED_QUEUES, Status, read_status
from headway.testing.engines import Worker
from headway.testing.trial import Trial
from tests.systems.consensus.hostile import mbox as hostile_mbox
from tests.systems.consensus.hostile import message

PIPELINE = "headway.systems.consensus.pipeline"
EMPTY = "empty@list"
TALK = (
    ("one@list", "", "Anna Berg", "I propose that we move the nightly builds to rack 4."),
    ("two@list", "one@list", "Tom Okafor", "Moving the nightly builds is fine with me."),
    ("three@list", "one@list", "Anna Berg", "Agreed then: we move the nightly builds."),
    ("four@list", "", "Mei Lin", "Has anybody seen the red cable that was in rack 4?"),
    (EMPTY, "four@list", "Tom Okafor", ""),
)


def mbox(path: Path) -> Path:
    parts = []
    for number, (message_id, parent, sender, text) in enumerate(TALK):
        mail = EmailMessage()
        mail["From"] = f"{sender} <{sender.split()[0].lower()}@example.org>"
        mail["Date"] = f"Mon, {2 + number} Mar 2026 09:00:00 +0000"
        mail["Subject"] = "Red cable" if "four@list" in {message_id, parent} else "Nightly builds"
        mail["Message-ID"] = f"<{message_id}>"
        if parent:
            mail["In-Reply-To"] = f"<{parent}>"
        mail.set_content(text)
        parts.append(b"From x Mon Mar  2 09:00:00 2026\n" + mail.as_bytes() + b"\n")
    path.write_bytes(b"".join(parts))
    return path


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Give the module as a new process has it."""
    monkeypatch.setenv("CONSENSUS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HEADWAY_BUS", f"sqlite:///{tmp_path / 'pipeline.db'}")
    monkeypatch.delitem(sys.modules, PIPELINE, raising=False)
    yield importlib.import_module(PIPELINE)
    sys.modules.pop(PIPELINE, None)


def test_every_event_has_its_consumer_and_every_service_its_failed_queue(
    pipeline: ModuleType,
) -> None:
    taken = {
        kind: (service.name, service.failed_queue, subscription.failed)
        for service in pipeline.SERVICES
        for (_, kind), subscription in service.subscriptions.items()
    }
    assert [each.name for each in pipeline.SERVICES] == [
        "ingestion", "parsing", "chunking", "embedding", "orchestrator", "summarization",
        "reporting",
    ]  # fmt: skip
    assert taken == {
        "ArchiveSubmitted": ("ingestion", "archive.ingestion.failed", "ArchiveIngestionFailed"),
        "ArchiveIngested": ("parsing", "parsing.failed", "ParsingFailed"),
        "ArchiveSliced": ("parsing", "parsing.failed", "ParsingFailed"),
        "JSONParsed": ("chunking", "chunking.failed", "ChunkingFailed"),
        "ChunksPrepared": ("embedding", "embedding.generation.failed", "EmbeddingGenerationFailed"),
        "EmbeddingsGenerated": ("orchestrator", "orchestration.failed", "OrchestrationFailed"),
        "ThreadGathered": ("orchestrator", "orchestration.failed", "OrchestrationFailed"),
        "SummarizationRequested": ("summarization", "summarization.failed", "SummarizationFailed"),
        "SummaryComplete": ("reporting", "report.delivery.failed", "ReportDeliveryFailed"),
    }
    announced = {kind for service in pipeline.SERVICES for kind in service.announces}
    assert announced == {"ReportPublished"}
    ends = {*taken, *(failed for *_, failed in taken.values()), *announced}
    assert ends == {each.__name__ for each in events.EVENTS}
    assert {queue for _, queue, _ in taken.values()} == set(FAILED_QUEUES)


async def run_to_the_end(services: tuple[Any, ...]) -> Status:
    """Run the services until nothing is on its way any more."""
    workers: list[Worker] = []
    running = asyncio.create_task(
        run_services(*services, started=lambda worker, _: workers.append(worker))
    )
    try:
        async with asyncio.timeout(30):
            while not (status := await read_status()).is_at_rest:  # noqa: ASYNC110 (no event tells)
                await asyncio.sleep(0.05)
    finally:
        if workers:
            workers[0].stop()
        await running
    return status


async def test_an_archive_becomes_pages_and_the_same_archive_again_nothing_more(
    pipeline: ModuleType, tmp_path: Path
) -> None:
    submitted = {"path": str(mbox(tmp_path / "talk.mbox")), "source_name": "talk"}
    seen = []
    for _ in range(2):
        async with connect() as headway:
            await headway.declare(*pipeline.SERVICES)
            await headway.publish("ArchiveSubmitted", submitted)
        status = await run_to_the_end(pipeline.SERVICES)
        seen.append({each.collection: dict(each.states) for each in status.collections})
        assert {each.queue: each.letters for each in status.failed} == dict.fromkeys(
            FAILED_QUEUES, 0
        )
    assert seen[0] == seen[1]
    assert seen[0] == {
        "archives": {"processed": 1},
        "slices": {"processed": 1},
        "messages": {"processed": 5},
        "chunks": {"processed": 4},
        "threads": {"processed": 2},
        "summaries": {"processed": 2},
    }
    reports = pipeline.SETTINGS.reports
    index = (reports / "index.html").read_text()
    assert "Nightly builds" in index
    assert "Red cable" in index
    assert len(list(reports.glob("*.md"))) == 2


async def test_a_message_of_two_archives_is_on_the_page_of_its_thread_once(
    pipeline: ModuleType, tmp_path: Path
) -> None:
    trial = Trial(*pipeline.SERVICES)
    mails = [message(1), *(message(n, References="<m1@example.org>") for n in (2, 3))]
    for number in (2, 3):  # the later archive has the earlier one in it, and one message more
        path = tmp_path / f"{number}.mbox"
        path.write_bytes(hostile_mbox(*mails[:number]))
        await trial.publish("ArchiveSubmitted", {"path": str(path), "source_name": "pumps"})
        await trial.run()
    (thread,) = await trial.documents("threads")
    assert len(thread["message_ids"]) == 5
    page = (pipeline.SETTINGS.reports / f"{thread['_id']}.md").read_text()
    assert re.search("^3 messages", page, re.MULTILINE)
    assert [page.count(f"\nText number {n}.") for n in (1, 2, 3)] == [1, 1, 1]
