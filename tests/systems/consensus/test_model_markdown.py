"""What a model writes becomes a page in which nothing runs and no link is the model's."""

from datetime import UTC, datetime

import pytest
from markdown_it import MarkdownIt

from headway.systems.consensus.markdown import tamed
from headway.systems.consensus.models.openai_chat import with_citations
from headway.systems.consensus.models.summarizer import Passage, Speech
from headway.systems.consensus.pages.inline import line_to_html

SPEECH = Speech(
    message_doc_id="m", message_id="1@list", sender="Anna", date=datetime(2026, 3, 2, tzinfo=UTC),
    body="Yes.",
)  # fmt: skip
PASSAGES = [Passage(chunk_id=f"c{n}", speech=SPEECH, offset=0, text="Yes.") for n in range(2)]
SCRIPT = "<script>alert(1)</script>"
MAIL = "\n\n".join([f"{fence}\n\n{SCRIPT}" for fence in ("```", "````", "~~~", "~~~~")])
AFTER = f"\n\nsee [1] and [2]\n\n`````text\n{MAIL}\n`````\n"


def page(answer: str) -> str:
    """Show it as any reader of Markdown would that lets HTML through, before a mail in a fence."""
    markdown, _ = with_citations(answer, PASSAGES)
    return str(MarkdownIt("commonmark").render(markdown + AFTER))


@pytest.mark.parametrize(
    "answer",
    [
        "Well.\n\n````",
        "Well.\n\n~~~~",
        "- ```",
        "> ~~~\n",
        "Well.\n\n``[99]``",
        "``[99]`",
        "[1](http://evil)",
        "[1][99](http://evil)",
        "![1](http://evil/x.png)",
        "[1]: http://evil",
        "Well.\n\n\n[1]: http://evil",
        "Well.\n\n\n[1][99]: http://evil",
        "<script>alert(1)</script>",
        "`<script>alert(1)</script>",
        "[a](http://evil) [1]",
    ],
)
def test_nothing_of_a_model_runs(answer: str) -> None:
    shown = page(answer)
    assert "<script" not in shown
    assert "<a " not in shown
    assert "<img" not in shown


def test_what_is_harmless_is_shown_as_it_is() -> None:
    markdown, cited = with_citations("**Yes** (see `x` [2]): *all* agree [1].", PASSAGES)
    assert len(cited) == 2
    html = line_to_html(markdown, lambda number: f"({number})")
    assert html == "<strong>Yes</strong> (see `x` (1)): <em>all</em> agree (2)."


def test_a_fence_is_only_text() -> None:
    assert tamed("```~~~") == r"\`\`\`\~\~\~"
