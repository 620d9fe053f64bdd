"""Ingestion: archives are kept once, whatever they are called and however they are packed."""

import os

import pytest

from headway.systems.consensus.events import ArchiveIngested, ArchiveIngestionFailed
from headway.systems.consensus.services.ingestion import ingestion_service
from headway.systems.consensus.services.parsing import parsing_service
from headway.testing.trial import Trial
from tests.systems.consensus.archives import World
from tests.systems.consensus.hostile import mbox, message, write_folder

FAILED = "archive.ingestion.failed"


async def test_an_archive_is_kept_and_announced_once(world: World) -> None:
    mail = mbox(message(1), message(2))
    for name in ("a.mbox", "a.mbox", "b.mbox"):
        await world.ingest(name, mail)
    (archive,) = await world.trial.documents("archives")
    assert (world.settings.data / archive["file_path"]).read_bytes() == mail
    assert len(list(world.settings.archives.iterdir())) == 1
    (told,) = world.of(ArchiveIngested)
    assert told.archive_id == archive["_id"] == archive["file_hash"][:16]
    assert told.source_url == (world.folder / "a.mbox").as_uri()
    assert len(await world.messages()) == 2


@pytest.mark.parametrize(
    ("name", "kind"), [("nowhere.mbox", "FileNotFoundError"), ("bad.mbox", "NotMailError")]
)
async def test_what_cannot_be_read_is_a_dead_letter_at_once(
    world: World, name: str, kind: str
) -> None:
    (world.folder / "bad.mbox").write_bytes(b"\x7fELF")
    await world.submit(world.folder / name)
    (letter,) = await world.trial.letters(FAILED)
    assert (letter.abandoned_reason, letter.error_type) == ("non_retryable", kind)
    (told,) = world.of(ArchiveIngestionFailed)
    assert (told.error_type, told.source_name, told.retry_count) == (kind, "pumps", 1)
    assert not [each for each in world.settings.data.rglob("*") if each.is_file()]


async def test_a_name_that_is_no_text_is_carried_like_any_other(world: World) -> None:
    folder = world.folder / "mail"
    folder.mkdir()
    names = (b"plain 100%.mbox", b"\xff\xfe.mbox", b"bad-\xff.mbox", b"notes-\xff.txt")
    contents = (mbox(message(1)), mbox(message(2)), b"\x7fELF", b"\0")
    for name, content in zip(names, contents, strict=True):
        (folder / os.fsdecode(name)).write_bytes(content)
    await world.submit(folder)
    archives = await world.trial.documents("archives")
    assert {each["source_url"].rpartition("/")[2] for each in archives} == {
        "plain%20100%25.mbox",
        "%FF%FE.mbox",
    }
    assert await world.refused() == ["NotMailError"]


async def test_a_full_disk_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    full, really = [OSError(28, "No space left on device")], os.fsync

    def fsync(descriptor: int) -> None:
        if full:
            raise full.pop()
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    await world.ingest("a.mbox", mbox(message(1)))
    assert len(await world.trial.documents("archives")) == 1
    assert not list((world.settings.data / "incoming").iterdir())  # what was half written is gone


async def test_a_hostile_folder_runs_to_the_end(world: World) -> None:
    hostile = write_folder(world.folder / "mail")
    for _ in range(2):
        await world.submit(hostile.folder)
    assert len(await world.messages()) == hostile.readable
    unreadable = await world.trial.letters("parsing.failed")
    assert {letter.error_type for letter in unreadable} == {"UnreadableMailError"}
    assert len(unreadable) == hostile.unreadable
    assert len(await world.refused()) == 2 * hostile.refused  # once for each submission
    assert {each["status"] for each in await world.trial.documents("archives")} == {"processed"}
    assert not (world.folder / "outside.mbox").exists()


async def test_an_archive_whose_event_was_lost_is_swept(world: World) -> None:
    world.trial = Trial(ingestion_service(world.settings))  # no service takes ArchiveIngested
    await world.ingest("a.mbox", mbox(message(1)))
    archives = await world.trial.documents("archives")
    world.trial = Trial(parsing_service(world.settings))
    await world.trial.put("archives", *archives)
    await world.sweep()
    assert len(await world.messages()) == 1
