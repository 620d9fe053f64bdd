"""Vectors in Qdrant, for services on several machines.

A point has two vectors: the model's, which bears the model's name, and a sparse one of its words,
which Qdrant weighs by how rare a word is. The two together find what the file finds.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID, uuid5

import httpx
import msgspec
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from headway.settings import hidden, shown_url
from headway.systems.consensus.models.embedder import Vector
from headway.systems.consensus.vectors.lexical import number, word_weights
from headway.systems.consensus.vectors.store import Found, Passage, Point, refuse_another

COLLECTION = "headway-consensus"
_NAMES = UUID("6f0e7c0c-8d52-5f0a-9c39-6f6d3a0f2b11")
_WORDS = "words"
_TIMEOUT = 30
_AT_ONCE = 256
_TOO_MANY_REQUESTS = 429


def open_qdrant(url: str, api_key: str, *, model: str) -> "QdrantVectors":
    """Have vectors in the Qdrant at this address; it is not asked before the first use."""
    client = QdrantClient(
        url=url, api_key=api_key or None, timeout=_TIMEOUT, check_compatibility=False
    )
    return QdrantVectors(client, model=model, where=shown_url(url))


class QdrantVectors:
    """Vectors of one model in one collection of Qdrant."""

    collection = COLLECTION

    def __init__(self, client: QdrantClient, *, model: str, where: str = "Qdrant") -> None:
        self._client = client
        self._model = model
        self._name = re.sub(r"[^A-Za-z0-9_.-]", "-", model)
        self._where = where
        self._size = 0
        """Of the vectors in the collection; 0 while nobody has looked."""

    def upsert(self, points: Sequence[Point]) -> None:
        if not points:
            return
        with self._in_plain_errors():
            for size in {len(point.vector) for point in points}:
                self._prepare(size)
            for begin in range(0, len(points), _AT_ONCE):
                self._client.upsert(
                    COLLECTION,
                    [self._stored(point) for point in points[begin : begin + _AT_ONCE]],
                    wait=True,
                )

    def search(self, vector: Vector, k: int) -> list[Found]:
        with self._in_plain_errors():
            return self._query(list(vector), self._name, k) if self._fits(len(vector)) else []

    def search_words(self, terms: Sequence[str], k: int) -> list[Found]:
        with self._in_plain_errors():
            if not terms or not self._there():
                return []
            asked = dict.fromkeys(map(number, terms), 1.0)
            query = models.SparseVector(indices=list(asked), values=list(asked.values()))
            return self._query(query, _WORDS, k)

    def ids(self) -> set[str]:
        with self._in_plain_errors():
            return set(self._all_ids()) if self._there() else set()

    def check(self) -> None:
        """Raise VectorsMismatchError if the collection is for vectors of another model."""
        with self._in_plain_errors():
            self._there()

    def close(self) -> None:
        self._client.close()

    def _query(self, query: list[float] | models.SparseVector, using: str, k: int) -> list[Found]:
        answer = self._client.query_points(
            COLLECTION, query=query, using=using, limit=k, with_payload=True
        )
        found = [
            Found(passage=msgspec.convert(each.payload, Passage), score=each.score)
            for each in answer.points
        ]
        return sorted(found, key=lambda each: (-each.score, each.passage.chunk_id))

    def _all_ids(self) -> Iterator[str]:
        page: models.ExtendedPointId | None = None
        while True:
            records, page = self._client.scroll(
                COLLECTION, limit=1000, offset=page, with_payload=["chunk_id"]
            )
            for each in records:
                if each.payload is not None:
                    yield each.payload["chunk_id"]
            if page is None:
                return

    def _prepare(self, size: int) -> None:
        if self._fits(size):
            return
        try:
            self._client.create_collection(
                COLLECTION,
                vectors_config={
                    self._name: models.VectorParams(size=size, distance=models.Distance.COSINE)
                },
                sparse_vectors_config={
                    _WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)
                },
            )
        except (UnexpectedResponse, ValueError):
            if not self._fits(size):  # it was not another worker that made it just now
                raise

    def _fits(self, size: int) -> bool:
        """Say whether the collection is there; refuse it if it is for other vectors."""
        if not self._there():
            return False
        refuse_another(self._where, self._model, size, (self._model, self._size))
        return True

    def _there(self) -> bool:
        if self._size:
            return True
        if not self._client.collection_exists(COLLECTION):
            return False
        kept = self._client.get_collection(COLLECTION).config.params.vectors
        named = kept if isinstance(kept, dict) else {"": kept}
        for name, params in named.items():
            size = params.size if params is not None else 0
            if name != self._name:
                refuse_another(self._where, self._model, None, (name, size))
            self._size = size
        return True

    def _stored(self, point: Point) -> models.PointStruct:
        passage = point.passage
        words = word_weights(passage)
        return models.PointStruct(
            id=str(uuid5(_NAMES, passage.chunk_id)),
            vector={
                self._name: list(point.vector),
                _WORDS: models.SparseVector(indices=list(words), values=list(words.values())),
            },
            payload=msgspec.to_builtins(passage),
        )

    @contextmanager
    def _in_plain_errors(self) -> Iterator[None]:
        """Raise what the client wraps as what it is: a lost connection, or an answer by its code.

        So it is classified as any other, and the pause that a server asks for is kept.
        """
        try:
            yield
        except ResponseHandlingException as error:
            raise ConnectionError(f"{self._where}: {error.source!r}") from error.source
        except UnexpectedResponse as error:
            code = error.status_code or 500
            raise self._answered(code, str(error), httpx.Headers(error.headers)) from error
        except ResourceExhaustedResponse as error:
            headers = httpx.Headers({"Retry-After": str(error.retry_after_s)})
            raise self._answered(_TOO_MANY_REQUESTS, str(error), headers) from error

    def _answered(self, code: int, said: str, headers: httpx.Headers) -> httpx.HTTPStatusError:
        return httpx.HTTPStatusError(
            f"{self._where} answered {code}: {hidden(said)}",
            request=httpx.Request("POST", "http://qdrant"),
            response=httpx.Response(code, headers=headers),
        )
