"""Summarization: one summary for each request, and the newest is that of the thread."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headway import Service
from headway.facts import EventRetryScheduled
from headway.operations import FailedQueues
from headway.systems.consensus import selecting
from headway.systems.consensus.events import (
    SummarizationFailed,
    SummarizationRequested,
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

    async def letters(self) -> list[str]:
        return [each.error_type for each in await self.trial.letters("summarization.failed")]

    async def requeue(self) -> None:
        failed = FailedQueues(self.trial.engine, self.trial.clock, self.trial.chance)
        await failed.requeue("summarization.failed")
        await self.run()


async def test_a_request_becomes_a_summary_of_the_thread(tmp_path: Path) -> None:
    scene, thread = Scene(tmp_path), Thread()
    await thread.put(scene.trial)
    summary_id = await scene.request(thread)
    await scene.run()
    summary, stored = await the(scene.trial, "summaries"), await the(scene.trial, "threads")
    assert (summary["_id"], summary["summary_id"]) == (summary_document_id(summary_id), summary_id)
    assert (stored["summary_id"], stored["has_consensus"]) == (summary_id, True)
    assert (stored["status"], stored["attemptCount"]) == ("processed", 1)
    (told,) = scene.complete
    assert (told.summary_id, told.thread_id) == (summary_id, thread.id)
    assert told.summary_markdown == summary["content_markdown"]
    assert (told.llm_backend, told.llm_model) == ("extractive", "centrality-1")


async def test_every_citation_is_found_in_its_message(tmp_path: Path) -> None:
    scene, thread = Scene(tmp_path), Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    await scene.run()
    (told,) = scene.complete
    bodies = {each["message_id"]: each["body_normalized"] for each in thread.messages}
    assert len(told.citations) >= 4
    for each in told.citations:
        assert isinstance(each.text, str)
        assert bodies[each.message_id][each.offset :].startswith(each.text)


async def test_the_same_request_twice_is_one_summary(tmp_path: Path) -> None:
    model = Fake()
    scene, thread = Scene(tmp_path, model), Thread()
    await thread.put(scene.trial)
    for _ in range(2):
        await scene.request(thread)
        await scene.run()
    assert (len(model.asked), len(scene.complete)) == (1, 1)


async def test_a_summary_that_is_there_is_told_of_and_not_made_again(tmp_path: Path) -> None:
    model = Fake()
    scene, thread = Scene(tmp_path, model), Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    await scene.run()
    lost = {"summary_id": None, "status": "pending", "attemptCount": 0, "lastAttemptTime": None}
    changed(scene.trial, "threads", thread.id, **lost)
    await scene.trial.sweep()
    await scene.run()
    assert (len(model.asked), len(scene.complete)) == (1, 2)
    assert (await the(scene.trial, "threads"))["summary_id"] == scene.complete[0].summary_id


async def test_faults_that_pass_are_outlived_by_the_third_call(tmp_path: Path) -> None:
    model = Fake(ConnectionError("reset"), TimeoutError("no answer"))
    scene, thread = Scene(tmp_path, model), Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    await scene.run()
    assert (len(model.asked), len(scene.complete)) == (3, 1)
    assert (await the(scene.trial, "threads"))["attemptCount"] == 1
    assert await scene.letters() == []


async def test_what_does_not_pass_is_a_letter_told_once_and_a_requeue_finishes_it(
    tmp_path: Path,
) -> None:
    model = Fake(*(ConnectionError(f"reset {n}") for n in range(3)))
    scene, thread = Scene(tmp_path, model), Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    await scene.run()
    assert await scene.letters() == ["ConnectionError"]
    (failed,) = scene.failed
    assert (failed.thread_id, failed.error_message, failed.retry_count) == (thread.id, "reset 2", 3)
    assert (await the(scene.trial, "threads"))["status"] == "failed"
    await scene.requeue()
    assert (len(model.asked), len(scene.complete)) == (4, 1)
    assert (await the(scene.trial, "threads"))["status"] == "processed"
    assert await scene.letters() == []


async def test_chunks_that_are_late_are_waited_for(tmp_path: Path) -> None:
    scene, thread = Scene(tmp_path), Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    late = thread.chunks[0]
    del scene.trial.state.documents["chunks"][late["_id"]]
    async with scene.trial.running():
        while not scene.trial.facts.of(EventRetryScheduled):
            await scene.trial.clock.wait(timedelta(milliseconds=10))
        await scene.trial.put("chunks", late)
    await scene.run()
    assert len(scene.complete) == 1
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


async def test_an_older_event_that_comes_late_makes_the_newer_summary(tmp_path: Path) -> None:
    model = Fake()
    scene, thread, more = Scene(tmp_path, model), Thread(MOVE[:3]), Thread()
    await more.put(scene.trial)
    await scene.request(thread)
    data = plain(selecting.request(more.id, more.messages, more.chunks, top_k=12, prompt=PROMPT))
    newer = data["context_selection"]["request_id"]
    changed(scene.trial, "threads", thread.id, request=data, request_id=newer)
    await scene.run()
    assert [len(each.passages) for each in model.asked] == [4]
    assert (await the(scene.trial, "threads"))["summary_id"] == newer


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


async def test_a_sweep_requests_what_was_requested_with_all_that_was_chosen(tmp_path: Path) -> None:
    service = summarization_service(settings_in(tmp_path))
    (subscription,) = service.subscriptions.values()
    assert subscription.rebuild is not None
    thread = Thread()
    asked = plain(
        selecting.request(thread.id, thread.messages, thread.chunks, top_k=3, prompt=PROMPT)
    )
    assert subscription.rebuild({**thread.thread, "request": asked}) == asked
    bare = msgspec.convert(subscription.rebuild(thread.thread), SummarizationRequested)
    assert (bare.thread_ids, bare.top_k) == ([thread.id], 12)


async def test_new_text_of_a_thread_that_a_sweep_once_sent_is_summarized_without_another(
    tmp_path: Path,
) -> None:
    orchestrator = orchestrator_service(settings_in(tmp_path, prompt=PROMPT))
    scene, thread, more = Scene(tmp_path, None, orchestrator), Thread(MOVE[:3]), Thread()
    await thread.put(scene.trial)
    await scene.trial.sweep()
    await scene.run()
    assert len(scene.complete) == 1
    await scene.trial.put("messages", *more.messages)
    await scene.trial.put("chunks", *more.chunks)
    changed(scene.trial, "threads", thread.id, message_ids=more.thread["message_ids"])
    await scene.trial.publish("EmbeddingsGenerated", more.embedded(3))
    await scene.run()
    stored = await the(scene.trial, "threads")
    assert (stored["summary_id"], stored["status"]) == (stored["request_id"], "processed")
    assert [each.summary_id for each in scene.complete][-1] == stored["request_id"]
    assert len(scene.complete) == 2


UNREADY: dict[str, tuple[str, dict[str, Any]]] = {
    "a slice to come": ("threads", {"slices": ["5" * 16]}),
    "a message not chunked": ("messages", {"chunk_ids": None, "status": "pending"}),
    "a chunk not embedded": ("chunks", {"embedding_generated": False}),
    "a chunk that failed": ("chunks", {"embedding_generated": False, "status": "failed"}),
}


@pytest.mark.parametrize("is_lost", [False, True], ids=["its event comes", "its event is lost"])
@pytest.mark.parametrize("unready", UNREADY)
async def test_a_sweep_that_comes_before_the_rest_of_a_thread_makes_neither_letter_nor_summary(
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


async def test_what_a_thread_waits_for_in_vain_is_named_in_its_letter(tmp_path: Path) -> None:
    scene, thread = Scene(tmp_path), Thread()
    await thread.put(scene.trial)
    chunk = thread.chunks[0]["_id"]
    changed(scene.trial, "chunks", chunk, embedding_generated=False, status="failed_max_retries")
    await scene.trial.sweep()
    await scene.run()
    (letter,) = await scene.trial.letters("summarization.failed")
    assert (letter.error_type, letter.abandoned_reason) == ("InputGivenUpError", "non_retryable")
    assert chunk in letter.last_error
    assert "headway documents reset chunks" in letter.last_error
    assert (await the(scene.trial, "threads"))["status"] == "failed"


async def test_what_a_thread_waits_for_and_nobody_can_see_is_a_letter_in_the_end(
    tmp_path: Path,
) -> None:
    scene, thread = Scene(tmp_path), Thread()
    await thread.put(scene.trial)
    changed(scene.trial, "threads", thread.id, slices=["6" * 16])
    await scene.trial.sweep()
    await scene.run()
    assert (scene.complete, await scene.letters()) == ([], ["DocumentNotFoundError"])


async def test_an_event_that_does_not_fit_is_a_letter(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.trial.publish("SummarizationRequested", {"thread_ids": []})
    await scene.trial.run()
    assert await scene.letters() == ["ValidationError"]


# A model behind HTTP


async def test_a_model_is_asked_and_what_it_cites_is_found_again(
    tmp_path: Path, chat: ChatServer
) -> None:
    chat.answers("They move one by one [2, 4]. <b>Soon</b> [99] [see](http://evil) [4].")
    scene = Scene(tmp_path, **chat.settings)
    thread = Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    await scene.run()
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


async def test_the_discussion_is_put_where_the_prompt_says(
    tmp_path: Path, chat: ChatServer
) -> None:
    chat.answers("Fine.")
    scene = Scene(tmp_path, **chat.settings)
    thread = Thread([("Anna Berg", "Is {thread} or {0} a word that we should use at all?")])
    await thread.put(scene.trial)
    data = plain(
        selecting.request(
            thread.id, thread.messages, thread.chunks, top_k=3, prompt="Read {thread}\nas {json}."
        )
    )
    changed(scene.trial, "threads", thread.id, request=data)
    await scene.trial.publish("SummarizationRequested", data)
    await scene.run()
    prompt = chat.asked[0]["messages"][-1]["content"]
    assert prompt.startswith("Read Subject: Nightly builds")
    assert prompt.endswith("Is {thread} or {0} a word that we should use at all?\nas {json}.")


async def test_the_pause_that_a_model_asks_for_is_kept(tmp_path: Path, chat: ChatServer) -> None:
    chat.refuses(429, retry_after=12)
    chat.refuses(503)
    chat.answers("Fine.")
    scene = Scene(tmp_path, **chat.settings)
    thread = Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    await scene.run()
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
    thread = Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    await scene.run()
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
    thread = Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    await scene.run()
    assert (len(chat.asked), len(scene.complete)) == (2, 1)


async def test_a_model_that_nobody_runs_is_a_connection_error(tmp_path: Path) -> None:
    scene = Scene(
        tmp_path, summary_backend="openai", summary_url="http://127.0.0.1:9", summary_model="tiny"
    )
    thread = Thread()
    await thread.put(scene.trial)
    await scene.request(thread)
    await scene.run()
    assert await scene.letters() == [httpx.ConnectError.__name__]


def test_the_request_is_the_same_whoever_makes_it() -> None:
    thread = Thread()
    one = selecting.request(thread.id, thread.messages, thread.chunks, top_k=2, prompt="")
    other = selecting.request(
        thread.id, thread.messages[::-1], thread.chunks[::-1], top_k=2, prompt=""
    )
    assert isinstance(one, SummarizationRequested)
    assert one == other
