"""Reports: pages that can be read, with citations that lead to what was said, and an index."""

import re
import shutil
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from headway.operations import FailedQueues
from headway.systems.consensus.events import (
    ReportDeliveryFailed,
    ReportPublished,
    SummaryComplete,
)
from headway.systems.consensus.identity import report_id
from headway.systems.consensus.models.summarizer import Speech
from headway.systems.consensus.pages.catalogue import Catalogue
from headway.systems.consensus.pages.inline import to_html
from headway.systems.consensus.pages.report import Post, Quotation, Report
from headway.systems.consensus.pages.thread_page import marked
from headway.systems.consensus.services.reporting import reporting_service
from headway.systems.consensus.services.summarization import summarization_service
from headway.testing.trial import Trial
from tests.systems.consensus.threads import MOVE, Desk, Thread, changed, settings_in, swept, the

EVIL = '<script>alert("x")</script><img src=http://evil/a.png onerror=x>'


class Page(HTMLParser):
    """What is on a page: its text, its anchors and links, and which elements there are."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self.ids: dict[str, str] = {}
        self.links: list[str] = []
        self.tags: set[str] = set()
        self._open: list[str | None] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        if tag not in {"meta", "img", "br"}:
            self._open.append(given.get("id"))
        if given.get("id"):
            self.ids[str(given["id"])] = ""
        if tag == "a":
            self.links.append(str(given["href"]))

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data
        for each in self._open:
            if each:
                self.ids[each] += data


class Scene:
    def __init__(self, folder: Path) -> None:
        self.settings = settings_in(folder)
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
        assert page.ids[f"c{number}"] == each["text"]
    assert "Agreed then: we move the nightly builds one by one." in page.ids["m4"]
    assert "A decision was reached." in page.text
    assert "script" not in page.tags
    (told,) = scene.published
    assert told.report_id == report_id(thread.id, summary["summary_id"])
    assert told.summary_url == (scene.settings.reports / f"{thread.id}.html").as_uri()


async def test_the_page_is_there_as_markdown_too(scene: Scene) -> None:
    thread = Thread(
        [*MOVE, ("Ravi Patel", "```\n# no heading\n```\nand *no* emphasis, just text.")]
    )
    await scene.summarize(thread)
    text = (scene.settings.reports / f"{thread.id}.md").read_text()
    assert text.startswith("# Nightly builds\n\n5 messages · 2 March 2026 to 6 March 2026 · Anna")
    assert re.search(r"\[\\\[1\\\]\]\(#m1\)", text)
    assert '<a id="m1"></a>1. Anna Berg, 2 March 2026' in text
    assert "````text\n```\n# no heading\n```\n" in text


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


async def test_whatever_a_mail_holds_is_only_text(scene: Scene) -> None:
    thread = Thread([(EVIL, f"{EVIL} is what we should all discuss here, says {EVIL}.")])
    thread.thread["subject"] = EVIL
    thread.messages[0] |= {"quoted": EVIL, "signature": EVIL}
    await scene.summarize(thread)
    for name in (f"{thread.id}.html", "index.html"):
        page = scene.page(name)
        assert EVIL in page.text
        assert not page.tags & {"script", "img", "iframe", "link"}
        assert [each for each in page.links if "evil" in each] == []
    markdown = (scene.settings.reports / f"{thread.id}.md").read_text()
    outside = re.sub(r"```text.*?```", "", markdown, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<(?!a id=|/a>)", outside)


async def test_the_same_summary_twice_is_one_report(scene: Scene) -> None:
    thread = Thread()
    await scene.summarize(thread)
    (told,) = scene.desk.told["SummaryComplete"]
    await scene.trial.publish("SummaryComplete", told)
    await scene.run()
    assert len(scene.published) == 1


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


async def test_a_page_that_cannot_be_made_leaves_its_summary_failed_for_all_to_see(
    scene: Scene,
) -> None:
    scene.settings.data.mkdir(parents=True, exist_ok=True)
    scene.settings.reports.write_text("a file where the folder should be")
    await scene.summarize(Thread())
    assert (await the(scene.trial, "summaries"))["status"] == "failed"


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


async def test_a_summary_that_is_not_visible_yet_is_waited_for_and_then_a_letter(
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
    scene.settings.reports.unlink()
    trial = scene.trial
    await FailedQueues(trial.engine, trial.clock, trial.chance).requeue("report.delivery.failed")
    await scene.run()
    assert len(scene.published) == 1
    assert scene.page(f"{thread.id}.html").text


def _plain(told: SummaryComplete) -> dict[str, Any]:
    return {name: getattr(told, name) for name in told.__struct_fields__}


# Pages


def report(number: int, *, month: int = 3, decided: bool = False) -> Report:
    speech = Speech(
        message_doc_id="m",
        message_id="<m>",
        sender="Anna Berg",
        date=datetime(2026, month, 2, tzinfo=UTC),
        body="Something was said here.",
    )
    return Report(
        thread_id=f"{number:016x}",
        subject=f"Thread {number}",
        posts=[Post(speech=speech)],
        summary="Something. [1]\n",
        quotations=[Quotation(message_doc_id="m", offset=0, length=9)],
        has_consensus=decided,
        made_by="extractive",
    )


def test_of_many_threads_there_is_an_index_for_each_month(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path, on_one_page=3)
    for number in range(5):
        catalogue.publish(report(number, month=3 + number % 2))
    catalogue.publish(report(4, month=3, decided=True))  # again, with other words
    months = Page(tmp_path / "index.html")
    assert months.links == ["month-2026-04.html", "month-2026-03.html"]
    assert "5 threads · 5 messages · 1 decision" in months.text
    march = Page(tmp_path / "month-2026-03.html")
    assert march.links == ["index.html", *(f"{each:016x}.html" for each in (4, 2, 0))]
    catalogue.publish(report(4, month=4))  # an older part of it was found: it moves
    assert f"{4:016x}.html" not in Page(tmp_path / "month-2026-03.html").links
    assert f"{4:016x}.html" in Page(tmp_path / "month-2026-04.html").links
    assert not list(tmp_path.glob(".*.new"))


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path / "reports")
    catalogue.publish(report(1))
    shutil.rmtree(tmp_path / "reports")
    catalogue.publish(report(2))
    assert Page(tmp_path / "reports" / "index.html").links == [f"{2:016x}.html"]


def test_several_write_into_one_folder(tmp_path: Path) -> None:
    catalogues = [Catalogue(tmp_path), Catalogue(tmp_path)]
    for number in range(4):
        catalogues[number % 2].publish(report(number))
    assert len(Page(tmp_path / "index.html").links) == 4


def test_a_thread_without_dates_and_subject_has_a_page(tmp_path: Path) -> None:
    speech = Speech(message_doc_id="m", message_id="<m>", sender="x", date=None, body="Hm.")
    bare = Report(
        thread_id="0" * 16,
        subject=" ",
        posts=[Post(speech=speech)],
        summary="",
        quotations=[],
        has_consensus=False,
        made_by="x",
    )
    Catalogue(tmp_path, on_one_page=0).publish(bare)
    assert "(no subject)" in Page(tmp_path / f"{'0' * 16}.html").text
    assert "Without a date" in Page(tmp_path / "index.html").text


@pytest.mark.parametrize(
    ("cited", "shown"),
    [
        ([(1, 0, 3)], '<mark id="c1">one</mark> &lt; two'),
        ([(2, 4, 5), (1, 0, 3)], '<mark id="c1">one</mark> <mark id="c2">&lt;</mark> two'),
        ([(1, 0, 5), (2, 2, 9)], '<mark id="c1">one &lt;</mark><mark id="c2"> two</mark>'),
        ([(1, 90, 99)], 'one &lt; two<mark id="c1"></mark>'),
    ],
)
def test_what_is_cited_is_marked(cited: list[tuple[int, int, int]], shown: str) -> None:
    assert marked("one < two", cited) == shown


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("# A & B", "<h2>A &amp; B</h2>"),
        ("- one\n- two [2]\n\nthen", "<ul>\n<li>one</li>\n<li>two (2)</li>\n</ul>\n<p>then</p>"),
        (r"\[1\] \*x\* \<b\>", "<p>[1] *x* &lt;b&gt;</p>"),
        (
            "**bold `x<y`** and *so*",
            "<p><strong>bold <code>x&lt;y</code></strong> and <em>so</em></p>",
        ),
        ("[a](javascript:x) <i>", "<p>[a](javascript:x) &lt;i&gt;</p>"),
        ("2 * 3 * 4 and ** no", "<p>2 * 3 * 4 and ** no</p>"),
    ],
)
def test_the_markdown_of_summaries_as_html(markdown: str, html: str) -> None:
    assert to_html(markdown, lambda number: f"({number})") == html
