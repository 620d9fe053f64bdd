"""Threads as parsing, chunking and embedding leave them, and what comes of them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from headway import Event, Service, Work
from headway.systems.consensus import events
from headway.systems.consensus.identity import chunk_id, message_key, thread_id
from headway.systems.consensus.models.summarizer import Discussion, Summary
from headway.systems.consensus.settings import ConsensusSettings
from headway.testing.trial import Trial

Document = dict[str, Any]
ARCHIVE = "a" * 16
FIRST = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
MOVE = (
    ("Anna Berg", "I propose that we move the nightly builds to the new machine in rack 4.\n"),
    ("Tom Okafor", "Moving all builds in one night is risky. I would move them one by one.\n"),
    ("Mei Lin", "+1 for one by one. Who tells the users?\n"),
    ("Anna Berg", "Agreed then: we move the nightly builds one by one.\n"),
)


def settings_in(folder: Path, **given: Any) -> ConsensusSettings:
    return ConsensusSettings(data=folder, **given)


class Thread:
    """The documents of one thread."""

    def __init__(
        self, said: Sequence[tuple[str, str]] = MOVE, *, root: str = "one@list", slices: int = 0
    ) -> None:
        self.id = thread_id(root)
        self.messages = [
            self._message(root, number, sender, text) for number, (sender, text) in enumerate(said)
        ]
        self.chunks = [
            _chunk(each, index, text)
            for each in self.messages
            for index, text in enumerate(each["body_normalized"].split("\f"))
        ]
        for each in self.messages:
            each["chunk_ids"] = [
                one["_id"] for one in self.chunks if one["message_doc_id"] == each["_id"]
            ]
        self.thread: Document = {
            "_id": self.id,
            "archive_id": ARCHIVE,
            "subject": "Nightly builds",
            "message_ids": sorted(each["_id"] for each in self.messages),
            "slices": [f"{number:016x}" for number in range(slices)],
            "summary_id": None,
            "has_consensus": False,
            "request": None,
            "status": "pending",
            "attemptCount": 0,
            "createdAt": "1999-01-01T00:00:00Z",
        }

    def _message(self, root: str, number: int, sender: str, text: str) -> Document:
        date = (FIRST + timedelta(days=number)).isoformat()
        named = f"{number}.{root}"
        key = message_key(ARCHIVE, named, date, sender, "Nightly builds")
        return {
            "_id": key,
            "message_id": named,
            "archive_id": ARCHIVE,
            "thread_id": self.id,
            "subject": "Nightly builds",
            "from": {"name": sender, "email": f"{sender.split(maxsplit=1)[0].lower()}@example.org"},
            "date": date,
            "body_normalized": text,
            "quoted": "",
            "signature": "",
            "position": number,
            "status": "processed",
        }

    async def put(self, trial: Trial) -> None:
        await trial.put("threads", self.thread)
        await trial.put("messages", *self.messages)
        await trial.put("chunks", *self.chunks)

    def embedded(self, *numbers: int) -> Document:
        """Give the data of EmbeddingsGenerated for the chunks of some messages, or of all."""
        chosen = numbers or tuple(range(len(self.messages)))
        ids = [one for number in chosen for one in self.messages[number]["chunk_ids"]]
        return events.plain(
            events.EmbeddingsGenerated(
                chunk_ids=ids,
                embedding_count=len(ids),
                embedding_model="m",
                embedding_backend="b",
                embedding_dimension=3,
                vector_store_collection="c",
                vector_store_updated=True,
                avg_generation_time_ms=0.1,
            )
        )


def _chunk(message: Document, index: int, text: str) -> Document:
    return {
        "_id": chunk_id(message["_id"], index),
        "message_doc_id": message["_id"],
        "message_id": message["message_id"],
        "thread_id": message["thread_id"],
        "archive_id": ARCHIVE,
        "chunk_index": index,
        "text": text,
        "offset": message["body_normalized"].index(text),
        "token_count": len(text.split()),
        "embedding_generated": True,
    }


class Desk:
    """Keeps the events of some types, each of which has to fit its own type."""

    def __init__(self, *types: type[events.EventData]) -> None:
        self.service = Service("desk")
        self.data: list[Any] = []
        self.told: dict[str, list[Any]] = {each.__name__: [] for each in types}
        for each in types:
            self.service.on(each.__name__, data=each)(self._keep)

    async def _keep(self, event: Event, work: Work) -> None:
        self.data.append(event.data)
        self.told[event.event_type].append(event.data)

    async def check(self, trial: Trial) -> None:
        """Nothing came that does not fit."""
        assert await trial.letters("desk.failed") == []


class Fake:
    """A summarizer that fails as told, and then says how many passages it was given."""

    backend = "fake"
    model = "fake-1"

    def __init__(self, *failures: Exception, during: Callable[[], None] | None = None) -> None:
        self._failures = list(failures)
        self._during = during
        self.asked: list[Discussion] = []

    def summarize(self, discussion: Discussion, prompt: str) -> Summary:
        self.asked.append(discussion)
        if self._during is not None:
            self._during()
        if self._failures:
            raise self._failures.pop(0)
        text = f"{len(discussion.passages)} passages.\n"
        return Summary(markdown=text, citations=(), has_consensus=False)


def changed(trial: Trial, collection: str, document_id: str, **changes: Any) -> None:
    """Change a stored document at once, as another program does."""
    stored = trial.state.documents[collection]
    document = msgspec.json.decode(stored[document_id])
    stored[document_id] = msgspec.json.encode({**document, **changes})


async def swept(trial: Trial) -> int:
    """Sweep once; say how many documents were sent again."""
    return sum(each.requeued for each in (await trial.sweep()).collections)


async def the(trial: Trial, collection: str) -> Document:
    (document,) = await trial.documents(collection)
    return dict(document)
