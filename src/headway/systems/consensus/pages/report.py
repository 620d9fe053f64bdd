"""What the page of a thread shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from headway.systems.consensus.models.summarizer import Speech


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotation:
    """What a number in the summary refers to."""

    message_doc_id: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message as it is shown: its text, and what was quoted and signed apart from it."""

    speech: Speech
    quoted: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A thread with its summary."""

    thread_id: str
    subject: str
    posts: Sequence[Post]
    """In the order in which they were written."""
    summary: str
    """Markdown; `[1]` is the first quotation."""
    quotations: Sequence[Quotation]
    has_consensus: bool
    made_by: str

    @property
    def title(self) -> str:
        return " ".join(self.subject.split()) or "(no subject)"

    @property
    def people(self) -> list[str]:
        return list(dict.fromkeys(each.speech.sender for each in self.posts))

    @property
    def dates(self) -> tuple[datetime | None, datetime | None]:
        """The first and the last."""
        known = sorted(each.speech.date for each in self.posts if each.speech.date is not None)
        return (known[0], known[-1]) if known else (None, None)

    def places(self) -> dict[int, int]:
        """Give for the number of each quotation the number of its message, both from 1."""
        number = {each.speech.message_doc_id: place for place, each in enumerate(self.posts, 1)}
        return {
            place: number[each.message_doc_id]
            for place, each in enumerate(self.quotations, 1)
            if each.message_doc_id in number
        }


def day(date: datetime | None) -> str:
    """Write a date for people.

    >>> day(datetime(2026, 3, 9))
    '9 March 2026'
    """
    return "no date" if date is None else f"{date.day} {date:%B %Y}"


def span(first: datetime | None, last: datetime | None) -> str:
    """Write from when to when.

    >>> span(datetime(2026, 3, 9), datetime(2026, 3, 12))
    '9 March 2026 to 12 March 2026'
    """
    return day(first) if day(first) == day(last) else f"{day(first)} to {day(last)}"


def many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"
