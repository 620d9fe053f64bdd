"""Stores of vectors: the same promises by the file and by Qdrant, and those that the file adds."""

import multiprocessing
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from headway import ConfigurationError
from headway.retrying import Verdict
from headway.systems.consensus.failures import CLASSIFIER, VectorsMismatchError
from headway.systems.consensus.search import open_search
from headway.systems.consensus.services.embedding import embedding_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.text.words import terms
from headway.systems.consensus.vectors.file import FileVectors
from headway.systems.consensus.vectors.qdrant import QdrantVectors
from headway.systems.consensus.vectors.store import Point, VectorStore, open_vectors
from tests.systems.consensus.passages import an_id, names, point, vector, write_many

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


def test_nothing_is_found_where_nothing_is(store: VectorStore) -> None:
    assert store.search(vector(1, 0), 5) == []
    assert store.search_words(["anything"], 5) == []
    assert store.ids() == set()
    store.upsert([])
    assert store.ids() == set()


def test_words_are_found_and_rare_ones_count_more(store: VectorStore) -> None:
    store.upsert(
        [
            point("both", 1, 0, text="The station reports rain, and the gateway drops it."),
            point("common", 1, 0, text="The station is a station."),
            point("subject", 1, 0, text="Yes.", subject="Rain at dawn"),
            point("neither", 1, 0, text="Thanks!"),
            *(point(f"other {n}", 1, 0, text="A station.") for n in range(5)),
        ]
    )
    found = store.search_words(terms("raining stations"), 3)
    assert names(found) == ["both", "subject", "common"]
    assert store.search_words([], 3) == []


def test_both_stores_weigh_words_alike(store: VectorStore) -> None:
    store.upsert([point("one", 1, 0, text="rain rain"), point("two", 1, 0, text="sun")])
    (found,) = store.search_words(["rain"], 3)
    assert found.score == pytest.approx(0.6931 * 2 * 2.2 / 3.2, abs=0.001)


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


def test_a_second_process_finds_what_the_first_one_keeps(open_store: Open) -> None:
    one, two = open_store("a"), open_store("a")
    one.upsert([point("first", 1, 0)])
    assert names(two.search(vector(1, 0), 5)) == ["first"]
    one.upsert([point("second", 1, 0.1)])
    assert names(two.search(vector(1, 0), 5)) == ["first", "second"]
    assert two.ids() == {an_id("first"), an_id("second")}


def test_vectors_of_another_model_are_refused_with_the_cure(open_store: Open) -> None:
    open_store("a").upsert([point("one", 1, 0)])
    other = open_store("b")
    for use in (lambda: other.upsert([point("two", 1, 0)]), lambda: other.search(vector(1, 0), 1)):
        with pytest.raises(VectorsMismatchError, match=r"CONSENSUS_EMBEDDING_MODEL='b'.*'a'"):
            use()
    assert open_store("a").ids() == {an_id("one")}


@pytest.mark.parametrize("kind", ["service", "search"])
def test_a_model_whose_vectors_are_not_those_in_the_file_is_refused_at_the_start(
    tmp_path: Path, kind: str
) -> None:
    settings = ConsensusSettings(data=tmp_path)
    store = FileVectors(settings.vectors_file, model="made-before")
    store.upsert([point("one", 1, 0)])
    store.close()
    begin = embedding_service if kind == "service" else open_search
    with pytest.raises(
        ConfigurationError,
        match=r"CONSENSUS_EMBEDDING_MODEL='l2_supercat_256' is to make.*'made-before' and have 2.*"
        "another CONSENSUS_DATA",
    ):
        begin(settings)


def test_every_store_says_before_its_first_use_whether_it_is_for_the_model(
    open_store: Open,
) -> None:
    checked(open_store("b"))  # nothing is there, so everything fits
    open_store("a").upsert([point("one", 1, 0)])
    checked(open_store("a"))
    with pytest.raises(VectorsMismatchError, match=r"'b' is to make the vectors; .* by 'a'"):
        checked(open_store("b"))


def checked(store: VectorStore) -> None:
    assert isinstance(store, FileVectors | QdrantVectors)
    store.check()


def test_vectors_of_another_size_are_refused(store: VectorStore) -> None:
    store.upsert([point("one", 1, 0)])
    with pytest.raises(VectorsMismatchError, match=r"vectors of 3 numbers.* have 2"):
        store.upsert([point("two", 1, 0, 0)])
    with pytest.raises(VectorsMismatchError, match="another CONSENSUS_DATA"):
        store.search(vector(1, 0, 0), 1)
    assert store.ids() == {an_id("one")}


def test_any_text_can_be_kept(store: VectorStore) -> None:
    odd = '"; DROP TABLE vectors; -- \N{GRINNING FACE} 再試行 \0 é'
    store.upsert([point("odd", 1, 0, text=odd)])
    (found,) = store.search_words(terms("再試行"), 1)
    assert found.passage.text == odd


# The file


def test_a_look_makes_no_file(tmp_path: Path) -> None:
    store = FileVectors(tmp_path / "data" / "vectors.db", model="a")
    assert store.search(vector(1, 0), 1) == store.search_words(["a"], 1) == []
    assert store.ids() == set()
    assert list(tmp_path.iterdir()) == []


def test_a_search_reads_only_what_is_new(tmp_path: Path) -> None:
    store = FileVectors(tmp_path / "vectors.db", model="a")
    store.upsert([point(f"p{n}", 1, n) for n in range(3000)])
    assert len(store.search(vector(1, 0), 3000)) == 3000
    rows: list[str] = []
    connection = store._connection
    assert connection is not None
    connection.set_trace_callback(rows.append)
    store.upsert([point("new", 1, 0), point("p0", 1, 0)])
    assert names(store.search(vector(1, 0), 1)) in (["new"], ["p0"])
    (read,) = [each for each in rows if each.startswith("SELECT row, chunk_id")]
    assert "row > 3000" in read
    # What is the same as before is not written again.
    assert sum(each.startswith("INSERT INTO vectors") for each in rows) == 1
    store.close()


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


def test_threads_share_commits_and_one_that_is_refused_spoils_none(tmp_path: Path) -> None:
    store = FileVectors(tmp_path / "vectors.db", model="a")
    store.upsert([point("first", 1, 0)])
    refused: list[Exception] = []

    def bring(n: int) -> None:
        numbers = (1.0, n, 0.0) if n % 5 == 4 else (1.0, n)
        try:
            store.upsert([point(f"p{n}", *numbers)])
        except VectorsMismatchError as error:
            refused.append(error)

    threads = [threading.Thread(target=bring, args=(n,)) for n in range(20)]
    with store._lock:  # so that all of them wait
        for thread in threads:
            thread.start()
        while len(store._turns) < len(threads):
            threading.Event().wait(0.005)
    for thread in threads:
        thread.join()
    assert len(refused) == 4
    assert len(store.ids()) == 17
    store.close()


def test_threads_that_come_together_are_one_commit(tmp_path: Path) -> None:
    store = FileVectors(tmp_path / "vectors.db", model="a")
    store.upsert([point("first", 1, 0)])
    assert store._connection is not None
    said: list[str] = []
    store._connection.set_trace_callback(said.append)
    threads = [
        threading.Thread(target=store.upsert, args=([point(f"p{n}", 1, n)],)) for n in range(10)
    ]
    with store._lock:
        for thread in threads:
            thread.start()
        while len(store._turns) < len(threads):
            threading.Event().wait(0.005)
    for thread in threads:
        thread.join()
    assert said.count("COMMIT") == 1
    assert len(store.ids()) == 11
    store.close()


def test_what_is_no_file_of_vectors_is_an_error_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    path.write_text("somebody's diary, which is longer than a header of SQLite " * 20)
    store = FileVectors(path, model="a")
    with pytest.raises(sqlite3.DatabaseError) as caught:
        store.upsert([point("one", 1, 0)])
    assert CLASSIFIER.classify(caught.value).verdict is Verdict.PERMANENT
    assert path.read_text().startswith("somebody's diary")


def test_a_file_that_others_write_to_for_too_long_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.systems.consensus.vectors.file._BUSY", 0.01)
    store = FileVectors(tmp_path / "vectors.db", model="a")
    store.upsert([point("one", 1, 0)])
    other = sqlite3.connect(tmp_path / "vectors.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError) as caught:
        store.upsert([point("two", 1, 0)])
    assert CLASSIFIER.classify(caught.value).verdict is Verdict.TRANSIENT
    other.execute("ROLLBACK")
    other.close()
    store.upsert([point("two", 1, 0)])
    assert len(store.ids()) == 2
    store.close()


# Qdrant


class Trouble(QdrantClient):
    """A client whose server is in trouble."""

    def __init__(self, error: Exception) -> None:
        super().__init__(":memory:")
        self.error = error

    def collection_exists(self, collection_name: str, **_: object) -> bool:
        raise self.error


def _answer(code: int, **headers: str) -> UnexpectedResponse:
    return UnexpectedResponse(code, "", b"api_key=secret", httpx.Headers(headers))


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ResponseHandlingException(httpx.ConnectError("refused")), Verdict.TRANSIENT),
        (ResponseHandlingException(httpx.ReadTimeout("slow")), Verdict.TRANSIENT),
        (_answer(503), Verdict.TRANSIENT),
        (_answer(401), Verdict.PERMANENT),
    ],
    ids=["refused", "slow", "503", "401"],
)
def test_troubles_of_qdrant_are_classified(error: Exception, verdict: Verdict) -> None:
    store = QdrantVectors(Trouble(error), model="a")
    for use in (lambda: store.upsert([point("one", 1, 0)]), lambda: store.search(vector(1, 0), 1),
                lambda: store.search_words(["a"], 1), store.ids):  # fmt: skip
        with pytest.raises(Exception) as caught:
            use()
        assert CLASSIFIER.classify(caught.value).verdict is verdict
        assert "secret" not in str(caught.value)
    store.close()


def test_the_pause_that_qdrant_asks_for_is_kept() -> None:
    store = QdrantVectors(Trouble(_answer(429, **{"Retry-After": "17"})), model="a")
    with pytest.raises(httpx.HTTPStatusError) as caught:
        store.ids()
    assert CLASSIFIER.classify(caught.value).retry_after == timedelta(seconds=17)
    store.close()


def test_the_address_says_where_vectors_are_kept(tmp_path: Path) -> None:
    assert isinstance(open_vectors(ConsensusSettings(data=tmp_path), "a"), FileVectors)
    # Nothing answers there; it may be late, and keeps nobody from starting.
    remote = open_vectors(ConsensusSettings(vectors="http://127.0.0.1:9"), "a")
    assert isinstance(remote, QdrantVectors)
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1"):
        remote.upsert([_any()])
    remote.close()


def _any() -> Point:
    return point("one", 1, 0)
