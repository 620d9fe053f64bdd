"""Stores of vectors: the same promises by the file and by Qdrant, and those that the file adds."""

import multiprocessing
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from headway import ConfigurationError
from headway.retrying import Verdict
from headway.systems.consensus.failures import CLASSIFIER
from headway.systems.consensus.search import open_search
from headway.systems.consensus.services.embedding import embedding_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.text.words import terms
from headway.systems.consensus.vectors.file import FileVectors
from headway.systems.consensus.vectors.qdrant import QdrantVectors
from headway.systems.consensus.vectors.store import VectorStore, open_vectors
from tests.systems.consensus.passages import names, point, vector, write_many

Open = Callable[[str], VectorStore]


@pytest.fixture(params=["file", "qdrant"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Give a function that opens the same store again, for vectors of a model."""
    client = QdrantClient(":memory:")

    def opened(model: str) -> VectorStore:
        if request.param == "qdrant":
            return QdrantVectors(client, model=model)
        store = FileVectors(tmp_path / "data" / "vectors.db", model=model)
        request.addfinalizer(store.close)
        return store

    yield opened
    client.close()


@pytest.fixture
def store(open_store: Open) -> VectorStore:
    return open_store("a")


# What every store promises


def test_the_nearest_are_found_best_first(store: VectorStore) -> None:
    store.upsert([point("east", 1, 0), point("north", 0, 1), point("north-east", 1, 1)])
    found = store.search(vector(1, 0.1), 2)
    assert names(found) == ["east", "north-east"]
    assert found[0].score == pytest.approx(0.995, abs=0.001)
    assert found[0].passage == point("east").passage


def test_a_point_that_comes_again_takes_the_place_of_the_old_one(store: VectorStore) -> None:
    store.upsert([point("one", 1, 0, text="rain"), point("two", 0.5, 1, text="rain")])
    assert names(store.search(vector(1, 0), 1)) == ["one"]
    for _ in range(2):
        store.upsert([point("one", -1, 0, text="sun")])
        assert len(store.ids()) == 2
        assert names(store.search(vector(1, 0), 5)) == ["two", "one"]
        assert names(store.search_words(["rain"], 5)) == ["two"]
        (found,) = store.search_words(["sun"], 5)
        assert found.passage.text == "sun"


@pytest.mark.parametrize("kind", ["service", "search"])
def test_a_model_whose_vectors_are_not_those_in_the_file_is_refused_at_the_start(
    tmp_path: Path, kind: str
) -> None:
    settings = ConsensusSettings(data=tmp_path)
    store = FileVectors(settings.vectors_file, model="made-before")
    store.upsert([point("one", 1, 0)])
    store.close()
    begin = embedding_service if kind == "service" else open_search
    with pytest.raises(ConfigurationError, match=r"CONSENSUS_EMBEDDING_MODEL.*'made-before'"):
        begin(settings)


def test_any_text_can_be_kept(store: VectorStore) -> None:
    odd = '"; DROP TABLE vectors; -- \N{GRINNING FACE} 再試行 \0 é'
    store.upsert([point("odd", 1, 0, text=odd)])
    (found,) = store.search_words(terms("再試行"), 1)
    assert found.passage.text == odd


# The file


def test_several_processes_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "vectors.db"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_many, args=(path, each)) for each in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    store = FileVectors(path, model="a")
    assert len(store.ids()) == len(store.search(vector(1, 0), 100)) == 61
    store.close()


def test_what_is_no_file_of_vectors_is_an_error_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    path.write_text("a private diary, which is longer than a header of SQLite " * 20)
    store = FileVectors(path, model="a")
    with pytest.raises(sqlite3.DatabaseError) as caught:
        store.upsert([point("one", 1, 0)])
    assert CLASSIFIER.classify(caught.value).verdict is Verdict.PERMANENT
    assert path.read_text().startswith("a private diary")


def test_a_qdrant_that_does_not_answer_is_tried_again_later() -> None:
    store = open_vectors(ConsensusSettings(vectors="http://127.0.0.1:9"), "a")
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1") as caught:
        store.upsert([point("one", 1, 0)])
    assert CLASSIFIER.classify(caught.value).verdict is Verdict.TRANSIENT
    store.close()
