"""The service that parts messages into chunks, from its event to its documents and back."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headway import Service
from headway.systems.consensus.events import ChunkingFailed, ChunksPrepared
from headway.systems.consensus.identity import chunk_id
from headway.systems.consensus.services.chunking import chunking_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.text.tokens import PlainTokenizer
from headway.testing.trial import Trial
from tests.systems.consensus.passages import an_id

SETTINGS = ConsensusSettings(chunk_tokens=16, chunk_overlap=4)
TEXT = " ".join(f"This is sentence number {n}." for n in range(12))


class Moody(PlainTokenizer):
    """Counts, after it has failed some times."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    def count(self, texts: Any) -> list[int]:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return super().count(texts)


class Heard:
    """A service that hears what the others publish."""

    def __init__(self, *event_types: str) -> None:
        self.service = Service("heard")
        self.data: list[dict[str, Any]] = []
        for event_type in event_types:
            self.service.on(event_type)(self._hear)

    async def _hear(self, event: Any, work: Any) -> None:
        self.data.append(event.data)


def a_trial(tokenizer: PlainTokenizer | None = None) -> tuple[Trial, Heard]:
    heard = Heard("ChunksPrepared", "ChunkingFailed")
    service = chunking_service(SETTINGS, tokenizer=tokenizer or PlainTokenizer())
    return Trial(service, heard.service), heard


def message(name: str, text: str | None = TEXT) -> dict[str, Any]:
    return {
        "_id": an_id(name),
        "message_id": f"{name}@example.org",
        "archive_id": an_id("archive"),
        "thread_id": an_id("thread"),
        "subject": "Re: Schedules",
        "from": {"name": "Ada", "email": "ada@example.org"},
        "date": "2025-02-04T10:00:00Z",
        "body_normalized": text,
        "chunk_ids": None,
        "status": "pending",
        "attemptCount": 0,
    }


def parsed(*names: str) -> dict[str, Any]:
    return {
        "archive_id": an_id("archive"),
        "message_count": len(names),
        "message_doc_ids": [an_id(name) for name in names],
        "thread_count": 1,
        "thread_ids": [an_id("thread")],
        "parsing_duration_seconds": 0.1,
    }


async def test_a_message_is_parted_and_its_chunks_are_announced() -> None:
    trial, heard = a_trial()
    await trial.put("messages", message("one"))
    await trial.publish("JSONParsed", parsed("one"))
    await trial.run()
    (stored,) = await trial.documents("messages")
    chunks = {each["_id"]: each for each in await trial.documents("chunks")}
    assert stored["status"] == "processed"
    assert stored["chunk_ids"] == [chunk_id(an_id("one"), n) for n in range(len(chunks))]
    assert len(chunks) > 3
    for index, each in enumerate(stored["chunk_ids"]):
        chunk = chunks[each]
        assert chunk["chunk_index"] == index
        assert TEXT[chunk["offset"] :].startswith(chunk["text"])
        assert chunk["embedding_generated"] is False
        assert (chunk["attemptCount"], chunk["thread_id"]) == (0, an_id("thread"))
        assert (chunk["from"], chunk["subject"]) == ("Ada", "Re: Schedules")
    (data,) = heard.data
    event = msgspec.convert(data, ChunksPrepared)
    assert event.chunk_ids == stored["chunk_ids"]
    assert event.chunk_count == len(chunks)
    assert event.chunking_strategy == "sentences-16-4-plain"


async def test_idempotent_chunk_insertion() -> None:
    trial, heard = a_trial()
    await trial.put("messages", message("one"))
    there = {"_id": chunk_id(an_id("one"), 0), "text": "made before", "embedding_generated": True}
    await trial.put("chunks", there)
    for _ in range(2):
        await trial.publish("JSONParsed", parsed("one"))
        await trial.run()
    chunks = await trial.documents("chunks")
    assert there in chunks
    (data,) = heard.data
    assert sorted(data["chunk_ids"]) == sorted(each["_id"] for each in chunks)


async def test_a_message_that_is_reset_keeps_its_chunks_and_announces_them_again() -> None:
    trial, heard = a_trial()
    await trial.put("messages", message("one"))
    await trial.publish("JSONParsed", parsed("one"))
    await trial.run()
    before = await trial.documents("chunks")
    (stored,) = await trial.documents("messages")
    await trial.put("messages", {**stored, "status": "pending", "body_normalized": "changed"})
    trial.clock.advance(timedelta(days=30))  # what was done is not remembered any more
    await trial.sweep()
    await trial.run()
    assert await trial.documents("chunks") == before
    assert [data["chunk_ids"] for data in heard.data] == [stored["chunk_ids"]] * 2
    assert (await trial.documents("messages"))[0]["status"] == "processed"


@pytest.mark.parametrize("text", ["", " \n\t ", None])
async def test_a_message_without_text_is_processed_and_nothing_is_announced(
    text: str | None,
) -> None:
    trial, heard = a_trial()
    await trial.put("messages", message("empty", text))
    await trial.publish("JSONParsed", parsed("empty"))
    await trial.run()
    (stored,) = await trial.documents("messages")
    assert (stored["status"], stored["chunk_ids"]) == ("processed", [])
    assert await trial.documents("chunks") == []
    assert heard.data == []
    assert await trial.letters("chunking.failed") == []


async def test_with_two_of_three_messages_visible_it_waits_for_the_third() -> None:
    trial, heard = a_trial()
    await trial.put("messages", message("one"), message("two"))
    await trial.publish("JSONParsed", parsed("one", "two", "three"))
    await trial.run(at_most=timedelta(milliseconds=100))
    assert await trial.documents("chunks") == []
    await trial.put("messages", message("three"))
    await trial.run()
    owners = {each["message_doc_id"] for each in await trial.documents("chunks")}
    assert owners == {an_id("one"), an_id("two"), an_id("three")}
    assert len(heard.data) == 1


async def test_a_message_that_never_comes_is_a_letter_that_names_it() -> None:
    trial, heard = a_trial()
    await trial.put("messages", message("one"))
    await trial.publish("JSONParsed", parsed("one", "never"))
    await trial.run()
    (letter,) = await trial.letters("chunking.failed")
    assert letter.abandoned_reason == "max_attempts_exceeded"
    assert an_id("never") in letter.last_error
    (data,) = heard.data
    failed = msgspec.convert(data, ChunkingFailed)
    assert failed.message_doc_ids == [an_id("one"), an_id("never")]
    assert failed.error_type == "DocumentNotFoundError"


async def test_retry_with_exponential_backoff() -> None:
    moody = Moody(ConnectionError("lost"), ConnectionError("lost"))
    trial, heard = a_trial(moody)
    await trial.put("messages", message("one", "short"))
    began = trial.clock.now()
    await trial.publish("JSONParsed", parsed("one"))
    await trial.run()
    assert moody.calls == 3
    assert trial.clock.now() - began >= timedelta(seconds=15)
    assert len(heard.data) == 1
    assert (await trial.documents("messages"))[0]["status"] == "processed"


async def test_max_retries_exceeded_is_a_letter_and_one_failed_event() -> None:
    moody = Moody(*[ConnectionError("lost")] * 3)
    trial, heard = a_trial(moody)
    await trial.put("messages", message("one", "short"))
    await trial.publish("JSONParsed", parsed("one"))
    await trial.run()
    (letter,) = await trial.letters("chunking.failed")
    assert letter.abandoned_reason == "max_attempts_exceeded"
    (data,) = heard.data
    failed = msgspec.convert(data, ChunkingFailed)
    assert (failed.error_type, failed.error_message) == ("ConnectionError", "lost")
    (stored,) = await trial.documents("messages")
    assert (stored["status"], stored["chunk_ids"]) == ("failed", None)
    assert await trial.documents("chunks") == []


async def test_what_is_no_event_of_its_kind_is_a_letter_at_once() -> None:
    trial, _ = a_trial()
    await trial.publish("JSONParsed", {**parsed("one"), "message_doc_ids": []})
    await trial.run()
    (letter,) = await trial.letters("chunking.failed")
    assert "message_doc_ids" in letter.last_error


async def test_a_stuck_message_is_swept_and_chunked() -> None:
    trial, heard = a_trial()
    await trial.put("messages", {**message("one"), "createdAt": "1999-01-01T00:00:00Z"})
    swept = await trial.sweep()
    assert {each.collection: each.requeued for each in swept.collections}["messages"] == 1
    await trial.run()
    assert (await trial.documents("messages"))[0]["status"] == "processed"
    assert len(heard.data) == 1


async def test_a_very_long_message_is_chunked_aside() -> None:
    trial, _ = a_trial()
    await trial.put("messages", message("long", TEXT * 100))
    await trial.publish("JSONParsed", parsed("long"))
    await trial.run()
    (stored,) = await trial.documents("messages")
    assert stored["status"] == "processed"
    assert len(stored["chunk_ids"]) == len(await trial.documents("chunks")) > 300
