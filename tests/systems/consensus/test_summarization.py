"""Summarization: one summary for each request, and the newest is that of the thread."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import Service
from headway.facts import EventRetryScheduled
from headway.operations import FailedQueues
from headway.systems.consensus import selecting
from headway.systems.consensus.events import (
    SummarizationFailed,
    SummaryComplete,
    plain,
)
from headway.systems.consensus.identity import summary_document_id
from headway.systems.consensus.models.summarizer import Summarizer
from headway.systems.consensus.services.orchestrator import orchestrator_service
from headway.systems.consensus.services.summarization import summarization_service
from headway.testing.trial import Trial
from tests.systems.consensus.chat import ChatServer, chat_server
from tests.systems.consensus.threads import (
    MOVE,
    Desk,
    Fake,
    Thread,
    changed,
    settings_in,
    swept,
    the,
)

PROMPT = "Sum it up."


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


class Scene:
    def __init__(
        self, folder: Path, summarizer: Summarizer | None = None, *others: Service, **given: Any
    ) -> None:
        self.settings = settings_in(folder, prompt=PROMPT, **given)
        self.desk = Desk(SummaryComplete, SummarizationFailed)
        self.trial = Trial(
            summarization_service(self.settings, summarizer), self.desk.service, *others
        )

    @property
    def complete(self) -> list[SummaryComplete]:
        return self.desk.told["SummaryComplete"]

    @property
    def failed(self) -> list[SummarizationFailed]:
        return self.desk.told["SummarizationFailed"]

    async def request(self, thread: Thread) -> str:
        """Request a summary as the orchestrator does; give its id."""
        wanted = selecting.request(
            thread.id, thread.messages, thread.chunks, top_k=12, prompt=PROMPT
        )
        data = plain(wanted)
        request_id = str(data["context_selection"]["request_id"])
        changed(
            self.trial, "threads", thread.id, request=data, request_id=request_id, status="pending"
        )
        await self.trial.publish("SummarizationRequested", data)
        return request_id

    async def run(self) -> None:
        await self.trial.run()
        await self.desk.check(self.trial)

    async def summarize(self, thread: Thread) -> str:
        await thread.put(self.trial)
        request_id = await self.request(thread)
        await self.run()
        return request_id

    async def letters(self) -> list[str]:
        return [each.error_type for each in await self.trial.letters("summarization.failed")]

    async def requeue(self) -> None:
        failed = FailedQueues(self.trial.engine, self.trial.clock, self.trial.chance)
        await failed.requeue("summarization.failed")
        await self.run()


async def test_a_request_becomes_a_summary_of_the_thread(tmp_path: Path) -> None:
    scene, thread = Scene(tmp_path), Thread()
    summary_id = await scene.summarize(thread)
    summary, stored = await the(scene.trial, "summaries"), await the(scene.trial, "threads")
    assert (summary["_id"], summary["summary_id"]) == (summary_document_id(summary_id), summary_id)
    assert (stored["summary_id"], stored["has_consensus"]) == (summary_id, True)
    assert (stored["status"], stored["attemptCount"]) == ("processed", 1)
    (told,) = scene.complete
    assert (told.summary_id, told.thread_id) == (summary_id, thread.id)
    assert told.summary_markdown == summary["content_markdown"]
    assert (told.llm_backend, told.llm_model) == ("extractive", "centrality-1")
    bodies = {each["message_id"]: each["body_normalized"] for each in thread.messages}
    assert len(told.citations) >= 4
    for each in told.citations:
        assert isinstance(each.text, str)
        assert bodies[each.message_id][each.offset :].startswith(each.text)
    await scene.request(thread)  # again, and nothing more is told
    await scene.run()
    assert len(scene.complete) == 1


async def test_a_thread_in_which_nothing_was_decided_has_no_consensus(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    thread = Thread([("Anna Berg", "Who has seen the red cable?"), ("Mei Lin", "It is in rack 4.")])
    await scene.summarize(thread)
    assert (await the(scene.trial, "threads"))["has_consensus"] is False


async def test_a_summary_that_is_there_is_told_of_and_not_made_again(tmp_path: Path) -> None:
    model = Fake()
    scene, thread = Scene(tmp_path, model), Thread()
    await scene.summarize(thread)
    lost = {"summary_id": None, "status": "pending", "attemptCount": 0, "lastAttemptTime": None}
    changed(scene.trial, "threads", thread.id, **lost)
    await scene.trial.sweep()
    await scene.run()
    assert (len(model.asked), len(scene.complete)) == (1, 2)
    assert (await the(scene.trial, "threads"))["summary_id"] == scene.complete[0].summary_id


async def test_what_does_not_pass_is_a_dead_letter_told_once_and_a_requeue_finishes_it(
    tmp_path: Path,
) -> None:
    model = Fake(*(ConnectionError(f"reset {n}") for n in range(3)))
    scene, thread = Scene(tmp_path, model), Thread()
    await scene.summarize(thread)
    assert await scene.letters() == ["ConnectionError"]
    (failed,) = scene.failed
    assert (failed.thread_id, failed.error_message, failed.retry_count) == (thread.id, "reset 2", 3)
    assert (await the(scene.trial, "threads"))["status"] == "failed"
    await scene.requeue()
    assert (len(model.asked), len(scene.complete)) == (4, 1)
    assert (await the(scene.trial, "threads"))["status"] == "processed"
    assert await scene.letters() == []


async def test_a_request_that_comes_while_another_is_worked_on_is_the_one_that_counts(
    tmp_path: Path,
) -> None:
    """The older one finishes after the newer one was requested: that one is made, at once."""
    thread, more = Thread(MOVE[:3]), Thread()

    def request_more() -> None:
        if len(model.asked) > 1:
            return
        data = plain(
            selecting.request(more.id, more.messages, more.chunks, top_k=12, prompt=PROMPT)
        )
        requested = {"request": data, "request_id": data["context_selection"]["request_id"]}
        changed(scene.trial, "threads", thread.id, **requested, status="pending")

    model = Fake(during=request_more)
    scene = Scene(tmp_path, model)
    await thread.put(scene.trial)
    await scene.trial.put("messages", *more.messages)
    await scene.trial.put("chunks", *more.chunks)
    older = await scene.request(thread)
    await scene.run()
    stored = await the(scene.trial, "threads")
    newer = stored["request_id"]
    assert newer != older
    assert [len(each.passages) for each in model.asked] == [3, 4]
    assert [each.summary_id for each in scene.complete] == [newer]
    assert (stored["summary_id"], stored["status"]) == (newer, "processed")
    await scene.request(more)  # its own event comes last, and finds that all is done
    changed(scene.trial, "threads", thread.id, status="processed")
    await scene.run()
    assert len(model.asked) == 2


async def test_a_thread_whose_event_was_lost_gets_the_same_summary_from_a_sweep(
    tmp_path: Path,
) -> None:
    orchestrator = orchestrator_service(settings_in(tmp_path, prompt=PROMPT))
    undisturbed, thread = Scene(tmp_path, None, orchestrator), Thread()
    await thread.put(undisturbed.trial)
    await undisturbed.trial.publish("EmbeddingsGenerated", thread.embedded())
    await undisturbed.run()
    for requested in (False, True):  # the event of the embeddings was lost, or the request
        scene = Scene(tmp_path)
        await thread.put(scene.trial)
        if requested:
            stored = await the(undisturbed.trial, "threads")
            changes = {name: stored[name] for name in ("request", "request_id")}
            changed(scene.trial, "threads", thread.id, **changes)
        ended = await scene.trial.sweep()
        assert {each.collection: each.requeued for each in ended.collections}["threads"] == 1
        await scene.run()
        (told,) = scene.complete
        (usual,) = undisturbed.complete
        assert told == msgspec.structs.replace(usual, latency_ms=told.latency_ms)
        assert (await the(scene.trial, "threads"))["summary_id"] == told.summary_id


UNREADY: dict[str, tuple[str, dict[str, Any]]] = {
    "a slice to come": ("threads", {"slices": ["5" * 16]}),
    "a message not chunked": ("messages", {"chunk_ids": None, "status": "pending"}),
    "a chunk not embedded": ("chunks", {"embedding_generated": False}),
    "a chunk that failed": ("chunks", {"embedding_generated": False, "status": "failed"}),
}


@pytest.mark.parametrize("is_lost", [False, True], ids=["its event comes", "its event is lost"])
@pytest.mark.parametrize("unready", UNREADY)
async def test_a_thread_of_which_something_is_missing_waits_for_it_whatever_comes_before(
    tmp_path: Path, unready: str, *, is_lost: bool
) -> None:
    orchestrator = orchestrator_service(settings_in(tmp_path, prompt=PROMPT))
    scene, thread = Scene(tmp_path, None, orchestrator), Thread()
    await thread.put(scene.trial)
    await scene.trial.put("slices", {"_id": "5" * 16, "status": "pending"})
    collection, changes = UNREADY[unready]
    late = {"threads": thread.thread, "messages": thread.messages[0], "chunks": thread.chunks[0]}
    document = late[collection]
    changed(scene.trial, collection, document["_id"], **changes)
    await scene.trial.publish("EmbeddingsGenerated", thread.embedded(3))
    for _ in range(7):  # more often than a thread may be attempted
        await scene.trial.sweep()
        await scene.run()
        assert (scene.complete, await scene.letters()) == ([], [])
        waiting = await the(scene.trial, "threads")
        assert (waiting["status"], waiting["attemptCount"]) == ("pending", 0)
        assert await swept(scene.trial) == 0  # it is left alone for a while
        scene.trial.clock.advance(timedelta(minutes=20))
    changed(
        scene.trial, collection, document["_id"], **{each: document.get(each) for each in changes}
    )
    if is_lost:
        await scene.trial.sweep()
    else:
        await scene.trial.publish("EmbeddingsGenerated", thread.embedded(0))
    await scene.run()
    assert (len(scene.complete), await scene.letters()) == (1, [])
    assert (await the(scene.trial, "threads"))["status"] == "processed"


async def test_what_a_thread_waits_for_in_vain_is_named_in_its_dead_letter(tmp_path: Path) -> None:
    scene, thread = Scene(tmp_path), Thread()
    await thread.put(scene.trial)
    chunk = thread.chunks[0]["_id"]
    changed(scene.trial, "chunks", chunk, embedding_generated=False, status="failed_max_retries")
    await scene.trial.sweep()
    await scene.run()
    (letter,) = await scene.trial.letters("summarization.failed")
    assert (letter.error_type, letter.abandoned_reason) == ("InputGivenUpError", "non_retryable")
    assert chunk in letter.last_error
    assert (await the(scene.trial, "threads"))["status"] == "failed"


# A model behind HTTP


async def test_a_model_is_asked_and_what_it_cites_is_found_again(
    tmp_path: Path, chat: ChatServer
) -> None:
    chat.answers("They move one by one [2, 4]. <b>Soon</b> [99] [see](http://evil) [4].")
    scene = Scene(tmp_path, **chat.settings)
    await scene.summarize(Thread())
    (told,) = scene.complete
    assert told.summary_markdown == (
        r"They move one by one [1][2]. \<b\>Soon\</b\> \[see\](http://evil) [2]." + "\n"
    )
    assert [each.message_id for each in told.citations] == ["1.one@list", "3.one@list"]
    assert (told.llm_backend, told.llm_model) == ("openai", "tiny")
    assert (told.tokens_prompt, told.tokens_completion) == (11, 7)
    (asked,) = chat.asked
    assert asked["model"] == "tiny"
    prompt = asked["messages"][-1]["content"]
    assert prompt.startswith(PROMPT)
    assert "[1] Anna Berg, 2026-03-02:\nI propose that we move" in prompt
    assert (await the(scene.trial, "threads"))["has_consensus"] is True


async def test_the_pause_that_a_model_asks_for_is_kept(tmp_path: Path, chat: ChatServer) -> None:
    chat.refuses(429, retry_after=12)
    chat.refuses(503)
    chat.answers("Fine.")
    scene = Scene(tmp_path, **chat.settings)
    await scene.summarize(Thread())
    delays = [each.delay.total_seconds() for each in scene.trial.facts.of(EventRetryScheduled)]
    assert delays[0] >= 12
    assert len(chat.asked) == 3
    assert len(scene.complete) == 1


@pytest.mark.parametrize("status", [401, 500])
async def test_the_key_is_in_no_error_and_no_log(
    tmp_path: Path, chat: ChatServer, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    for _ in range(3):
        chat.refuses(status, text=f"the key {chat.key} is wrong")
    scene = Scene(tmp_path, **chat.settings)
    await scene.summarize(Thread())
    assert await scene.letters() == ["HTTPStatusError"]
    (letter,) = await scene.trial.letters("summarization.failed")
    assert "the key *** is wrong" in letter.last_error
    assert chat.keys == [f"Bearer {chat.key}"] * (1 if status == 401 else 3)
    for kept in (letter, scene.failed, caplog.text, scene.settings):
        assert chat.key not in repr(kept)


@pytest.mark.parametrize("body", ["no JSON", '{"choices": [{"message": {}}]}'])
async def test_an_answer_that_is_none_is_asked_for_again(
    tmp_path: Path, chat: ChatServer, body: str
) -> None:
    chat.says(body)
    chat.answers("Fine.")
    scene = Scene(tmp_path, **chat.settings)
    await scene.summarize(Thread())
    assert (len(chat.asked), len(scene.complete)) == (2, 1)
