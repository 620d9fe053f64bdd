"""Search: a question in plain words, and the messages that speak of it.

Two rankings of the same passages are made one. The model knows that "late" and "delay" are near
each other; the words know that a name is that name and no other. In each ranking the best passage
counts 1 and the others as much as their score is of the best; the two are added up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.systems.consensus.models.embedder import Embedder, open_embedder
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.text.snippets import Snippet, snippet
from headway.systems.consensus.text.words import terms, terms_of_question
from headway.systems.consensus.vectors.store import Found, Passage, VectorStore, open_vectors

_CANDIDATES = 200
"""Passages that each ranking gives; several may be of one message."""
_MEANING, _WORDS = 1.0, 0.5
"""What each ranking counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that speaks of what was asked, and the best of its passages."""

    passage: Passage
    score: float
    """Of use only to compare hits of one search."""
    snippet: Snippet
    has_words: bool
    """A word of the question is in it; else it is only near in meaning."""

    @property
    def message_doc_id(self) -> str:
        return self.passage.message_doc_id

    @property
    def thread_id(self) -> str:
        return self.passage.thread_id


class Search:
    """Finds messages by questions. Make one and ask it often: what it has read it keeps."""

    def __init__(self, embedder: Embedder, vectors: VectorStore) -> None:
        self._embedder = embedder
        self._vectors = vectors

    def find(self, question: str, k: int = 5) -> list[Hit]:
        """Give the k messages that fit a question best, each once, best first."""
        wanted = terms_of_question(question)
        if not wanted or k < 1:
            return []
        (vector,) = self._embedder.embed([question])
        deep = max(_CANDIDATES, 4 * k)
        meant = self._vectors.search(vector, deep)
        said = self._vectors.search_words(wanted, deep)
        fused = _fused([(_MEANING, meant), (_WORDS, said)])
        return [
            Hit(
                passage=each.passage,
                score=each.score,
                snippet=snippet(each.passage.text, wanted),
                has_words=_has_one_of(wanted, each.passage),
            )
            for each in _once_each(fused)[:k]
        ]

    def close(self) -> None:
        self._vectors.close()


def open_search(settings: ConsensusSettings) -> Search:
    """Search what the services with these settings have embedded."""
    embedder = open_embedder(settings)
    return Search(embedder, open_vectors(settings, embedder.model))


def _has_one_of(wanted: Sequence[str], passage: Passage) -> bool:
    there = {*terms(passage.text), *terms(passage.subject)}
    return not there.isdisjoint(wanted)


def _fused(rankings: Sequence[tuple[float, Sequence[Found]]]) -> list[Found]:
    scores: dict[str, float] = {}
    passages: dict[str, Passage] = {}
    for weight, ranking in rankings:
        best = max((found.score for found in ranking), default=0.0)
        for found in ranking:
            chunk_id = found.passage.chunk_id
            passages[chunk_id] = found.passage
            part = weight * found.score / best if best > 0 else 0.0
            scores[chunk_id] = scores.get(chunk_id, 0.0) + part
    return [
        Found(passage=passages[chunk_id], score=score)
        for chunk_id, score in sorted(scores.items(), key=lambda each: (-each[1], each[0]))
    ]


def _once_each(ranking: Sequence[Found]) -> list[Found]:
    """Keep the best passage of each message; a message that is in two archives is shown once."""
    kept: list[Found] = []
    seen: set[tuple[str, ...]] = set()
    for found in ranking:
        names = {(found.passage.message_doc_id,), (found.passage.message_id, found.passage.text)}
        if seen.isdisjoint(names):
            kept.append(found)
        seen |= names
    return kept
