"""The pipeline as it is run: from an archive of mail to the pages of its threads."""

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headway import ConfigurationError, connect, run_services
from headway.assembly.connection import Connection
from headway.assembly.loading import load_services
from headway.systems.consensus import events
from headway.systems.consensus.status import FAILED_QUEUES, Status, read_status
from headway.testing.engines import Worker

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


ASKED_FOR_ONE = f"""
import sys
from headway.assembly.loading import load_services
(service,) = load_services(["{PIPELINE}:parsing"])
print(service.name, [each for each in ("qdrant_client", "numpy", "httpx") if each in sys.modules])
"""


def test_a_stage_makes_and_loads_nothing_that_only_another_one_needs(tmp_path: Path) -> None:
    settings = {"CONSENSUS_VECTORS": "http://127.0.0.1:9", "CONSENSUS_DATA": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ASKED_FOR_ONE],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "parsing []\n"


def test_all_services_are_found_in_their_order_and_one_by_its_name(pipeline: ModuleType) -> None:
    assert [each.name for each in load_services([PIPELINE])] == [
        "ingestion", "parsing", "chunking", "embedding", "orchestrator", "summarization",
        "reporting",
    ]  # fmt: skip
    assert load_services([f"{PIPELINE}:chunking"]) == [pipeline.chunking]
    with pytest.raises(ConfigurationError, match=f"did you mean {PIPELINE}:chunking"):
        load_services([f"{PIPELINE}:chunkin"])


def test_every_event_has_its_consumer_and_every_service_its_failed_queue(
    pipeline: ModuleType,
) -> None:
    taken = {
        kind: (service.name, service.failed_queue, subscription.failed)
        for service in pipeline.SERVICES
        for (_, kind), subscription in service.subscriptions.items()
    }
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


def test_the_settings_are_those_of_the_environment(
    pipeline: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pipeline.SETTINGS.data == tmp_path / "data"
    monkeypatch.setenv("CONSENSUS_TOP_K", "many")
    with pytest.raises(ConfigurationError, match="CONSENSUS_TOP_K='many'"):
        importlib.reload(pipeline)


async def run_to_the_end(services: tuple[Any, ...]) -> Status:
    """Run the services until nothing is on its way any more."""
    workers: list[Worker] = []
    running = asyncio.create_task(
        run_services(*services, started=lambda worker, _: workers.append(worker))
    )
    try:
        async with asyncio.timeout(30):
            while not (status := await read_status()).is_at_rest:  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.05)
    finally:
        if workers:
            workers[0].stop()
        await running
    return status


async def only_some(_: Connection, _collection: str, where: Any = None, **_given: Any) -> list[Any]:
    assert where
    return []


async def test_an_archive_becomes_pages_and_the_same_archive_again_nothing_more(
    pipeline: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr(Connection, "find", only_some)  # the store counts: not all is read for it
    counted = (await read_status()).collections
    assert {each.collection: dict(each.states) for each in counted} == seen[0]
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


async def test_what_fails_is_counted_with_its_queue(pipeline: ModuleType, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.mbox"
    async with connect() as headway:
        await headway.declare(*pipeline.SERVICES)
        await headway.publish("ArchiveSubmitted", {"path": str(nothing), "source_name": "x"})
        before = await read_status()
    assert sum(before.waiting.values()) == 1
    after = await run_to_the_end((pipeline.ingestion,))
    (queue,) = [each for each in after.failed if each.letters]
    assert (queue.queue, queue.letters) == ("archive.ingestion.failed", 1)
    assert queue.oldest is not None
    assert [each.documents for each in after.collections] == [0] * 6
