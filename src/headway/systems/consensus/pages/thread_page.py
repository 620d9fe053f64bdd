"""The page of a thread: its summary, and every message with what is cited marked in it."""

from collections.abc import Sequence
from datetime import datetime
from html import escape

from headway.systems.consensus.pages.inline import to_html
from headway.systems.consensus.pages.report import Post, Report, day, many, span
from headway.systems.consensus.pages.style import badge, page

_PEOPLE_NAMED = 12


def thread_page(report: Report) -> str:
    """Give the page as HTML; whatever comes from mail or a model is escaped."""
    places = report.places()

    def cite(number: int) -> str:
        if number not in places:
            return f"[{number}]"
        speech = report.posts[places[number] - 1].speech
        told = escape(f"{speech.sender}, {day(speech.date)}", quote=True)
        return f'<a class="cite" href="#c{number}" title="{told}">[{number}]</a>'

    posts = [_post(report, number, post) for number, post in enumerate(report.posts, 1)]
    body = "\n".join(
        [
            '<nav><a href="index.html">All threads</a></nav>',
            f"<h1>{escape(report.title)}</h1>",
            f'<p class="facts">{_outcome(report)} {escape(_facts(report))}</p>',
            '<section class="summary">',
            to_html(report.summary, cite),
            "</section>",
            f"<h2>{many(len(posts), 'message', 'messages')}</h2>",
            *posts,
            f"<footer><p>Summary by {escape(report.made_by)}.",
            "The numbers lead to what it is made from.</p></footer>",
        ]
    )
    return page(report.title, body)


def _outcome(report: Report) -> str:
    decided = report.has_consensus
    return badge("decision" if decided else "no decision", decided=decided)


def _facts(report: Report) -> str:
    people = report.people
    named = ", ".join(people[:_PEOPLE_NAMED])
    more = len(people) - _PEOPLE_NAMED
    return f"{span(*report.dates)} · {named}" + (f" and {more} more" if more > 0 else "")


def _post(report: Report, number: int, post: Post) -> str:
    speech = post.speech
    cited = [
        (place, each.offset, each.offset + each.length)
        for place, each in enumerate(report.quotations, 1)
        if each.message_doc_id == speech.message_doc_id
    ]
    return "\n".join(
        [
            f'<article id="m{number}">',
            f'<header><span class="number">{number}</span>',
            f"<strong>{escape(speech.sender)}</strong> {_when(speech.date)}</header>",
            f'<div class="text">{marked(speech.body.rstrip(), cited)}</div>',
            *_aside("Quoted text", post.quoted),
            *_aside("Signature", post.signature),
            "</article>",
        ]
    )


def _when(date: datetime | None) -> str:
    if date is None:
        return ""
    written = escape(date.isoformat(), quote=True)
    return f'<time datetime="{written}">{day(date)}, {date:%H:%M}</time>'


def _aside(title: str, text: str) -> list[str]:
    if not text.strip():
        return []
    return [
        f'<details class="aside"><summary>{title}</summary>',
        f'<div class="text">{escape(text.strip())}</div></details>',
    ]


def marked(text: str, cited: Sequence[tuple[int, int, int]]) -> str:
    """Escape a text, and mark what is cited in it: by number, from where to where."""
    parts: list[str] = []
    done = 0
    for number, start, end in sorted(cited, key=lambda each: each[1:]):
        start = min(max(start, done), len(text))  # noqa: PLW2901 (what overlaps begins later)
        end = min(max(end, start), len(text))  # noqa: PLW2901
        parts.append(escape(text[done:start]))
        parts.append(f'<mark id="c{number}">{escape(text[start:end])}</mark>')
        done = end
    return "".join([*parts, escape(text[done:])])
