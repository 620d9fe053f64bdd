"""The rows of a file in memory: all vectors, or the words of all passages, compared at once."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from headway.systems.consensus.models.embedder import Vector
from headway.systems.consensus.vectors.lexical import Scored, rarity

_FIRST_ROOM = 1024
_WORD = np.dtype([("number", "<u4"), ("weight", "<f4")])
"""As `lexical.packed` writes them down."""


class Scan:
    """Grows by the rows that are read, and finds among them."""

    def __init__(self) -> None:
        self.row = 0
        """The last row that was read; what is new has a higher one."""
        self._ids: list[str] = []
        self._places: dict[str, int] = {}
        self._matrix = np.empty((0, 0), dtype=np.float32)
        self._words: list[npt.NDArray[np.void]] = []
        self._joined: tuple[npt.NDArray[np.void], npt.NDArray[np.intp]] | None = None

    def read(self, rows: Iterable[tuple[int, str, bytes, bytes]]) -> None:
        """Take in rows; one whose chunk was read before takes its place."""
        for row, chunk_id, numbers, words in rows:
            vector = np.frombuffer(numbers, dtype=np.float32)
            place = self._place(chunk_id, vector.size)
            self._matrix[place] = vector
            self._words[place] = np.frombuffer(words, dtype=_WORD)
            self._joined = None
            self.row = row

    def nearest(self, vector: Vector, k: int) -> Scored:
        """Give the k nearest with their cosines."""
        count = len(self._ids)
        scores = self._matrix[:count] @ np.frombuffer(vector, dtype=np.float32) if count else None
        return [] if scores is None else self._best(scores, np.arange(count), k)

    def holding(self, numbers: Sequence[int], k: int) -> Scored:
        """Give the k passages that hold most of the words with these numbers."""
        words, places = self._all_words()
        scores = np.zeros(len(self._ids), dtype=np.float64)
        for number in set(numbers):
            there = words["number"] == number
            rare = rarity(int(np.count_nonzero(there)), len(self._ids))
            scores[places[there]] += rare * words["weight"][there]
        return self._best(scores, np.flatnonzero(scores), k)

    def _best(
        self, scores: npt.NDArray[np.floating], among: npt.NDArray[np.intp], k: int
    ) -> Scored:
        if k < among.size:
            among = among[np.argpartition(-scores[among], k)[:k]]
        found = [(self._ids[place], float(scores[place])) for place in among]
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def _place(self, chunk_id: str, size: int) -> int:
        place = self._places.setdefault(chunk_id, len(self._ids))
        if place == len(self._ids):
            self._ids.append(chunk_id)
            self._words.append(np.empty(0, dtype=_WORD))
            self._make_room(size)
        return place

    def _make_room(self, size: int) -> None:
        room = self._matrix.shape[0]
        if len(self._ids) > room:
            grown = np.empty((max(_FIRST_ROOM, 2 * room), size), dtype=np.float32)
            grown[:room] = self._matrix if room else 0
            self._matrix = grown

    def _all_words(self) -> tuple[npt.NDArray[np.void], npt.NDArray[np.intp]]:
        """Give all words of all passages in one row, and the place of the passage of each."""
        if self._joined is None:
            words = np.concatenate([np.empty(0, dtype=_WORD), *self._words])
            self._joined = (
                words,
                np.repeat(np.arange(len(self._words)), [each.size for each in self._words]),
            )
        return self._joined
