"""Retry and forward progress end to end: real processes, a real file, real handlers."""

import json
from pathlib import Path

import pytest

from tests.chaos.running import Site
from tests.cli.test_failed_command import DOCUMENTED


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("RETRY_BASE_DELAY_MS", "40")
    monkeypatch.setenv("RETRY_MAX_DELAY_MS", "300")
    return Site(tmp_path)


def calls(site: Site, step: str) -> list[int]:
    """The attempt numbers of every call of a handler."""
    log = site.folder / "calls.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [int(line.split()[2]) for line in lines if line.startswith(f"{step} ")]


def messages(site: Site) -> list[str]:
    return [str(json.loads(line)["message"]) for line in site.log().splitlines()]


def letters(site: Site, queue: str) -> list[dict[str, object]]:
    found = json.loads(site.headway("failed", "inspect", queue, "--json").stdout)
    assert isinstance(found, list)
    return found


async def arrive(site: Site, *ids: str) -> None:
    await site.publish("MessageArrived", [{"id": each, "text": "two words"} for each in ids])


async def parse(site: Site, *ids: str) -> None:
    await site.publish("JSONParsed", [{"message_doc_ids": list(ids)}])


async def test_an_event_before_its_document_is_processed_when_the_document_is_there(
    site: Site,
) -> None:
    with site.running("chunking"):
        site.wait_for_workers(1)
        await parse(site, "a", "b")
        site.wait(lambda: len(calls(site, "chunk")) >= 2, "it has been tried again")
        await arrive(site, "a")  # one of two is not enough
        await arrive(site, "b")
        site.wait(lambda: len(site.documents("chunks")) == 4, "both are chunked")
        site.wait(lambda: site.left() == 0, "all events have ended")
    tries = calls(site, "chunk")
    assert tries == list(range(1, len(tries) + 1))
    retries = len(tries) - 1
    for first in (
        f"Retry attempt {retries}/8 for event with idempotency key: chunking-a-b; chunking.chunk",
        f"Event processed successfully after {retries} retry attempts",
    ):
        assert any(line.startswith(first) for line in messages(site))
    assert all(each["embedding_generated"] for each in site.documents("chunks"))
    assert [each["status"] for each in site.documents("messages")] == ["processed"] * 2
    assert [each["attemptCount"] for each in site.documents("messages")] == [1, 1]
    assert site.headway("failed", "inspect", "chunking", "--json").stdout.strip() == "[]"


async def test_a_document_that_never_comes_is_a_letter_after_eight_retries(site: Site) -> None:
    with site.running("chunking"):
        site.wait_for_workers(1)
        await parse(site, "nowhere")
        site.wait(lambda: len(site.documents("failures")) == 1, "the failure is told")
    assert calls(site, "chunk") == list(range(1, 10))
    (letter,) = letters(site, "chunking.failed")
    assert set(letter) >= DOCUMENTED
    assert letter["abandoned_reason"] == "max_attempts_exceeded"
    assert letter["attempt_count"] == 8
    assert letter["idempotency_key"] == "chunking-nowhere"
    assert letter["last_error"] == "DocumentNotFoundError: not found in messages: nowhere"
    attempts = letter["attempts"]
    assert isinstance(attempts, list)
    assert [each["number"] for each in attempts] == list(range(1, 10))
    assert (
        "Event sent to DLQ after 8 attempts (reason: max_attempts_exceeded): chunking.chunk "
        "(JSONParsed) raised DocumentNotFoundError: not found in messages: nowhere"
    ) in messages(site)
    (failure,) = site.documents("failures")
    assert (failure["type"], failure["message_doc_ids"]) == ("ChunkingFailed", ["nowhere"])
    assert failure["error_type"] == "DocumentNotFoundError"
    assert {"error_message", "retry_count", "failed_at"} <= set(failure)


async def test_a_programming_error_is_a_letter_at_once_and_can_be_requeued_once_mended(
    site: Site,
) -> None:
    (site.folder / "fault").touch()
    with site.running("chunking"):
        site.wait_for_workers(1)
        await arrive(site, "a")
        await parse(site, "a")
        site.wait(lambda: len(site.documents("failures")) == 1, "the failure is told")
        assert calls(site, "embed") == [1]
        (letter,) = letters(site, "embedding.failed")
        assert letter["abandoned_reason"] == "non_retryable"
        (site.folder / "fault").unlink()
        assert site.headway("failed", "requeue", "embedding").returncode == 0
        site.wait(lambda: len(site.documents("totals")) == 1, "it is embedded")
    assert site.documents("totals") == [{"_id": "embedded", "chunks": 2}]
    assert site.headway("verify").returncode == 0
