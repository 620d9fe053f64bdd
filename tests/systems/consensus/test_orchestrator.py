"""The orchestrator: a thread is requested when all of it is there, once for the same text."""

from pathlib import Path
from typing import Any

import pytest

from headway.systems.consensus.events import OrchestrationFailed, SummarizationRequested, plain
from headway.systems.consensus.identity import request_id
from headway.systems.consensus.services.orchestrator import orchestrator_service
from headway.testing.trial import Trial
from tests.systems.consensus.threads import Desk, Thread, changed, settings_in, the


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


async def test_a_summarized_thread_whose_new_messages_say_nothing_is_done(scene: Scene) -> None:
    thread = Thread()
    await thread.put(scene.trial)
    await scene.embedded(thread)
    stored = await the(scene.trial, "threads")
    # It was summarized; then another archive had it wait for a slice, in which nothing was said.
    summary_id = stored["request_id"]
    changed(scene.trial, "threads", thread.id, summary_id=summary_id, status="pending")
    await scene.trial.publish("ThreadGathered", {"thread_ids": [thread.id]})
    await scene.trial.run()
    assert (await the(scene.trial, "threads"))["status"] == "processed"
    assert len(scene.requested) == 1


async def test_what_never_comes_is_a_dead_letter_and_told_once(scene: Scene) -> None:
    thread = Thread()
    await thread.put(scene.trial)
    late = thread.chunks[3]
    del scene.trial.state.documents["chunks"][late["_id"]]
    await scene.embedded(thread)
    assert await scene.letters() == ["DocumentNotFoundError"]
    (failed,) = scene.desk.told["OrchestrationFailed"]
    assert (failed.thread_ids, failed.retry_count) == ([], 9)
    assert late["_id"] in failed.error_message


async def test_a_thread_without_any_text_is_done(scene: Scene) -> None:
    thread = Thread(())
    await thread.put(scene.trial)
    await scene.trial.publish("ThreadGathered", {"thread_ids": [thread.id]})
    await scene.trial.run()
    assert scene.requested == []
    assert (await the(scene.trial, "threads"))["status"] == "processed"
