"""Passages, vectors and models to try things with."""

import hashlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.systems.consensus.models.embedder import Vector
from headway.systems.consensus.vectors.file import FileVectors
from headway.systems.consensus.vectors.store import Found, Passage, Point


def an_id(name: object) -> str:
    """Give an id as events have them."""
    return hashlib.sha256(str(name).encode()).hexdigest()[:16]


def passage(name: str, text: str = "text", **fields: Any) -> Passage:
    usual = {
        "chunk_id": an_id(name),
        "message_doc_id": an_id(f"message of {name}"),
        "message_id": f"{name}@example.org",
        "thread_id": an_id("thread"),
        "archive_id": an_id("archive"),
        "chunk_index": 0,
        "offset": 0,
        "subject": "",
        "sender": "Ada",
        "date": "2025-02-04T10:00:00Z",
        "text": text,
    }
    return Passage(**{**usual, **fields})


def vector(*numbers: float) -> Vector:
    length = sum(number * number for number in numbers) ** 0.5 or 1.0
    return array("f", [number / length for number in numbers])


def point(name: str, *numbers: float, text: str = "text", **fields: Any) -> Point:
    return Point(vector=vector(*numbers), passage=passage(name, text, **fields))


def names(found: Sequence[Found]) -> list[str]:
    return [each.passage.message_id.partition("@")[0] for each in found]


class LettersEmbedder:
    """A model of three numbers: how many of the letters a, b and c are in a text."""

    backend = "letters"
    model = "letters-3"

    def __init__(self, failures: Sequence[Exception] = ()) -> None:
        self.failures = list(failures)
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str], subjects: Sequence[str] = ()) -> list[Vector]:
        self.asked.append(list(texts))
        if self.failures:
            raise self.failures.pop(0)
        return [vector(*(text.lower().count(letter) for letter in "abc")) for text in texts]


def write_many(path: Path, name: str) -> None:
    """Write to a file of vectors again and again, in a process of its own."""
    store = FileVectors(path, model="a")
    for n in range(30):
        store.upsert([point(f"{name} {n}", 1, n), point("shared", 1, 0, text=name)])
    store.close()
