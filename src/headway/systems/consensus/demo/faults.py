"""What goes wrong inside a worker of the demonstration. The services know nothing of it."""

import threading
from collections.abc import Sequence
from pathlib import Path

from headway.systems.consensus.models.embedder import Embedder, Vector
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.vectors.store import Found, Point, VectorStore

_EACH_TAKES = 0.2


def away_flag(settings: ConsensusSettings) -> Path:
    """Name the file that takes the vector store away, for as long as it is there."""
    return settings.data / "vectors-are-away"


class Breakable:
    """A vector store that refuses connections while a file is there."""

    def __init__(self, store: VectorStore, flag: Path) -> None:
        self._store = store
        self._flag = flag

    @property
    def collection(self) -> str:
        return self._store.collection

    def upsert(self, points: Sequence[Point]) -> None:
        if self._flag.exists():
            raise ConnectionRefusedError("the vector store refuses connections")
        self._store.upsert(points)

    def search(self, vector: Vector, k: int) -> list[Found]:
        return self._store.search(vector, k)

    def search_words(self, terms: Sequence[str], k: int) -> list[Found]:
        return self._store.search_words(terms, k)

    def ids(self) -> set[str]:
        return self._store.ids()

    def close(self) -> None:
        self._store.close()


class Leisurely:
    """A model that takes as long as one behind a network: else nobody could see it at work."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def backend(self) -> str:
        return self._embedder.backend

    @property
    def model(self) -> str:
        return self._embedder.model

    def embed(self, texts: Sequence[str], subjects: Sequence[str] = ()) -> list[Vector]:
        threading.Event().wait(_EACH_TAKES)
        return self._embedder.embed(texts, subjects)
