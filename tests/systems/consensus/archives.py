"""Archives that ingestion and parsing take, and what comes of them."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from headway import Service
from headway.systems.consensus.events import (
    ArchiveIngested,
    ArchiveIngestionFailed,
    ArchiveSubmitted,
    JSONParsed,
    ParsingFailed,
    ThreadGathered,
    plain,
)
from headway.systems.consensus.services.ingestion import ingestion_service
from headway.systems.consensus.services.parsing import parsing_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.testing.trial import Trial

HEARD = (ArchiveIngested, ArchiveIngestionFailed, JSONParsed, ParsingFailed, ThreadGathered)


class World:
    """Ingestion and parsing, and a service that listens to what they publish."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = ConsensusSettings(data=folder / "data")
        self.heard: list[Any] = []
        self.desk = Service("desk")
        for kind in HEARD:
            self.desk.on(kind.__name__, data=kind)(self._hear)
        self.trial = Trial(
            ingestion_service(self.settings), parsing_service(self.settings), self.desk
        )

    async def _hear(self, event: Any, work: Any) -> None:
        self.heard.append(event.data)

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.heard if isinstance(each, kind)]

    async def sweep(self) -> None:
        self.trial.clock.sleep(timedelta(days=2))  # until what is stuck counts as stuck
        await self.trial.sweep()
        await self.trial.run()

    async def submit(self, path: Path) -> None:
        submitted = ArchiveSubmitted(path=str(path), source_name="pumps")
        await self.trial.publish("ArchiveSubmitted", plain(submitted))
        await self.trial.run()

    async def ingest(self, name: str, mail: bytes) -> None:
        (self.folder / name).write_bytes(mail)
        await self.submit(self.folder / name)

    async def messages(self) -> list[dict[str, Any]]:
        """Give the messages that are stored, in their order in the archive."""
        found = await self.trial.documents("messages")
        return sorted((dict(each) for each in found), key=lambda each: int(each["position"]))

    async def refused(self) -> list[str]:
        """Give the errors for which archives were refused."""
        letters = await self.trial.letters("archive.ingestion.failed")
        return [each.error_type for each in letters]
