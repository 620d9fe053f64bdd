"""Whose words are whose."""

import pytest

from headway.systems.consensus.mail.flowed import unflowed
from headway.systems.consensus.mail.html_to_text import text_of
from headway.systems.consensus.mail.quoting import Parts, take_apart

LATE = "On Mon, 5 Jan 2026 at 10:00, Ann Bee <ann@example.org> wrote:"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("all new", Parts("all new", "", "")),
        (f"Yes.\n\n{LATE}\n> Shall we?", Parts("Yes.", f"{LATE}\n> Shall we?", "")),
        (
            "Yes.\n\nOn Mon, 5 Jan 2026 at 10:00, Ann Bee\n<ann@example.org> wrote:\n\n> Shall we?",
            Parts(
                "Yes.",
                "On Mon, 5 Jan 2026 at 10:00, Ann Bee\n<ann@example.org> wrote:\n\n> Shall we?",
                "",
            ),
        ),
        ("> one?\nyes\n> two?\nno", Parts("yes\nno", "> one?\n> two?", "")),
        ("text\n-- \nBob\nLtd", Parts("text", "", "Bob\nLtd")),
        ("text\n-- \nBob\n> old", Parts("text", "> old", "Bob")),
        (
            "Fine.\n\n-----Original Message-----\nFrom: Ann\nSent: Monday\n\nold words",
            Parts("Fine.", "-----Original Message-----\nFrom: Ann\nSent: Monday\n\nold words", ""),
        ),
        (
            "Fine.\n\nFrom: Ann\nSent: Monday\n\nold",
            Parts("Fine.", "From: Ann\nSent: Monday\n\nold", ""),
        ),
        (
            "text\n" + "_" * 40 + "\npumps mailing list\npumps@example.org",
            Parts("text", "", "_" * 40 + "\npumps mailing list\npumps@example.org"),
        ),
        ("Ann said that:\n\nit works", Parts("Ann said that:\n\nit works", "", "")),
        ("From: the beginning\nit was text", Parts("From: the beginning\nit was text", "", "")),
    ],
)
def test_texts_are_taken_apart(text: str, parts: Parts) -> None:
    assert take_apart(text) == parts


def test_flowed_text_keeps_signature_and_depth() -> None:
    assert unflowed("a \nb\n> c \nd\n-- \nBob") == "a b\n> c \nd\n-- \nBob"
    assert unflowed("Do \nnaudampf", delete_space=True) == "Donaudampf"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a</p><p>b</p>", "a\n\nb"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<ul><li>one<li>two</ul>", "- one\n- two"),
        (
            "<blockquote>old<blockquote>older</blockquote></blockquote>new",
            "> old\n\n>> older\n\nnew",
        ),
        ("<pre>a\n  b</pre>", "a\n  b"),
        ("1 < 2 &lt; 3 &amp; &#0; &nosuch;", "1 < 2 < 3 & � &nosuch;"),
        ("<script>evil()</script><STYLE>x</STYLE>ok<!-- hidden -->", "ok"),
        ("seen<script>never closed", "seen"),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "a b\nc"),
        ("<p>open <b>tags <a href='x", "open tags <a href='x"),
    ],
)
def test_pages_are_read_as_text(html: str, text: str) -> None:
    assert text_of(html) == text


@pytest.mark.parametrize(
    "piece",
    ["<", "<a ", "<!--", "<![CDATA[", "</", "<script>", "&", "<a b='", "<div>", "<?", ">\n"],
)
def test_a_hostile_page_takes_no_longer_than_another(piece: str) -> None:
    """With html.parser some of these took minutes: the timeout of the suite is the test."""
    many = piece * (300_000 // len(piece))
    text_of(many)
    take_apart(many)
    unflowed(many)
