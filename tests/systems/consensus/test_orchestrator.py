"""The orchestrator: a thread is requested when all of it is there, once for the same text."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import Work
from headway.operations import FailedQueues
from headway.systems.consensus.events import OrchestrationFailed, SummarizationRequested, plain
from headway.systems.consensus.identity import request_id
from headway.systems.consensus.readiness import Gathered, Missing, gather
from headway.systems.consensus.services import orchestrator
from headway.systems.consensus.services.orchestrator import orchestrator_service
from headway.testing.trial import Trial
from tests.systems.consensus.threads import MOVE, Desk, Thread, changed, settings_in, the


class Scene:
    def __init__(self, folder: Path, **settings: Any) -> None:
        self.desk = Desk(SummarizationRequested, OrchestrationFailed)
        service = orchestrator_service(settings_in(folder, **settings))
        self.trial = Trial(service, self.desk.service)

    @property
    def requested(self) -> list[dict[str, Any]]:
        return [plain(each) for each in self.desk.told["SummarizationRequested"]]

    async def embedded(self, thread: Thread, *numbers: int) -> None:
        await self.trial.publish("EmbeddingsGenerated", thread.embedded(*numbers))
        await self.trial.run()
        await self.desk.check(self.trial)

    async def letters(self) -> list[str]:
        return [each.error_type for each in await self.trial.letters("orchestration.failed")]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_a_thread_that_is_all_there_is_requested_with_its_chunks(scene: Scene) -> None:
    thread = Thread()
    await thread.put(scene.trial)
    await scene.embedded(thread, 3)
    (request,) = scene.requested
    assert request["thread_ids"] == [thread.id]
    assert {each["chunk_id"] for each in request["selected_chunks"]} == {
        each["_id"] for each in thread.chunks
    }
    stored = await the(scene.trial, "threads")
    assert stored["request_id"] == request_id(thread.id, [each["_id"] for each in thread.chunks])
    assert request["context_selection"]["request_id"] == stored["request_id"]
    assert stored["request"]["thread_ids"] == [thread.id]
    assert (stored["status"], stored["summary_id"]) == ("pending", None)


async def test_events_of_the_same_text_request_it_once(scene: Scene) -> None:
    thread = Thread()
    await thread.put(scene.trial)
    for number in (0, 1, 2, 3, 3):  # at the same time, and one of them twice
        await scene.trial.publish("EmbeddingsGenerated", thread.embedded(number))
    await scene.trial.run()
    await scene.embedded(thread)
    assert len(scene.requested) == 1


async def test_a_new_text_is_requested_anew(scene: Scene) -> None:
    thread = Thread(MOVE[:3])
    await thread.put(scene.trial)
    await scene.embedded(thread)
    changed(scene.trial, "threads", thread.id, status="processed", attemptCount=5)
    more = Thread()
    await scene.trial.put("messages", *more.messages)
    await scene.trial.put("chunks", *more.chunks)
    changed(scene.trial, "threads", thread.id, message_ids=more.thread["message_ids"])
    await scene.embedded(more, 3)
    first, second = (each["context_selection"]["request_id"] for each in scene.requested)
    assert first != second
    stored = await the(scene.trial, "threads")
    assert (stored["status"], stored["attemptCount"]) == ("pending", 0)
    assert stored["request_id"] == second


@pytest.mark.parametrize("knows_of_how_many", [True, False], ids=["quickly", "by its chunks"])
async def test_a_summarized_thread_whose_new_messages_say_nothing_is_done(
    scene: Scene, *, knows_of_how_many: bool
) -> None:
    thread = Thread()
    await thread.put(scene.trial)
    await scene.embedded(thread)
    stored = await the(scene.trial, "threads")
    # It was summarized; then another archive had it wait for a slice, in which nothing was said.
    changes = {"summary_id": stored["request_id"], "status": "pending"}
    if not knows_of_how_many:
        changes["requested_messages"] = None
    changed(scene.trial, "threads", thread.id, **changes)
    await scene.trial.publish("ThreadGathered", {"thread_ids": [thread.id]})
    await scene.trial.run()
    assert (await the(scene.trial, "threads"))["status"] == "processed"
    assert len(scene.requested) == 1


async def test_a_thread_that_is_requested_is_not_read_again_for_each_of_its_messages(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    async def counted(work: Work, thread: dict[str, Any]) -> Gathered | Missing:
        read.append(thread["_id"])
        return await gather(work, thread)

    monkeypatch.setattr(orchestrator, "gather", counted)
    thread = Thread()
    await thread.put(scene.trial)
    for number in range(4):
        await scene.embedded(thread, number)
    assert read == [thread.id]
    assert len(scene.requested) == 1


@pytest.mark.parametrize(
    "unready",
    [
        ("threads", {"slices": ["0" * 16]}),
        ("messages", {"chunk_ids": None}),
        ("chunks", {"embedding_generated": False}),
    ],
    ids=["a slice to come", "a message not chunked", "a chunk not embedded"],
)
async def test_a_thread_of_which_something_is_missing_waits_for_a_later_event(
    scene: Scene, unready: tuple[str, dict[str, Any]]
) -> None:
    thread = Thread()
    await thread.put(scene.trial)
    collection, changes = unready
    late = {"threads": thread.thread, "messages": thread.messages[0], "chunks": thread.chunks[0]}
    document = late[collection]
    changed(scene.trial, collection, document["_id"], **changes)
    await scene.embedded(thread, 3)
    assert scene.requested == []
    changed(scene.trial, collection, document["_id"], **{name: document[name] for name in changes})
    await scene.embedded(thread, 0)
    assert len(scene.requested) == 1
    assert await scene.letters() == []


@pytest.mark.parametrize("is_there", [True, False])
async def test_own_chunks_that_are_not_visible_yet_are_waited_for(
    scene: Scene, *, is_there: bool
) -> None:
    thread = Thread()
    await thread.put(scene.trial)
    late = thread.chunks[3]
    if is_there:
        changed(scene.trial, "chunks", late["_id"], embedding_generated=False)
    else:
        del scene.trial.state.documents["chunks"][late["_id"]]
    await scene.trial.publish("EmbeddingsGenerated", thread.embedded())
    async with scene.trial.running():
        await scene.trial.clock.wait(timedelta(milliseconds=300))
        assert scene.requested == []
        await scene.trial.put("chunks", late)
    await scene.trial.run()
    assert len(scene.requested) == 1


async def test_what_never_comes_is_a_letter_and_told_once_and_a_requeue_finishes_it(
    scene: Scene,
) -> None:
    thread = Thread()
    await thread.put(scene.trial)
    late = thread.chunks[3]
    del scene.trial.state.documents["chunks"][late["_id"]]
    await scene.embedded(thread)
    assert await scene.letters() == ["DocumentNotFoundError"]
    (failed,) = scene.desk.told["OrchestrationFailed"]
    assert (failed.thread_ids, failed.retry_count) == ([], 9)
    assert late["_id"] in failed.error_message
    await scene.trial.put("chunks", late)
    trial = scene.trial
    await FailedQueues(trial.engine, trial.clock, trial.chance).requeue("orchestration.failed")
    await scene.trial.run()
    assert len(scene.requested) == 1
    assert await scene.letters() == []


async def test_a_gathered_thread_that_is_not_there_is_named(scene: Scene) -> None:
    await scene.trial.publish("ThreadGathered", {"thread_ids": ["f" * 16]})
    await scene.trial.run()
    (failed,) = scene.desk.told["OrchestrationFailed"]
    assert failed.thread_ids == ["f" * 16]
    await scene.desk.check(scene.trial)


async def test_a_gathered_thread_is_requested(scene: Scene) -> None:
    thread = Thread()
    await thread.put(scene.trial)
    await scene.trial.publish("ThreadGathered", {"thread_ids": [thread.id]})
    await scene.trial.run()
    assert len(scene.requested) == 1


async def test_a_thread_without_any_text_is_done(scene: Scene) -> None:
    thread = Thread(())
    await thread.put(scene.trial)
    await scene.trial.publish("ThreadGathered", {"thread_ids": [thread.id]})
    await scene.trial.run()
    assert scene.requested == []
    assert (await the(scene.trial, "threads"))["status"] == "processed"


async def test_an_event_that_does_not_fit_is_a_letter_and_still_told(scene: Scene) -> None:
    await scene.trial.publish("EmbeddingsGenerated", {"chunk_ids": "none"})
    await scene.trial.run()
    assert await scene.letters() == ["ValidationError"]
    (failed,) = scene.desk.told["OrchestrationFailed"]
    assert failed.error_type == "ValidationError"
