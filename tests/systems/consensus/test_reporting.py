"""Reports: pages that can be read, with citations that lead to what was said, and an index."""

import re
from datetime import timedelta
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from headway.operations import FailedQueues
from headway.systems.consensus.events import (
    ReportDeliveryFailed,
    ReportPublished,
    SummaryComplete,
)
from headway.systems.consensus.identity import report_id
from headway.systems.consensus.services.reporting import reporting_service
from headway.systems.consensus.services.summarization import summarization_service
from headway.testing.trial import Trial
from tests.systems.consensus.chat import chat_server
from tests.systems.consensus.threads import Desk, Thread, changed, settings_in, swept, the

EVIL = '<script>alert("x")</script><img src=http://evil/a.png onerror=x>'


class Page(HTMLParser):
    """What is on a page: its text, its links, and which elements there are."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.html = path.read_text()
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [str(value) for name, value in attrs if name in {"href", "src"}]

    def handle_data(self, data: str) -> None:
        self.text += data


class Scene:
    def __init__(self, folder: Path, **given: Any) -> None:
        self.settings = settings_in(folder, **given)
        self.desk = Desk(SummaryComplete, ReportPublished, ReportDeliveryFailed)
        self.trial = Trial(
            reporting_service(self.settings),
            summarization_service(self.settings),
            self.desk.service,
        )

    @property
    def published(self) -> list[ReportPublished]:
        return self.desk.told["ReportPublished"]

    @property
    def failed(self) -> list[ReportDeliveryFailed]:
        return self.desk.told["ReportDeliveryFailed"]

    async def run(self) -> None:
        await self.trial.run()
        await self.desk.check(self.trial)

    async def summarize(self, thread: Thread) -> None:
        await thread.put(self.trial)
        await self.trial.publish(
            "SummarizationRequested",
            {"thread_ids": [thread.id], "top_k": 12, "prompt_template": ""},
        )
        await self.run()

    def page(self, name: str) -> Page:
        return Page(self.settings.reports / name)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_the_page_of_a_thread_has_its_summary_and_citations_lead_to_what_was_said(
    scene: Scene,
) -> None:
    thread = Thread()
    await scene.summarize(thread)
    page = scene.page(f"{thread.id}.html")
    (summary,) = await scene.trial.documents("summaries")
    for number, each in enumerate(summary["citations"], 1):
        assert f"#c{number}" in page.links
        assert f'<mark id="c{number}">{escape(each["text"])}</mark>' in page.html
    assert "A decision was reached." in page.text
    assert "script" not in page.tags
    (told,) = scene.published
    assert told.report_id == report_id(thread.id, summary["summary_id"])
    assert told.summary_url == (scene.settings.reports / f"{thread.id}.html").as_uri()
    await scene.trial.publish("SummaryComplete", *scene.desk.told["SummaryComplete"])
    await scene.run()
    assert len(scene.published) == 1  # the same summary twice is one report


async def test_the_index_names_every_thread(scene: Scene) -> None:
    await scene.summarize(Thread())
    other = Thread([("Anna Berg", "Has anybody seen the red cable from rack 4?")], root="b@list")
    other.thread["subject"] = "A red cable"
    await scene.summarize(other)
    page = scene.page("index.html")
    assert sorted(page.links) == sorted([f"{Thread().id}.html", f"{other.id}.html"])
    words = " ".join(page.text.split())
    assert "2 threads · 5 messages · 1 decision" in words
    assert re.search(r"Nightly builds ?4 ?3 ?2 March 2026 to 5 March 2026 ?yes", words)
    assert re.search(r"A red cable ?1 ?1 ?2 March 2026 ?no", words)


async def test_a_summary_whose_event_was_lost_gets_its_page_from_a_sweep(scene: Scene) -> None:
    thread, settings = Thread(), scene.settings
    before = Trial(summarization_service(settings), scene.desk.service)
    await thread.put(before)
    await before.publish(
        "SummarizationRequested", {"thread_ids": [thread.id], "top_k": 12, "prompt_template": ""}
    )
    await before.run()
    assert not settings.reports.exists()
    for collection in ("threads", "messages", "chunks", "summaries"):
        await scene.trial.put(collection, *await before.documents(collection))
    scene.trial.clock.advance(timedelta(minutes=20))
    ended = await scene.trial.sweep()
    assert {each.collection: each.requeued for each in ended.collections}["summaries"] == 1
    await scene.run()
    assert "A decision was reached." in scene.page(f"{thread.id}.html").text
    assert (await the(scene.trial, "summaries"))["status"] == "processed"
    scene.trial.clock.advance(timedelta(days=2))
    assert await swept(scene.trial) == 0


@pytest.mark.parametrize("is_current", [True, False])
async def test_only_the_summary_that_is_that_of_the_thread_is_shown(
    tmp_path: Path, *, is_current: bool
) -> None:
    before, scene, thread = Scene(tmp_path / "a"), Scene(tmp_path / "b"), Thread()
    await before.summarize(thread)
    (told,) = before.desk.told["SummaryComplete"]
    await thread.put(scene.trial)
    (summary,) = await before.trial.documents("summaries")
    await scene.trial.put("summaries", {**summary, "status": "pending"})
    current = told.summary_id if is_current else "b" * 64
    changed(scene.trial, "threads", thread.id, summary_id=current)
    await scene.trial.publish("SummaryComplete", told)
    await scene.run()
    assert (scene.settings.reports / f"{thread.id}.html").exists() is is_current
    assert len(scene.published) == is_current


async def test_a_summary_that_is_not_visible_yet_is_waited_for_and_then_a_dead_letter(
    scene: Scene,
) -> None:
    thread = Thread()
    await scene.summarize(thread)
    (told,) = scene.desk.told["SummaryComplete"]
    late = {**_plain(told), "summary_id": "c" * 64}
    await scene.trial.publish("SummaryComplete", late)
    await scene.run()
    (letter,) = await scene.trial.letters("report.delivery.failed")
    assert letter.error_type == "DocumentNotFoundError"
    (failed,) = scene.failed
    assert (failed.thread_id, failed.delivery_channel) == (thread.id, "files")
    assert failed.report_id == report_id(thread.id, "c" * 64)


async def test_a_folder_that_cannot_be_written_to_is_tried_three_times_and_a_requeue_finishes(
    scene: Scene,
) -> None:
    scene.settings.data.mkdir(parents=True, exist_ok=True)
    scene.settings.reports.write_text("a file where the folder should be")
    thread = Thread()
    await scene.summarize(thread)
    (letter,) = await scene.trial.letters("report.delivery.failed")
    assert letter.error_type == "FileExistsError"
    (failed,) = scene.failed
    assert failed.retry_count == 3
    assert (await the(scene.trial, "summaries"))["status"] == "failed"
    scene.settings.reports.unlink()
    trial = scene.trial
    await FailedQueues(trial.engine, trial.clock, trial.chance).requeue("report.delivery.failed")
    await scene.run()
    assert len(scene.published) == 1
    assert scene.page(f"{thread.id}.html").text


def _plain(told: SummaryComplete) -> dict[str, Any]:
    return {name: getattr(told, name) for name in told.__struct_fields__}


SCRIPT = "<script>alert(1)</script>"
MAIL = "\n\n".join([f"{fence}\n\n{SCRIPT}" for fence in ("```", "````", "~~~", "~~~~")])


@pytest.mark.parametrize(
    "answer",
    [
        "Well.\n\n````",
        "Well.\n\n~~~~",
        "- ```",
        "Well.\n\n``[99]``",
        "[1](http://evil)",
        "[1][99](http://evil)",
        "![1](http://evil/x.png)",
        "Well.\n\n\n[1]: http://evil",
        "Well.\n\n\n[1][99]: http://evil",
        f"`{SCRIPT}",
        "[a](http://evil) [1]",
    ],
)
async def test_nothing_of_a_model_or_a_mail_runs_on_a_page(tmp_path: Path, answer: str) -> None:
    with chat_server() as chat:
        chat.answers(answer)
        scene = Scene(tmp_path, **chat.settings)
        thread = Thread([(EVIL, f"{MAIL}\n\n{EVIL}"), ("Mei Lin", "Yes.")])
        thread.thread["subject"] = EVIL
        thread.messages[0] |= {"quoted": EVIL, "signature": EVIL}
        await scene.summarize(thread)
    markdown = (scene.settings.reports / f"{thread.id}.md").read_text()
    rendered = scene.settings.reports / "rendered.html"  # as a reader that lets HTML through
    rendered.write_text(str(MarkdownIt("commonmark").render(markdown)))
    for page in (scene.page(f"{thread.id}.html"), scene.page("index.html"), Page(rendered)):
        assert SCRIPT in page.text or EVIL in page.text
        assert not page.tags & {"script", "img"}
        assert [each for each in page.links if "evil" in each] == []
