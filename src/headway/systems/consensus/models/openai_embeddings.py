"""Vectors from a service that speaks as OpenAI's does: many do, also on one's own machine."""

import math
from array import array
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec

from headway.systems.consensus.failures import ModelAnswerError
from headway.systems.consensus.models.embedder import Vector
from headway.systems.consensus.models.openai_client import OpenAIClient

_MODEL = "text-embedding-3-small"
_AT_ONCE = 64
"""Texts in one request."""
_TIMEOUT = 60.0
_LARGEST = 16_000_000
"""Room for vectors of 10,000 numbers, written out in full."""


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Embedding]


class OpenAIEmbedder:
    """Asks `POST {url}/embeddings`; it raises what `OpenAIClient` does."""

    backend = "openai"

    def __init__(
        self,
        url: str,
        *,
        model: str = "",
        api_key: str = "",
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.model = model or _MODEL
        self._client = OpenAIClient(
            url,
            "embeddings",
            api_key=api_key,
            timeout=_TIMEOUT,
            largest=_LARGEST,
            transport=transport,
        )

    def embed(self, texts: Sequence[str], subjects: Sequence[str] = ()) -> list[Vector]:
        whole = texts
        if subjects:
            pairs = zip(subjects, texts, strict=True)
            whole = [f"{subject}\n\n{text}" if subject else text for subject, text in pairs]
        vectors = [
            vector
            for begin in range(0, len(whole), _AT_ONCE)
            for vector in self._ask(whole[begin : begin + _AT_ONCE])
        ]
        if len({len(vector) for vector in vectors}) > 1:
            raise ModelAnswerError(f"{self._client.where} gave vectors of different sizes")
        return vectors

    def _ask(self, texts: Sequence[str]) -> list[Vector]:
        asked = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        found = self._client.ask(asked, _Answer, called="list of vectors").data
        if all(each.index is not None for each in found):
            found.sort(key=_place)
        if len(found) != len(texts):
            raise ModelAnswerError(
                f"{self._client.where} gave {len(found)} vectors for {len(texts)} texts"
            )
        return [self._of_length_one(each.embedding) for each in found]

    def _of_length_one(self, numbers: list[float]) -> Vector:
        length = math.hypot(*numbers)
        if not numbers or not math.isfinite(length):
            raise ModelAnswerError(f"{self._client.where} gave a vector without finite numbers")
        return array("f", [number / (length or 1.0) for number in numbers])


def _place(embedding: _Embedding) -> Any:
    return embedding.index
