"""Parsing: archives to slices and threads, slices to messages, each in one commit."""

from typing import Any

import pytest

from headway.facts import FloodChanged
from headway.operations import FailedQueues
from headway.systems.consensus.events import JSONParsed, ParsingFailed, ThreadGathered
from headway.systems.consensus.mail.reading import read_mail
from headway.systems.consensus.services import messages as reading_of_slices
from headway.systems.consensus.services.ingestion import ingestion_service, rebuild_ingested
from headway.testing.trial import Trial
from tests.systems.consensus.archives import World
from tests.systems.consensus.hostile import mbox, message

FAILED = "parsing.failed"
REPLY = {"References": "<m1@example.org>"}


async def test_messages_are_stored_and_each_is_announced(world: World) -> None:
    reply = message(2, "Yes.\n\n> Shall we?\n-- \nBob", In_Reply_To="<m1@example.org>")
    await world.ingest("a.mbox", mbox(message(1, "Shall we?"), reply))
    first, second = await world.messages()
    assert first["thread_id"] == second["thread_id"]
    assert (second["status"], second["chunk_ids"]) == ("pending", None)
    told = world.of(JSONParsed)
    assert {each.message_doc_ids[0] for each in told} == {first["_id"], second["_id"]}
    (thread,) = await world.trial.documents("threads")
    assert thread["message_ids"] == sorted([first["_id"], second["_id"]])
    assert (thread["slices"], thread["subject"]) == ([], "Topic 1")
    assert thread["participants"] == ["Person 1", "Person 2"]
    (archive,) = await world.trial.documents("archives")
    assert (archive["status"], archive["message_count"]) == ("processed", 2)


async def test_a_thread_without_any_text_is_gathered_at_once(world: World) -> None:
    await world.ingest("a.mbox", mbox(message(1, "> quoted only")))
    (thread,) = await world.trial.documents("threads")
    assert thread["message_ids"] == []
    assert [each.thread_ids for each in world.of(ThreadGathered)] == [[thread["_id"]]]


async def test_a_thread_goes_on_in_another_archive(world: World) -> None:
    await world.ingest("a.mbox", mbox(message(1)))
    (thread,) = await world.trial.documents("threads")
    await world.trial.put("threads", {**thread, "status": "processed", "summary_id": "s"})
    await world.ingest("b.mbox", mbox(message(2, **REPLY)))
    (thread,) = await world.trial.documents("threads")
    assert len(thread["message_ids"]) == 2
    assert (thread["slices"], thread["status"], thread["attemptCount"]) == ([], "pending", 0)
    assert (thread["subject"], thread["participants"]) == ("Topic 1", ["Person 1", "Person 2"])


async def test_what_is_no_message_fails_alone_with_its_place(world: World) -> None:
    bad = [f"nonsense number {number}\n".encode() for number in range(40)]
    await world.ingest("a.mbox", mbox(message(1), *bad, message(2)))
    assert len(await world.messages()) == 2
    letters = await world.trial.letters(FAILED)
    assert {(each.error_type, each.abandoned_reason) for each in letters} == {
        ("UnreadableMailError", "non_retryable")
    }
    assert len(letters) == len(world.of(ParsingFailed)) == 40
    (archive,) = await world.trial.documents("archives")
    assert {each.archive_id for each in world.of(ParsingFailed)} == {archive["_id"]}
    assert all(f"{archive['file_path']}, bytes " in each.last_error for each in letters)
    assert all(not each["slices"] for each in await world.trial.documents("threads"))
    assert not world.trial.facts.of(FloodChanged)


async def test_a_message_that_breaks_us_is_set_aside_and_comes_in_when_we_are_mended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(raw: bytes, **rest: Any) -> Any:
        if b"Topic 2" in raw:
            raise KeyError("a fault of ours")
        return read_mail(raw, **rest)

    with monkeypatch.context() as patched:
        patched.setattr(reading_of_slices, "read_mail", broken)
        await world.ingest("a.mbox", mbox(message(1), message(2, **REPLY), message(3)))
    assert len(await world.messages()) == 2
    (letter,) = await world.trial.letters(FAILED)
    assert letter.error_type == "KeyError"
    (one,) = await world.trial.documents("slices", {"status": "failed"})
    assert len(one["messages"]) == 1
    await world.trial.put("slices", {**one, "status": "pending", "attemptCount": 0})
    await world.sweep()
    messages = await world.messages()
    assert len(messages) == 3
    assert len({each["thread_id"] for each in messages}) == 2


async def test_the_same_message_twice_in_an_archive_is_one_and_is_counted(world: World) -> None:
    again = message(1).replace(b"\n", b"\r\n")
    bare = [b"To: x@y\n\none\n", b"To: x@y\n\ntwo\n"]  # they say nothing about themselves
    await world.ingest("a.mbox", mbox(message(1), message(2), again, message(1, "No.\n"), *bare))
    (archive,) = await world.trial.documents("archives")
    assert (archive["message_count"], archive["duplicate_count"]) == (4, 2)
    assert archive["differing_count"] == 1
    assert len(world.of(JSONParsed)) == len(await world.messages()) == 4


async def test_an_archive_that_is_set_going_again_changes_nothing(world: World) -> None:
    await world.ingest("a.mbox", mbox(message(1), message(2)))
    before = [await world.trial.documents(name) for name in ("messages", "threads", "slices")]
    (archive,) = await world.trial.documents("archives")
    await world.trial.put("archives", {**archive, "status": "pending", "attemptCount": 0})
    await world.sweep()
    (archive,) = await world.trial.documents("archives")
    assert (archive["status"], archive["attemptCount"]) == ("processed", 1)
    after = [await world.trial.documents(name) for name in ("messages", "threads", "slices")]
    assert after == before


async def test_an_archive_whose_kept_file_was_lost_is_brought_back_by_ingesting_it_again(
    world: World,
) -> None:
    everything, mail = world.trial, mbox(message(1))
    world.trial = Trial(ingestion_service(world.settings))
    await world.ingest("a.mbox", mail)
    (archive,) = await world.trial.documents("archives")
    (world.settings.data / archive["file_path"]).unlink()
    world.trial = everything
    await world.trial.put("archives", archive)
    await world.trial.publish("ArchiveIngested", rebuild_ingested(archive))
    await world.trial.run()
    (letter,) = await world.trial.letters(FAILED)
    assert f"headway failed requeue {FAILED}" in letter.last_error
    await world.ingest("a.mbox", mail)
    assert not await world.messages()
    trial = world.trial
    await FailedQueues(trial.engine, trial.clock, trial.chance).requeue(FAILED)
    await trial.run()
    assert len(await world.messages()) == 1
