"""Vectors in a SQLite file of their own: many processes write to it, and nothing has to be started.

A search compares with every row, in memory; a process reads each of them once. So a row is written
once and found by nothing but its number, and writing the last one takes no longer than the first.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headway.settings import cure
from headway.systems.consensus.failures import ModelMissingError, VectorsMismatchError
from headway.systems.consensus.models.embedder import Vector
from headway.systems.consensus.vectors.lexical import Scored, number, packed, word_weights
from headway.systems.consensus.vectors.store import Found, Passage, Point, refuse_another

if TYPE_CHECKING:
    from headway.systems.consensus.vectors.scanning import Scan

_BUSY = 10.0
"""Seconds to wait for other writers; then it is their fault, and tried again later."""
_LOOK_AGAIN = 0.01
_SCHEMA = """
CREATE TABLE IF NOT EXISTS made_by (
    one INTEGER PRIMARY KEY CHECK (one = 1), model TEXT NOT NULL, size INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS vectors (
    row INTEGER PRIMARY KEY AUTOINCREMENT, chunk_id TEXT NOT NULL UNIQUE, vector BLOB NOT NULL,
    words BLOB NOT NULL, passage BLOB NOT NULL
);
"""
_NEW_ROWS = "SELECT row, chunk_id, vector, words FROM vectors WHERE row > ? ORDER BY row"


class FileVectors:
    """Vectors of one model in one file."""

    collection = "vectors"

    def __init__(self, path: Path, *, model: str) -> None:
        self._path = path
        self._model = model
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._scan: Scan | None = None
        self._turns: list[_Turn] = []

    def upsert(self, points: Sequence[Point]) -> None:
        """Keep points, together with those that other threads have brought in the meantime.

        A commit waits for the disk; so it is shared.
        """
        if not points:
            return
        turn = _Turn(points)
        self._turns.append(turn)
        with self._lock:
            if turn.done:
                return
            taken, self._turns = self._turns, []
            others = [each for each in taken if each is not turn]
            try:
                self._write([point for each in (turn, *others) for point in each.points])
            except VectorsMismatchError:  # whose they are is not known: each alone, then
                self._write(points)
            else:
                for each in others:
                    each.done = True

    def search(self, vector: Vector, k: int) -> list[Found]:
        if not self._path.exists():  # a look makes no file
            return []
        with self._reading(len(vector)) as (connection, scan):
            return _found(connection, scan.nearest(vector, k))

    def search_words(self, terms: Sequence[str], k: int) -> list[Found]:
        if not self._path.exists():
            return []
        with self._reading() as (connection, scan):
            return _found(connection, scan.holding([number(term) for term in terms], k))

    def ids(self) -> set[str]:
        if not self._path.exists():  # a look makes no file
            return set()
        with self._lock:
            rows = self._opened().execute("SELECT chunk_id FROM vectors")
            return {chunk_id for (chunk_id,) in rows}

    def check(self) -> None:
        """Raise VectorsMismatchError if the file holds vectors of another model."""
        if self._path.exists():  # a look makes no file
            with self._lock:
                self._refuse_another(self._opened(), None)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _write(self, points: Sequence[Point]) -> None:
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(
                "INSERT OR IGNORE INTO made_by VALUES (1, ?, ?)",
                (self._model, len(points[0].vector)),
            )
            for size in {len(point.vector) for point in points}:
                self._refuse_another(connection, size)
            for point in points:
                _upsert(connection, point)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _refuse_another(self, connection: sqlite3.Connection, size: int | None) -> None:
        kept = connection.execute("SELECT model, size FROM made_by").fetchone()
        if kept is not None:
            refuse_another(str(self._path), self._model, size, kept)

    @contextmanager
    def _reading(self, size: int | None = None) -> Iterator[tuple[sqlite3.Connection, "Scan"]]:
        """Have read what is new, from a connection that shows nothing newer."""
        with self._lock:
            connection, scan = self._opened(), self._scanned()
            connection.execute("BEGIN")
            try:
                if size is not None:
                    self._refuse_another(connection, size)
                scan.read(connection.execute(_NEW_ROWS, (scan.row,)))
                yield connection, scan
            finally:
                connection.execute("ROLLBACK")

    def _scanned(self) -> "Scan":
        if self._scan is None:
            try:
                # Not before it is needed: who only writes does without numpy.
                from headway.systems.consensus.vectors.scanning import (  # noqa: PLC0415
                    Scan,
                )
            except ModuleNotFoundError as missing:
                raise ModelMissingError(
                    f"search needs {missing.name}: {cure('consensus')}"
                ) from missing
            self._scan = Scan()
        return self._scan

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Threads take turns at it, by the lock.
            connection = sqlite3.connect(
                self._path, timeout=_BUSY, isolation_level=None, check_same_thread=False
            )
            try:
                _to_wal(connection)
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA fullfsync = ON")  # for macOS
                connection.execute("PRAGMA checkpoint_fullfsync = ON")
                connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _to_wal(connection: sqlite3.Connection) -> None:
    """Have the file keep a log; who else is just making that change is waited for.

    SQLite does not wait here by itself, whatever it was told.
    """
    for left in reversed(range(int(_BUSY / _LOOK_AGAIN))):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or not left:
                raise
            threading.Event().wait(_LOOK_AGAIN)
        else:
            return


class _Turn:
    """Points that a thread has brought, and whether another one has written them for it."""

    __slots__ = ("done", "points")

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = points
        self.done = False


def _upsert(connection: sqlite3.Connection, point: Point) -> None:
    passage = point.passage
    vector, body = point.vector.tobytes(), msgspec.json.encode(passage)
    there = connection.execute(
        "SELECT vector, passage FROM vectors WHERE chunk_id = ?", (passage.chunk_id,)
    ).fetchone()
    if there == (vector, body):
        return
    # Not changed in its place: whoever reads what is new looks for higher rows only.
    connection.execute("DELETE FROM vectors WHERE chunk_id = ?", (passage.chunk_id,))
    connection.execute(
        "INSERT INTO vectors (chunk_id, vector, words, passage) VALUES (?, ?, ?, ?)",
        (passage.chunk_id, vector, packed(word_weights(passage)), body),
    )


def _found(connection: sqlite3.Connection, scored: Scored) -> list[Found]:
    return [
        Found(passage=msgspec.json.decode(body, type=Passage), score=score)
        for chunk_id, score in scored
        for (body,) in connection.execute(
            "SELECT passage FROM vectors WHERE chunk_id = ?", (chunk_id,)
        )
    ]
