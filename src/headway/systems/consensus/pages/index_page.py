"""The index of all threads; of very many, one for each month, and an index of these."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from headway.systems.consensus.pages.report import Report, many, span
from headway.systems.consensus.pages.style import badge, page

UNDATED = "undated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A thread in the index."""

    thread_id: str
    month: str
    """When it began, as the name of a month's page: `2026-03`."""
    last: str
    """The date of its last message in ISO 8601, or nothing."""
    messages: int
    decided: bool
    line: str
    """The same as HTML: kept so that an index of thousands is put together at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """All threads that began in a month."""

    name: str
    threads: int
    messages: int
    decided: int


def row_of(report: Report) -> Row:
    """Give what the index shows of a thread."""
    first, last = report.dates
    return Row(
        thread_id=report.thread_id,
        month=UNDATED if first is None else f"{first:%Y-%m}",
        last="" if last is None else last.isoformat(),
        messages=len(report.posts),
        decided=report.has_consensus,
        line=_line(report),
    )


def index_page(lines: Sequence[str], months: Sequence[Month]) -> str:
    """Show all threads, in the order in which their lines are given."""
    return _table_page("Threads", lines, months)


def month_page(lines: Sequence[str], month: Month) -> str:
    """Show the threads of a month."""
    return _table_page(month_title(month.name), lines, [month], _BACK)


def months_page(months: Sequence[Month]) -> str:
    """Show months, the latest first."""
    latest = sorted(months, key=lambda each: each.name, reverse=True)
    body = "\n".join(
        [
            "<h1>Threads by month</h1>",
            _sums(months),
            "<table>",
            _head("Begun in", "Threads", "Messages", "Decisions"),
            "<tbody>",
            *(_month(each) for each in latest),
            "</tbody></table>",
        ]
    )
    return page("Threads by month", body)


_BACK = '<nav><a href="index.html">All months</a></nav>\n'


def _table_page(title: str, lines: Sequence[str], months: Sequence[Month], back: str = "") -> str:
    body = "\n".join(
        [
            f"{back}<h1>{escape(title)}</h1>",
            _sums(months),
            '<table class="threads">',
            _head("Subject", "Messages", "People", "Dates", "Decision"),
            "<tbody>",
            *lines,
            "</tbody></table>",
        ]
    )
    return page(title, body, wide=True)


def month_file(name: str) -> str:
    return f"month-{name}.html"


def month_title(name: str) -> str:
    """Give the title of a month's page.

    >>> month_title("2026-03")
    'March 2026'
    """
    return "Without a date" if name == UNDATED else f"{datetime.fromisoformat(name + '-01'):%B %Y}"


_CLASSES = {"Dates": "dates", "Subject": "", "Begun in": "", "Decision": ""}


def _head(*titles: str) -> str:
    cells = (f'<th class="{_CLASSES.get(title, "count")}">{title}</th>' for title in titles)
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _sums(months: Sequence[Month]) -> str:
    threads = sum(each.threads for each in months)
    messages = sum(each.messages for each in months)
    decided = sum(each.decided for each in months)
    return (
        f'<p class="facts">{many(threads, "thread", "threads")} · '
        f"{many(messages, 'message', 'messages')} · {many(decided, 'decision', 'decisions')}</p>"
    )


def _month(month: Month) -> str:
    link = f'<a href="{month_file(month.name)}">{month_title(month.name)}</a>'
    counts = (month.threads, month.messages, month.decided)
    cells = "".join(f'<td class="count">{count}</td>' for count in counts)
    return f'<tr><td class="subject">{link}</td>{cells}</tr>'


def _line(report: Report) -> str:
    decided = report.has_consensus
    return (
        f'<tr><td class="subject"><a href="{escape(report.thread_id, quote=True)}.html">'
        f"{escape(report.title)}</a></td>"
        f'<td class="count">{len(report.posts)}</td><td class="count">{len(report.people)}</td>'
        f'<td class="dates">{escape(span(*report.dates))}</td>'
        f"<td>{badge('yes' if decided else 'no', decided=decided)}</td></tr>"
    )
