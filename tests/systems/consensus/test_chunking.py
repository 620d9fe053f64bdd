"""The service that parts messages into chunks, from its event to its documents and back."""

from datetime import timedelta
from typing import Any

import pytest

from headway.systems.consensus.events import ChunkingFailed, ChunksPrepared
from headway.systems.consensus.identity import chunk_id
from headway.systems.consensus.services.chunking import chunking_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.text.tokens import PlainTokenizer
from headway.testing.trial import Trial
from tests.systems.consensus.passages import an_id
from tests.systems.consensus.threads import Desk

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


def a_trial(tokenizer: PlainTokenizer | None = None) -> tuple[Trial, Desk]:
    heard = Desk(ChunksPrepared, ChunkingFailed)
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
    (event,) = heard.data
    assert event.chunk_ids == stored["chunk_ids"]
    assert event.chunk_count == len(chunks)
    assert event.chunking_strategy == "sentences-16-4-plain"


AWKWARD = {
    "one long word": "x" * 3000,
    "emoji of several characters": "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER} " * 200,
    "no spaces at all": "\u6c17\u8c61\u89b3\u6e2c\u3002" * 300,
    "empty lines": "\n\n\n".join(f"Paragraph {n}." for n in range(100)),
    "very long": TEXT * 100,
}


@pytest.mark.parametrize("text", AWKWARD.values(), ids=AWKWARD)
async def test_no_text_is_lost_and_no_chunk_is_too_large(text: str) -> None:
    trial, _ = a_trial()
    await trial.put("messages", message("one", text))
    await trial.publish("JSONParsed", parsed("one"))
    await trial.run()
    covered = 0
    chunks = sorted(await trial.documents("chunks"), key=lambda each: int(each["chunk_index"]))
    for each in chunks:
        assert each["token_count"] <= SETTINGS.chunk_tokens
        assert not text[covered : each["offset"]].strip()
        assert text[each["offset"] :].startswith(each["text"])
        covered = each["offset"] + len(each["text"])
    assert not text[covered:].strip()


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
    assert sorted(data.chunk_ids) == sorted(each["_id"] for each in chunks)


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


async def test_max_retries_exceeded_is_a_dead_letter_and_one_failed_event() -> None:
    moody = Moody(*[ConnectionError("lost")] * 3)
    trial, heard = a_trial(moody)
    await trial.put("messages", message("one", "short"))
    await trial.publish("JSONParsed", parsed("one"))
    await trial.run()
    (letter,) = await trial.letters("chunking.failed")
    assert letter.abandoned_reason == "max_attempts_exceeded"
    (failed,) = heard.data
    assert (failed.error_type, failed.error_message) == ("ConnectionError", "lost")
    (stored,) = await trial.documents("messages")
    assert (stored["status"], stored["chunk_ids"]) == ("failed", None)
    assert await trial.documents("chunks") == []


async def test_a_stuck_message_is_swept_and_chunked() -> None:
    trial, heard = a_trial()
    await trial.put("messages", {**message("one"), "createdAt": "1999-01-01T00:00:00Z"})
    swept = await trial.sweep()
    assert {each.collection: each.requeued for each in swept.collections}["messages"] == 1
    await trial.run()
    assert (await trial.documents("messages"))[0]["status"] == "processed"
    assert len(heard.data) == 1
