"""A message that is in several archives: two documents, and one message for whoever reads."""

from pathlib import Path
from typing import Any

import pytest

from headway.systems.consensus import twins
from headway.systems.consensus.events import SummarizationRequested, SummaryComplete
from headway.systems.consensus.identity import chunk_id
from headway.systems.consensus.services.orchestrator import orchestrator_service
from headway.systems.consensus.services.reporting import reporting_service
from headway.systems.consensus.services.summarization import summarization_service
from headway.testing.trial import Trial
from tests.systems.consensus.threads import ARCHIVE, Desk, Thread, changed, settings_in, the

Document = dict[str, Any]


def copies(thread: Thread, archive: str) -> tuple[list[Document], list[Document]]:
    """Give the messages and chunks of a thread as another archive has them."""
    messages, chunks = [], []
    for each in thread.messages:
        key = f"{archive}{each['_id']}"[:16]
        (chunk,) = [one for one in thread.chunks if one["message_doc_id"] == each["_id"]]
        own = chunk_id(key, 0)
        messages.append({**each, "_id": key, "archive_id": archive, "chunk_ids": [own]})
        chunks.append({**chunk, "_id": own, "archive_id": archive, "message_doc_id": key})
    return messages, chunks


@pytest.mark.parametrize("archive", ["0000", "zzzz"])
def test_the_archive_that_began_the_thread_is_shown(archive: str) -> None:
    thread = Thread()
    messages, _ = copies(thread, archive)
    both = [*messages, *thread.messages]
    assert twins.once_each(thread.thread, both) == thread.messages
    shown = twins.stand_ins(thread.thread, both)
    assert [shown[each["_id"]] for each in messages] == [each["_id"] for each in thread.messages]


def test_another_text_under_the_same_name_is_another_message() -> None:
    thread = Thread()
    other = {**thread.messages[0], "_id": "f" * 16, "body_normalized": "Something else."}
    assert len(twins.once_each(thread.thread, [*thread.messages, other])) == 5


async def test_an_archive_that_brings_the_same_again_changes_nothing_and_each_is_counted_once(
    tmp_path: Path,
) -> None:
    settings = settings_in(tmp_path)
    desk = Desk(SummarizationRequested, SummaryComplete)
    trial = Trial(
        orchestrator_service(settings),
        summarization_service(settings),
        reporting_service(settings),
        desk.service,
    )
    thread = Thread()
    await thread.put(trial)
    await trial.publish("EmbeddingsGenerated", thread.embedded())
    await trial.run()
    page = (settings.reports / f"{thread.id}.html").read_text()
    messages, chunks = copies(thread, "0" * 4)
    await trial.put("messages", *messages)
    await trial.put("chunks", *chunks)
    both = sorted(each["_id"] for each in (*thread.messages, *messages))
    changed(trial, "threads", thread.id, message_ids=both, status="pending")
    assert twins.count(await the(trial, "threads")) == 8  # nobody has compared them yet
    await trial.publish("ThreadGathered", {"thread_ids": [thread.id]})
    await trial.run()
    stored = await the(trial, "threads")
    assert (stored["status"], twins.count(stored)) == ("processed", 4)
    assert [len(told) for told in desk.told.values()] == [1, 1]
    # One more message, and the thread is read anew: page and summary have five, and not nine.
    more: Document = {**messages[0], "_id": "f" * 16, "message_id": "5", "body_normalized": "Fine."}
    more["chunk_ids"] = [chunk_id(more["_id"], 0)]
    await trial.put("messages", more)
    chunk = {**chunks[0], "_id": more["chunk_ids"][0], "message_doc_id": more["_id"]}
    await trial.put("chunks", {**chunk, "text": "Fine.", "offset": 0})
    changed(trial, "threads", thread.id, message_ids=sorted([*both, more["_id"]]))
    await trial.publish("ThreadGathered", {"thread_ids": [thread.id]})
    await trial.run()
    assert twins.count(await the(trial, "threads")) == 5
    assert len(desk.told["SummarizationRequested"][-1].selected_chunks) == 5
    longer = (settings.reports / f"{thread.id}.html").read_text()
    assert ("4 messages" in page, "5 messages" in longer) == (True, True)
    assert longer.count(thread.messages[1]["body_normalized"].strip()[:20]) == page.count(
        thread.messages[1]["body_normalized"].strip()[:20]
    )


async def test_a_citation_of_a_message_leads_to_the_one_that_is_shown_for_it(
    tmp_path: Path,
) -> None:
    settings = settings_in(tmp_path)
    trial = Trial(summarization_service(settings), reporting_service(settings))
    thread = Thread()
    messages, chunks = copies(thread, "0" * 4)
    thread.thread["archive_id"] = "0" * 4
    thread.thread["message_ids"] += [each["_id"] for each in messages]
    await thread.put(trial)
    await trial.put("messages", *messages)
    await trial.put("chunks", *chunks)
    request = {"thread_ids": [thread.id], "top_k": 12, "prompt_template": ""}
    await trial.publish("SummarizationRequested", request)
    await trial.run()
    page = settings.reports / f"{thread.id}.html"
    before = page.read_text()
    # The summary cites one archive, and the page is made anew when the other one counts as first.
    changed(trial, "threads", thread.id, archive_id=ARCHIVE)
    page.unlink()
    (summary,) = await trial.documents("summaries")
    again = Trial(reporting_service(settings))
    await again.put("summaries", {**summary, "status": "pending"})
    await again.put("threads", await the(trial, "threads"))
    await again.put("messages", *await trial.documents("messages"))
    await again.publish(
        "SummaryComplete",
        {
            "summary_id": summary["summary_id"],
            "thread_id": thread.id,
            "summary_markdown": summary["content_markdown"],
            "citations": [],
            "llm_backend": "x",
            "llm_model": "x",
            "tokens_prompt": 0,
            "tokens_completion": 0,
            "latency_ms": 0.0,
        },
    )
    await again.run()
    assert page.read_text().count('href="#') == before.count('href="#') > 0
