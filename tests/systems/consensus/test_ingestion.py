"""Ingestion: archives are kept once, whatever they are called and however they are packed."""

import gzip
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import Service
from headway.systems.consensus.events import (
    ArchiveIngested,
    ArchiveIngestionFailed,
    ArchiveSubmitted,
    plain,
)
from headway.systems.consensus.keeping import keep
from headway.systems.consensus.services.ingestion import ingestion_service
from headway.systems.consensus.services.parsing import parsing_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.testing.trial import Trial
from tests.systems.consensus.hostile import mbox, message, write_folder

FAILED = "archive.ingestion.failed"


class Desk:
    """Listens to what is announced."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.service = Service("desk")
        for kind in (ArchiveIngested, ArchiveIngestionFailed):
            self.service.on(kind.__name__, data=kind)(self._hear)

    async def _hear(self, event: Any, work: Any) -> None:
        self.heard.append(event.data)


@pytest.fixture
def data(tmp_path: Path) -> ConsensusSettings:
    return ConsensusSettings(data=tmp_path / "data")


async def submit(trial: Trial, path: Path | str) -> None:
    await trial.publish(
        "ArchiveSubmitted", plain(ArchiveSubmitted(path=str(path), source_name="pumps"))
    )
    await trial.run()


async def test_an_archive_is_kept_and_announced(tmp_path: Path, data: ConsensusSettings) -> None:
    desk = Desk()
    trial = Trial(ingestion_service(data), desk.service)
    mail = mbox(message(1))
    (tmp_path / "a.mbox").write_bytes(mail)
    await submit(trial, tmp_path / "a.mbox")
    (archive,) = await trial.documents("archives")
    assert (data.data / archive["file_path"]).read_bytes() == mail
    assert (archive["status"], archive["message_count"]) == ("pending", 0)
    (told,) = desk.heard
    assert told.archive_id == archive["_id"] == archive["file_hash"][:16]
    assert told.source_url == (tmp_path / "a.mbox").as_uri()


async def test_the_same_content_twice_is_a_no_op(tmp_path: Path, data: ConsensusSettings) -> None:
    desk = Desk()
    trial = Trial(ingestion_service(data), parsing_service(data), desk.service)
    mail = mbox(message(1), message(2))
    (tmp_path / "a.mbox").write_bytes(mail)
    (tmp_path / "b.mbox.gz").write_bytes(gzip.compress(mail))
    await submit(trial, tmp_path / "a.mbox")
    before = await trial.documents("messages")
    await submit(trial, tmp_path / "a.mbox")
    await submit(trial, tmp_path / "b.mbox.gz")
    assert len(desk.heard) == len(await trial.documents("archives")) == 1
    assert len(before) == 2
    assert await trial.documents("messages") == before
    assert len(list(data.archives.iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [("nowhere.mbox", "FileNotFoundError"), ("bad.mbox", "NotMailError")],
)
async def test_what_cannot_be_read_is_a_letter_at_once(
    tmp_path: Path, data: ConsensusSettings, name: str, kind: str
) -> None:
    desk = Desk()
    trial = Trial(ingestion_service(data), desk.service)
    (tmp_path / "bad.mbox").write_bytes(b"\x7fELF")
    await submit(trial, tmp_path / name)
    (letter,) = await trial.letters(FAILED)
    assert (letter.abandoned_reason, letter.error_type) == ("non_retryable", kind)
    (told,) = desk.heard
    assert (told.error_type, told.source_name, told.retry_count) == (kind, "pumps", 1)
    assert not [each for each in data.data.rglob("*") if each.is_file()]


async def test_a_name_that_is_no_text_is_carried_like_any_other(
    tmp_path: Path, data: ConsensusSettings
) -> None:
    trial = Trial(ingestion_service(data))
    folder = tmp_path / "mail"
    folder.mkdir()
    names = (b"plain 100%.mbox", b"\xff\xfe.mbox", b"bad-\xff.mbox", b"notes-\xff.txt")
    contents = (mbox(message(1)), mbox(message(2)), b"\x7fELF", b"\0")
    for name, content in zip(names, contents, strict=True):
        (folder / os.fsdecode(name)).write_bytes(content)
    await submit(trial, folder)
    archives = await trial.documents("archives")
    assert {each["source_url"].rpartition("/")[2] for each in archives} == {
        "plain%20100%25.mbox",
        "%FF%FE.mbox",
    }
    (letter,) = await trial.letters(FAILED)
    assert r"bad-\udcff.mbox is no archive of mail" in letter.last_error


async def test_an_event_that_does_not_fit_is_told_of_too(data: ConsensusSettings) -> None:
    desk = Desk()
    trial = Trial(ingestion_service(data), desk.service)
    await trial.publish("ArchiveSubmitted", {"paht": "x"})
    await trial.run()
    assert [told.source_name for told in desk.heard] == ["unknown"]


async def test_a_full_disk_is_tried_again(
    tmp_path: Path, data: ConsensusSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [OSError(28, "No space left on device")]

    def fsync(descriptor: int) -> None:
        if full:
            raise full.pop()

    monkeypatch.setattr("headway.systems.consensus.keeping.os.fsync", fsync)
    trial = Trial(ingestion_service(data))
    (tmp_path / "a.mbox").write_bytes(mbox(message(1)))
    await submit(trial, tmp_path / "a.mbox")
    assert len(await trial.documents("archives")) == 1
    assert not list((data.data / "incoming").iterdir())  # what was half written is gone


def test_what_a_killed_worker_left_is_removed_after_a_day(tmp_path: Path) -> None:
    keep([mbox(message(1))], tmp_path)
    for name, age in (("old", 90_000), ("new", 60)):
        left = tmp_path / "incoming" / name
        left.write_bytes(b"half")
        modified = left.stat().st_mtime - age
        os.utime(left, (modified, modified))
    keep([mbox(message(2))], tmp_path)
    assert [each.name for each in (tmp_path / "incoming").iterdir()] == ["new"]


async def test_a_hostile_folder_runs_to_the_end(tmp_path: Path, data: ConsensusSettings) -> None:
    hostile = write_folder(tmp_path / "mail")
    trial = Trial(ingestion_service(data), parsing_service(data))
    for _ in range(2):
        await submit(trial, hostile.folder)
    assert len(await trial.documents("messages")) == hostile.readable
    unreadable = await trial.letters("parsing.failed")
    assert {letter.error_type for letter in unreadable} == {"UnreadableMailError"}
    assert len(unreadable) == hostile.unreadable
    assert len(await trial.letters(FAILED)) == 2 * hostile.refused  # once for each submission
    assert {each["status"] for each in await trial.documents("archives")} == {"processed"}
    assert all(not thread["slices"] for thread in await trial.documents("threads"))
    assert not (tmp_path / "outside.mbox").exists()


async def test_an_archive_whose_event_was_lost_is_swept(
    tmp_path: Path, data: ConsensusSettings
) -> None:
    (tmp_path / "a.mbox").write_bytes(mbox(message(1)))
    alone = Trial(ingestion_service(data))  # nobody is there to take ArchiveIngested
    await submit(alone, tmp_path / "a.mbox")
    trial = Trial(parsing_service(data))
    await trial.put("archives", *await alone.documents("archives"))
    trial.clock.sleep(timedelta(days=2))
    ended = await trial.sweep()
    assert {each.collection: each.requeued for each in ended.collections}["archives"] == 1
    await trial.run()
    assert len(await trial.documents("messages")) == 1
