"""What a summary is made of, and what makes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from headway.systems.consensus.settings import ConsensusSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One message of a discussion."""

    message_doc_id: str
    message_id: str
    sender: str
    """As people call them: a name, or an address."""
    date: datetime | None
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A chunk that was chosen; `speech.body[offset : offset + len(text)]` is its text."""

    chunk_id: str
    speech: Speech
    offset: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discussion:
    """The chosen parts of a thread, in the order in which they were written."""

    subject: str
    passages: Sequence[Passage]

    @property
    def speeches(self) -> list[Speech]:
        return list({each.speech.message_doc_id: each.speech for each in self.passages}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cited:
    """Where something in a summary was said; the offset is that in the message."""

    passage: Passage
    offset: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Markdown in which `[1]` is the first of the citations."""

    markdown: str
    citations: Sequence[Cited]
    has_consensus: bool
    tokens_prompt: int = 0
    tokens_completion: int = 0


class Summarizer(Protocol):
    """Makes summaries. It is asked from several threads at a time."""

    @property
    def backend(self) -> str:
        """Names it in events."""

    @property
    def model(self) -> str: ...

    def summarize(self, discussion: Discussion, prompt: str) -> Summary:
        """Make a summary; what is raised is classified as every other error of a handler."""


def open_summarizer(settings: ConsensusSettings) -> Summarizer:
    """Give the summarizer that the settings name; nothing is asked of it yet."""
    if settings.summary_backend == "openai":
        from headway.systems.consensus.models.openai_chat import ChatSummarizer  # noqa: PLC0415 (httpx is an extra)

        return ChatSummarizer(
            settings.summary_url, model=settings.summary_model, api_key=settings.summary_api_key
        )
    from headway.systems.consensus.models.extractive import ExtractiveSummarizer  # noqa: PLC0415 (beside the other)

    return ExtractiveSummarizer()
