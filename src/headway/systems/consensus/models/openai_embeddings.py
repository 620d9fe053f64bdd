"""Vectors from a service that speaks as OpenAI's does: many do, also on one's own machine."""

import math
import threading
from array import array
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec

from headway.core.secrets import hidden
from headway.systems.consensus.failures import ModelAnswerError
from headway.systems.consensus.models.embedder import Vector

_MODEL = "text-embedding-3-small"
_AT_ONCE = 64
"""Texts in one request."""
_TIMEOUT = 60.0
_SHOWN = 200


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Embedding]


class OpenAIEmbedder:
    """Asks `POST {url}/embeddings`.

    An answer of 429 or 503 is raised as `httpx.HTTPStatusError` with its headers, so that the pause
    that the service asks for is kept. No error has the key in it.
    """

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
        self._url = f"{url.rstrip('/')}/embeddings"
        self._key = api_key
        self._transport = transport
        self._opening = threading.Lock()
        self._client: httpx.Client | None = None

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
            raise ModelAnswerError(f"{hidden(self._url)} gave vectors of different sizes")
        return vectors

    def _ask(self, texts: Sequence[str]) -> list[Vector]:
        asked = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        response = self._connected().post(self._url, json=asked)
        self._refuse_errors(response)
        try:
            found = msgspec.json.decode(response.content, type=_Answer).data
        except msgspec.DecodeError as error:
            raise ModelAnswerError(
                f"{hidden(self._url)} answered something that is no list of vectors: {error}"
            ) from None
        if all(each.index is not None for each in found):
            found.sort(key=_place)
        if len(found) != len(texts):
            raise ModelAnswerError(
                f"{hidden(self._url)} gave {len(found)} vectors for {len(texts)} texts"
            )
        return [self._of_length_one(each.embedding) for each in found]

    def _of_length_one(self, numbers: list[float]) -> Vector:
        length = math.hypot(*numbers)
        if not numbers or not math.isfinite(length):
            raise ModelAnswerError(f"{hidden(self._url)} gave a vector without finite numbers")
        return array("f", [number / (length or 1.0) for number in numbers])

    def _refuse_errors(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        said = " ".join(response.text[: _SHOWN * 10].split())
        if self._key:
            said = said.replace(self._key, "***")
        raise httpx.HTTPStatusError(
            f"{hidden(self._url)} answered {response.status_code} {response.reason_phrase}: "
            f"{hidden(said)[:_SHOWN]}",
            request=response.request,
            response=response,
        )

    def _connected(self) -> httpx.Client:
        with self._opening:
            if self._client is None:
                headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
                self._client = httpx.Client(
                    headers=headers, timeout=_TIMEOUT, transport=self._transport
                )
            return self._client


def _place(embedding: _Embedding) -> Any:
    return embedding.index
