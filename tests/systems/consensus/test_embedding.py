"""Models that make vectors, and the service that embeds chunks with them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headway.retrying import Verdict
from headway.systems.consensus.events import EmbeddingGenerationFailed, EmbeddingsGenerated
from headway.systems.consensus.failures import CLASSIFIER, ModelAnswerError
from headway.systems.consensus.models.openai_embeddings import OpenAIEmbedder
from headway.systems.consensus.services.embedding import embedding_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.vectors.file import FileVectors
from headway.testing.trial import Trial
from tests.systems.consensus.passages import LettersEmbedder, an_id, vector
from tests.systems.consensus.threads import Desk

# WordLlama


def test_the_model_is_loaded_without_network_and_leaves_logging_alone() -> None:
    # In a process of its own: here it is loaded already.
    program = """
import logging, socket, sys
def refuse(*_): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
from headway.systems.consensus.models.embedder import open_embedder
from headway.systems.consensus.settings import ConsensusSettings
model = open_embedder(ConsensusSettings())
assert "numpy" not in sys.modules
model.embed(["text"])
assert not logging.getLogger().handlers
assert not {"wordllama", "requests", "huggingface_hub"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# A service that speaks as OpenAI's does

Answer = Callable[[httpx.Request], httpx.Response]


def _embedder(answer: Answer, key: str = "sk-secret") -> OpenAIEmbedder:
    return OpenAIEmbedder(
        "http://models:8080/v1/", model="m", api_key=key, transport=httpx.MockTransport(answer)
    )


def _lengths(request: httpx.Request) -> httpx.Response:
    """Give as vectors the lengths of the texts, in another order than they were asked in."""
    texts = msgspec.json.decode(request.content)["input"]
    data = [{"index": n, "embedding": [len(text), 1.0]} for n, text in enumerate(texts)]
    return httpx.Response(200, json={"object": "list", "data": data[::-1], "model": "m"})


def test_texts_are_sent_in_batches_and_come_back_in_their_order() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return _lengths(request)

    texts = ["x" * n for n in range(1, 151)]
    found = _embedder(answer).embed(texts)
    assert found == [vector(n, 1.0) for n in range(1, 151)]
    assert [len(msgspec.json.decode(each.content)["input"]) for each in requests] == [64, 64, 22]
    assert {str(each.url) for each in requests} == {"http://models:8080/v1/embeddings"}
    assert requests[0].headers["Authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize(
    "content",
    [
        b"<html>",
        b"{}",
        b'{"data": []}',
        b'{"data": [{"embedding": []}]}',
        b'{"data": [{"embedding": [1e999]}]}',
        b'{"data": [{"embedding": [1]}, {"embedding": [1]}]}',
    ],
)
def test_an_answer_that_is_none_is_asked_for_again(content: bytes) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=content)

    with pytest.raises(ModelAnswerError, match="models:8080") as caught:
        _embedder(answer).embed(["text"])
    assert CLASSIFIER.classify(caught.value).verdict is Verdict.TRANSIENT


# The service


class MoodyVectors(FileVectors):
    """A store of vectors that is down at first."""

    def __init__(self, path: Path, *failures: Exception) -> None:
        super().__init__(path, model="letters-3")
        self.failures = list(failures)

    def upsert(self, points: Any) -> None:
        if self.failures:
            raise self.failures.pop(0)
        super().upsert(points)


class Scene:
    """The service with a small model and a file of vectors, and a service that listens."""

    def __init__(self, path: Path) -> None:
        self.model = LettersEmbedder()
        self.vectors = MoodyVectors(path / "vectors.db")
        self.heard = Desk(EmbeddingsGenerated, EmbeddingGenerationFailed)
        service = embedding_service(
            ConsensusSettings(data=path), embedder=self.model, vectors=self.vectors
        )
        self.trial = Trial(service, self.heard.service)

    async def run(self, *names: str) -> None:
        if names:
            await self.trial.publish("ChunksPrepared", prepared(*names))
        await self.trial.run()

    async def flags(self) -> dict[str, Any]:
        chunks = await self.trial.documents("chunks")
        return {each["text"]: each["embedding_generated"] for each in chunks}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.vectors.close()


def chunk(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "_id": an_id(name),
        "message_doc_id": an_id("message"),
        "message_id": "one@example.org",
        "thread_id": an_id("thread"),
        "archive_id": an_id("archive"),
        "subject": "Re: Letters",
        "from": "Ada",
        "date": "2025-02-04T10:00:00Z",
        "chunk_index": 0,
        "text": name,
        "offset": 0,
        "token_count": 1,
        "embedding_generated": False,
        "chunking_strategy": "sentences",
        "attemptCount": 0,
        **fields,
    }


def prepared(*names: str) -> dict[str, Any]:
    return {
        "message_doc_ids": [an_id("message")],
        "chunk_count": len(names),
        "chunk_ids": [an_id(name) for name in names],
        "chunks_ready": True,
        "chunking_strategy": "sentences",
        "avg_chunk_size_tokens": 1,
    }


async def test_chunks_are_embedded_kept_marked_and_announced(scene: Scene) -> None:
    await scene.trial.put("chunks", chunk("aab"), chunk("c"))
    await scene.run("aab", "c")
    assert await scene.flags() == {"aab": True, "c": True}
    (found, _) = scene.vectors.search(vector(2, 1, 0), 5)
    assert found.passage.chunk_id == an_id("aab")
    assert found.score == pytest.approx(1.0)
    assert (found.passage.subject, found.passage.sender) == ("Re: Letters", "Ada")
    (event,) = scene.heard.data
    assert event.chunk_ids == [an_id("aab"), an_id("c")]
    assert (event.embedding_count, event.embedding_dimension) == (2, 3)
    assert (event.embedding_backend, event.embedding_model) == ("letters", "letters-3")


async def test_idempotent_embedding(scene: Scene) -> None:
    await scene.trial.put("chunks", chunk("a"))
    for _ in range(2):
        await scene.run("a")
    assert scene.model.asked == [["a"]]
    assert scene.vectors.ids() == {an_id("a")}
    assert len(scene.heard.data) == 1


async def test_a_second_run_after_a_crash_puts_the_same_vectors_in_the_same_place(
    scene: Scene,
) -> None:
    await scene.trial.put("chunks", chunk("a"))
    await scene.run("a")
    # As if the process had died between the vectors and the commit.
    await scene.trial.put("chunks", chunk("a"))
    await scene.trial.publish("ChunksPrepared", {**prepared("a"), "chunk_ids": [an_id("a")] * 2})
    await scene.trial.run()
    assert scene.vectors.ids() == {an_id("a")}
    assert await scene.flags() == {"a": True}


async def test_with_one_of_two_chunks_visible_it_waits_for_the_other(scene: Scene) -> None:
    await scene.trial.put("chunks", chunk("a"))
    await scene.trial.publish("ChunksPrepared", prepared("a", "b"))
    await scene.trial.run(at_most=timedelta(milliseconds=100))
    assert scene.model.asked == []
    await scene.trial.put("chunks", chunk("b"))
    await scene.run()
    assert scene.model.asked == [["a", "b"]]
    assert await scene.flags() == {"a": True, "b": True}


async def test_max_retries_exceeded_is_a_dead_letter_and_one_failed_event(scene: Scene) -> None:
    scene.model.failures = [ConnectionError("lost")] * 3
    await scene.trial.put("chunks", chunk("a"))
    await scene.run("a")
    (letter,) = await scene.trial.letters("embedding.generation.failed")
    assert letter.abandoned_reason == "max_attempts_exceeded"
    (failed,) = scene.heard.data
    assert (failed.chunk_ids, failed.embedding_backend) == ([an_id("a")], "letters")
    assert failed.error_message == "lost"
    assert await scene.flags() == {"a": False}
    assert scene.vectors.ids() == set()


async def test_vectors_that_cannot_be_kept_are_tried_again_and_nothing_is_marked(
    scene: Scene,
) -> None:
    scene.vectors.failures = [ConnectionError("vector store is down")]
    await scene.trial.put("chunks", chunk("a"))
    await scene.trial.publish("ChunksPrepared", prepared("a"))
    await scene.trial.run(at_most=timedelta(seconds=4))
    assert await scene.flags() == {"a": False}
    assert scene.heard.data == []
    await scene.run()
    assert await scene.flags() == {"a": True}
    assert len(scene.heard.data) == 1


async def test_a_stuck_chunk_is_swept_and_embedded(scene: Scene) -> None:
    await scene.trial.put("chunks", chunk("a", createdAt="1999-01-01T00:00:00Z"))
    swept = await scene.trial.sweep()
    assert {each.collection: each.requeued for each in swept.collections}["chunks"] == 1
    await scene.run()
    assert await scene.flags() == {"a": True}
    assert len(scene.heard.data) == 1
