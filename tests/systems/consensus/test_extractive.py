"""Summaries without a model: what is chosen from a discussion, and where it was said."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from headway.systems.consensus.models.extractive import ExtractiveSummarizer
from headway.systems.consensus.models.statements import statements
from headway.systems.consensus.models.summarizer import Discussion, Passage, Speech, Summary

PROPOSAL = """Hi all,

our build server is from 2017 and its disk is nearly full. I propose that we move the nightly builds
to the new machine in rack 4, and keep the old one for release builds.

Who has a key to the room of rack 4?

Thanks,
Anna
"""
OBJECTION = """I object to keeping the old server for release builds. Two build servers mean two
sets of compilers.
"""
BUILDS = (
    ("Anna Berg", PROPOSAL),
    ("Mei Lin", OBJECTION),
    ("Anna Berg", "We could install the same compilers on both. Is that enough for you, Mei?\n"),
    ("Mei Lin", "Yes, then I withdraw my objection.\n"),
    ("Tom Okafor", "+1\n\n    $ rsync -a /srv/jobs new:/srv/jobs\n\nI can watch the first week.\n"),
    ("Anna Berg", "Agreed then: we move the nightly builds to rack 4 next Thursday.\n"),
)


def summary_of(said: Sequence[tuple[str, str]], subject: str = "Nightly builds") -> Summary:
    passages = []
    for number, (sender, body) in enumerate(said):
        speech = Speech(
            message_doc_id=f"m{number}",
            message_id=f"<{number}>",
            sender=sender,
            date=datetime(2026, 3, 1 + number, tzinfo=UTC),
            body=body,
        )
        half = len(body) // 2  # chunks overlap, and cut sentences
        parts = [(0, body[: half + 20]), (max(half - 20, 0), body[max(half - 20, 0) :])]
        passages += [
            Passage(chunk_id=f"c{number}{n}", speech=speech, offset=offset, text=text)
            for n, (offset, text) in enumerate(parts)
        ]
    discussion = Discussion(subject=subject, passages=passages)
    return ExtractiveSummarizer().summarize(discussion, "")


def section(summary: Summary, title: str) -> list[str]:
    _, _, after = summary.markdown.partition(f"## {title}\n\n")
    return after.partition("\n\n")[0].strip().split("\n") if after else []


def test_it_says_how_it_began_what_was_decided_and_by_whom() -> None:
    summary = summary_of(BUILDS)
    assert summary.has_consensus
    assert summary.markdown.startswith("**A decision was reached.**")
    assert section(summary, "In short")[0] == (
        "- I propose that we move the nightly builds to the new machine in rack 4, and keep the "
        "old one for release builds. [1] — Anna Berg"
    )
    decided, agreed = section(summary, "Decisions")
    assert decided.startswith(
        "- **Anna Berg:** Agreed then: we move the nightly builds to rack 4 next Thursday. ["
    )
    assert agreed.startswith("- In favour: Mei Lin [")
    assert "Tom Okafor [" in agreed


def test_a_question_that_was_answered_is_not_open() -> None:
    (open_question,) = section(summary_of(BUILDS), "Open questions")
    assert "Who has a key to the room of rack 4?" in open_question


@pytest.mark.parametrize(
    ("answer", "is_open"),
    [
        ("The weather was nice on Sunday.", True),
        ("Yes.", False),
        ("The key to the room of rack 4 is in my desk.", False),
    ],
)
def test_a_question_is_open_until_somebody_else_speaks_of_it(answer: str, *, is_open: bool) -> None:
    asked = ("Anna Berg", "Who has the key to the room of rack 4?")
    summary = summary_of([asked, ("Tom Okafor", answer)])
    assert bool(section(summary, "Open questions")) is is_open
    assert section(summary_of([asked, ("Anna Berg", answer)]), "Open questions")


def test_a_question_to_somebody_is_answered_when_they_speak() -> None:
    asked = ("Anna Berg", "Would such a thing be enough for you, Mei?")
    for who, is_open in (("Mei Lin", False), ("Tom Okafor", True)):
        summary = summary_of([asked, (who, "Only with a list of all the images.")])
        assert bool(section(summary, "Open questions")) is is_open


def test_every_person_is_heard() -> None:
    told = section(summary_of(BUILDS), "Who said what")
    assert [line.split(":**")[0] for line in told] == [
        "- **Anna Berg", "- **Mei Lin", "- **Tom Okafor",
    ]  # fmt: skip
    assert "I can watch the first week." in told[-1]


@pytest.mark.parametrize(("first", "is_told"), [("Today", True), ("Otherwise", False)])
def test_a_sentence_that_leans_on_another_goes_behind(first: str, *, is_told: bool) -> None:
    text = (
        f"{first} somebody paints grey doors beside racks. Tom cleans narrow windows near racks. "
        "Mei buys cheap carpets under racks. Ravi hangs bright lamps above racks. "
        "Anna builds strong shelves behind racks."
    )
    told = section(summary_of([("Tom Okafor", text)], subject="Racks"), "In short")
    assert len(told) == 4
    assert any(first in line for line in told) is is_told


def test_agreement_without_a_word_of_decision_is_not_called_one() -> None:
    proposed = ("Anna Berg", "I propose that we move the nightly builds to rack 4.")
    summary = summary_of([proposed, ("Tom Okafor", "+1"), ("Mei Lin", "Sounds good to me.")])
    assert summary.has_consensus
    assert summary.markdown.startswith("**There is agreement.**")


def test_an_objection_that_stands_is_shown() -> None:
    summary = summary_of(BUILDS[:2])
    assert not summary.has_consensus
    assert summary.markdown.startswith("**No decision: there are objections.**")
    (objection,) = section(summary, "Objections")
    assert "I object to keeping the old server" in objection


def test_every_number_is_a_citation_that_is_found_in_its_message() -> None:
    summary = summary_of(BUILDS)
    for number, cited in enumerate(summary.citations, 1):
        assert f"[{number}]" in summary.markdown
        body, passage = cited.passage.speech.body, cited.passage
        assert body[cited.offset : cited.offset + len(cited.text)] == cited.text
        assert passage.offset <= cited.offset < passage.offset + len(passage.text)
    assert f"[{len(summary.citations) + 1}]" not in summary.markdown


def test_what_people_write_is_no_markup() -> None:
    summary = summary_of(
        [("[x](y) *z*", "- <b>We</b> should see [1] and [7] in the `table` soon.")]
    )
    assert (
        r"\<b\>We\</b\> should see \[1\] and \[7\] in the \`table\` soon. [1]" in summary.markdown
    )
    assert r"— \[x\](y) \*z\*" in summary.markdown


@pytest.mark.parametrize("text", ["", "   \n", "Hi!\n\nThanks,\nTom", "$ ls\n$ cat x", "+1"])
def test_of_nearly_nothing_there_is_a_summary_too(text: str) -> None:
    summary = summary_of([("Tom Okafor", text)])
    assert summary.markdown.startswith("**No decision was found.**")
    assert len(summary.citations) <= 1


def test_the_same_discussion_gives_the_same_summary() -> None:
    assert summary_of(BUILDS).markdown == summary_of(BUILDS).markdown


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ("One is here. Two is there!", ["One is here.", "Two is there!"]),
        ("It takes 3 ms. Then it\nends.", ["It takes 3 ms.", "Then it ends."]),
        ("See e.g. RFC 2822 by P. Resnick.", ["See e.g. RFC 2822 by P. Resnick."]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("no capitals here. never any.", ["no capitals here.", "never any."]),
        (
            "Either\n- this one\n- or that\n\nor both.",
            ["Either", "this one", "or that", "or both."],
        ),
        ("Hello Tom,\n\nfine.\n\nBest regards,\nAnna", ["fine."]),
        ("On Monday Anna wrote:\n\nText.", ["Text."]),
        ("Run it:\n\n    $ make all\n    $ make test\n\nDone.", ["Run it:", "Done."]),
    ],
)
def test_a_message_is_parted_into_sentences(body: str, texts: list[str]) -> None:
    found = statements(body)
    assert [each.text for each in found] == texts
    for each in found:
        assert " ".join(body[each.start : each.end].split()) == each.text
