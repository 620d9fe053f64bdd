"""Parsing: archives to slices and threads, slices to messages, each in one commit."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import Service
from headway.facts import EventRecovered, EventRetryScheduled, FloodChanged
from headway.operations import FailedQueues
from headway.systems.consensus import slicing
from headway.systems.consensus.events import (
    ArchiveSubmitted,
    JSONParsed,
    ParsingFailed,
    ThreadGathered,
    plain,
)
from headway.systems.consensus.mail.reading import Mail, read_mail
from headway.systems.consensus.services import gathering
from headway.systems.consensus.services import messages as reading_of_slices
from headway.systems.consensus.services.ingestion import ingestion_service, rebuild_ingested
from headway.systems.consensus.services.parsing import parsing_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.testing.trial import Trial
from tests.systems.consensus.hostile import mbox, message

FAILED = "parsing.failed"
_MOMENT = timedelta(milliseconds=10)


class World:
    """Ingestion and parsing, and somebody who listens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = ConsensusSettings(data=folder / "data")
        self.heard: list[Any] = []
        desk = Service("desk")
        for kind in (JSONParsed, ParsingFailed, ThreadGathered):
            desk.on(kind.__name__, data=kind)(self._hear)
        self.trial = Trial(ingestion_service(self.settings), parsing_service(self.settings), desk)

    async def _hear(self, event: Any, work: Any) -> None:
        self.heard.append(event.data)

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.heard if isinstance(each, kind)]

    async def sweep(self) -> None:
        self.trial.clock.sleep(timedelta(days=2))  # until what is stuck counts as stuck
        await self.trial.sweep()

    async def ingest(self, name: str, mail: bytes) -> None:
        (self.folder / name).write_bytes(mail)
        submitted = ArchiveSubmitted(path=str(self.folder / name), source_name="pumps")
        await self.trial.publish("ArchiveSubmitted", plain(submitted))
        await self.trial.run()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_messages_are_stored_and_each_is_announced(world: World) -> None:
    reply = message(2, "Yes.\n\n> Shall we?\n-- \nBob", In_Reply_To="<m1@example.org>")
    await world.ingest("a.mbox", mbox(message(1, "Shall we?"), reply))
    first, second = sorted(await world.trial.documents("messages"), key=lambda m: m["position"])
    assert first["thread_id"] == second["thread_id"]
    assert (second["body_normalized"], second["quoted"], second["signature"]) == (
        "Yes.",
        "> Shall we?",
        "Bob",
    )
    assert (second["status"], second["chunk_ids"]) == ("pending", None)
    assert second["from"] == {"name": "Person 2", "email": "p2@example.org"}
    told = world.of(JSONParsed)
    assert {each.message_doc_ids[0] for each in told} == {first["_id"], second["_id"]}
    (thread,) = await world.trial.documents("threads")
    assert thread["message_ids"] == sorted([first["_id"], second["_id"]])
    assert (thread["slices"], thread["subject"]) == ([], "Topic 1")
    assert thread["participants"] == ["Person 1", "Person 2"]
    (archive,) = await world.trial.documents("archives")
    assert (archive["status"], archive["message_count"]) == ("processed", 2)


async def test_slices_are_small_and_together_the_archive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slicing, "MOST_MESSAGES", 4)
    await world.ingest("a.mbox", mbox(*map(message, range(11))))
    slices = await world.trial.documents("slices")
    assert sorted(len(each["messages"]) for each in slices) == [3, 4, 4]
    assert {each["status"] for each in slices} == {"processed"}
    assert len(await world.trial.documents("messages")) == 11


async def test_a_thread_waits_for_all_of_its_slices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slicing, "MOST_MESSAGES", 1)
    silent = [message(n, "> old", References="<m0@example.org>") for n in range(1, 6)]
    await world.ingest("a.mbox", mbox(message(0), *silent))
    (thread,) = await world.trial.documents("threads")
    assert thread["slices"] == []
    assert len(thread["message_ids"]) == 1  # the others have no text of their own
    # At most one slice was the last, and said so unless it was the one with the text.
    assert len(world.of(ThreadGathered)) <= 1
    assert len(world.of(JSONParsed)) == 6


async def test_a_thread_without_any_text_is_gathered_at_once(world: World) -> None:
    await world.ingest("a.mbox", mbox(message(1, "> quoted only")))
    (thread,) = await world.trial.documents("threads")
    assert thread["message_ids"] == []
    assert [each.thread_ids for each in world.of(ThreadGathered)] == [[thread["_id"]]]


async def test_a_thread_goes_on_in_another_archive(world: World) -> None:
    await world.ingest("a.mbox", mbox(message(1)))
    (thread,) = await world.trial.documents("threads")
    await world.trial.put("threads", {**thread, "status": "processed", "summary_id": "s"})
    await world.ingest("b.mbox", mbox(message(2, References="<m1@example.org>")))
    (thread,) = await world.trial.documents("threads")
    assert len(thread["message_ids"]) == 2
    assert (thread["slices"], thread["status"], thread["attemptCount"]) == ([], "pending", 0)
    assert thread["last_date"] > thread["first_date"]
    assert thread["participants"] == ["Person 1", "Person 2"]


@pytest.mark.parametrize("order", ["it comes first", "it comes last"])
async def test_a_thread_has_the_subject_of_the_message_that_began_it(
    world: World, order: str
) -> None:
    first = ("a.mbox", mbox(message(1, Subject="AW: [RFC] Valves")))
    then = ("b.mbox", mbox(message(2, Subject="Re: Pumps", References="<m1@example.org>")))
    for name, mail in (first, then) if order == "it comes first" else (then, first):
        await world.ingest(name, mail)
    (thread,) = await world.trial.documents("threads")
    assert thread["subject"] == "AW: [RFC] Valves"


async def test_two_archives_that_begin_a_thread_at_the_same_time_share_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.ingest("a.mbox", mbox(message(1)))
    looks: list[str] = []
    really = gathering.those_there

    def not_at_first(collection: str, *given: Any) -> dict[str, dict[str, Any]]:
        looks.append(collection)
        return {} if looks == ["threads"] else really(collection, *given)

    monkeypatch.setattr(gathering, "those_there", not_at_first)
    await world.ingest("b.mbox", mbox(message(2, References="<m1@example.org>")))
    assert looks[:2] == ["threads", "threads"], "the handler ran again"
    (thread,) = await world.trial.documents("threads")
    assert thread["participants"] == ["Person 1", "Person 2"]
    assert (thread["slices"], len(thread["message_ids"])) == ([], 2)


async def test_what_is_no_message_fails_alone_with_its_reason(world: World) -> None:
    await world.ingest("a.mbox", mbox(message(1), b"\0\0\0", message(2)))
    assert len(await world.trial.documents("messages")) == 2
    (letter,) = await world.trial.letters(FAILED)
    assert letter.error_type == "UnreadableMailError"
    assert letter.abandoned_reason == "non_retryable"
    (told,) = world.of(ParsingFailed)
    (archive,) = await world.trial.documents("archives")
    (part,) = [each for each in await world.trial.documents("slices") if len(each["messages"]) == 1]
    start, end, _ = part["messages"][0]
    assert f"{archive['file_path']}, bytes {start} to {end}: " in letter.last_error
    assert r"they begin with b'\x00\x00\x00" in letter.last_error
    assert told.archive_id == archive["_id"]
    statuses = sorted(each["status"] for each in await world.trial.documents("slices"))
    assert statuses == ["failed", "processed"]
    assert all(not each["slices"] for each in await world.trial.documents("threads"))


async def test_a_heap_of_bad_messages_does_not_stop_the_good_ones(world: World) -> None:
    bad = [f"nonsense number {number}\n".encode() for number in range(40)]
    await world.ingest("a.mbox", mbox(message(1), *bad, message(2)))
    assert len(await world.trial.letters(FAILED)) == 40
    assert len(await world.trial.documents("messages")) == 2
    assert not world.trial.facts.of(FloodChanged)


async def test_a_message_that_breaks_us_is_set_aside_and_comes_in_when_we_are_mended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = read_mail

    def broken(raw: bytes, **rest: Any) -> Mail:
        if b"Topic 2" in raw:
            raise KeyError("a fault of ours")
        return real(raw, **rest)

    with monkeypatch.context() as patched:
        patched.setattr(reading_of_slices, "read_mail", broken)
        later = message(2, References="<m1@example.org>")
        await world.ingest("a.mbox", mbox(message(1), later, message(3)))
    assert len(await world.trial.documents("messages")) == 2
    (letter,) = await world.trial.letters(FAILED)
    assert letter.error_type == "KeyError"
    (one,) = await world.trial.documents("slices", {"status": "failed"})
    assert len(one["messages"]) == 1
    await world.trial.put("slices", {**one, "status": "pending", "attemptCount": 0})
    await world.sweep()
    await world.trial.run()
    messages = await world.trial.documents("messages")
    assert len(messages) == 3
    assert len({each["thread_id"] for each in messages}) == 2


async def test_the_same_message_twice_in_an_archive_is_one_and_that_is_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    again = message(1).replace(b"\n", b"\r\n")
    await world.ingest("a.mbox", mbox(message(1), message(2), again, message(1, "No.\n")))
    (archive,) = await world.trial.documents("archives")
    assert (archive["message_count"], archive["duplicate_count"]) == (2, 2)
    assert archive["differing_count"] == 1
    (line,) = [each for each in caplog.messages if "passed over" in each]
    assert line.startswith("2 messages of archive")
    assert line.endswith("1 of these have another text")
    assert len(world.of(JSONParsed)) == len(await world.trial.documents("messages")) == 2


async def test_messages_that_say_nothing_about_themselves_are_told_apart(world: World) -> None:
    bare = [b"To: x@y\n\none\n", b"To: x@y\n\ntwo\n"]
    await world.ingest("a.mbox", mbox(*bare))
    assert len(await world.trial.documents("messages")) == 2


async def test_an_archive_that_is_set_going_again_changes_nothing(world: World) -> None:
    await world.ingest("a.mbox", mbox(message(1), message(2)))
    before = [await world.trial.documents(name) for name in ("messages", "threads", "slices")]
    (archive,) = await world.trial.documents("archives")
    await world.trial.put("archives", {**archive, "status": "pending", "attemptCount": 0})
    await world.sweep()
    await world.trial.run()
    (archive,) = await world.trial.documents("archives")
    assert archive["status"] == "processed"
    assert archive["attemptCount"] == 1
    after = [await world.trial.documents(name) for name in ("messages", "threads", "slices")]
    assert after == before


async def test_a_kept_file_that_is_late_is_waited_for(world: World) -> None:
    alone = Trial(ingestion_service(world.settings))
    (world.folder / "a.mbox").write_bytes(mbox(message(1)))
    submitted = ArchiveSubmitted(path=str(world.folder / "a.mbox"), source_name="pumps")
    await alone.publish("ArchiveSubmitted", plain(submitted))
    await alone.run()
    (archive,) = await alone.documents("archives")
    kept = world.settings.data / archive["file_path"]
    content = kept.read_bytes()
    kept.unlink()
    await world.trial.put("archives", archive)
    await world.sweep()
    async with world.trial.running():
        while not kept.exists():
            await world.trial.clock.wait(_MOMENT)
            if world.trial.facts.of(EventRetryScheduled):
                kept.write_bytes(content)
    await world.trial.run()
    assert len(await world.trial.documents("messages")) == 1
    assert world.trial.facts.of(EventRecovered)


async def test_the_letter_of_a_lost_archive_says_what_brings_it_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    ingestion, mail = Trial(ingestion_service(world.settings)), mbox(message(1))
    (tmp_path / "a.mbox").write_bytes(mail)
    submitted = ArchiveSubmitted(path=str(tmp_path / "a.mbox"), source_name="pumps")
    await ingestion.publish("ArchiveSubmitted", plain(submitted))
    await ingestion.run()
    (archive,) = await ingestion.documents("archives")
    (world.settings.data / archive["file_path"]).unlink()
    await world.trial.put("archives", archive)
    await world.trial.publish("ArchiveIngested", rebuild_ingested(archive))
    await world.trial.run()
    (letter,) = await world.trial.letters(FAILED)
    assert "ingest the archive again" in letter.last_error
    assert f"headway failed requeue {FAILED}" in letter.last_error
    await world.ingest("a.mbox", mail)
    assert not await world.trial.documents("messages")
    trial = world.trial
    await FailedQueues(trial.engine, trial.clock, trial.chance).requeue(FAILED)
    await world.trial.run()
    assert len(await world.trial.documents("messages")) == 1
