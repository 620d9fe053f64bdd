"""Where vectors are kept, with the passages that they stand for."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from headway import ConfigurationError
from headway.settings import cure, shown_url
from headway.systems.consensus.failures import ModelMissingError, VectorsMismatchError
from headway.systems.consensus.models.embedder import Vector
from headway.systems.consensus.settings import ConsensusSettings

_LOG = logging.getLogger("headway")


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk, and what has to be known of its message to show it."""

    chunk_id: str
    message_doc_id: str
    message_id: str
    thread_id: str
    archive_id: str
    chunk_index: int
    offset: int
    subject: str
    sender: str
    date: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A passage and its vector."""

    vector: Vector
    passage: Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A passage that was found; the higher its score, the better it fits."""

    passage: Passage
    score: float


class VectorStore(Protocol):
    """Keeps one vector for each chunk, made by one model; others are refused.

    What `upsert` has returned for stays, and every process finds it. Threads may share a store.
    """

    @property
    def collection(self) -> str:
        """Names the place where the vectors are."""
        ...

    def upsert(self, points: Sequence[Point]) -> None:
        """Keep points; those whose chunk is there already take its place."""
        ...

    def search(self, vector: Vector, k: int) -> list[Found]:
        """Give the k passages whose vectors are nearest, best first; scores are cosines."""
        ...

    def search_words(self, terms: Sequence[str], k: int) -> list[Found]:
        """Give the k passages that hold most of these words, rare ones before all, best first."""
        ...

    def ids(self) -> set[str]:
        """Give the ids of all chunks that are there."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


def open_vectors(settings: ConsensusSettings, model: str) -> VectorStore:
    """Choose by CONSENSUS_VECTORS.

    Raises:
        ConfigurationError: There are vectors of another model.
    """
    if not settings.vectors:
        from headway.systems.consensus.vectors.file import FileVectors  # noqa: PLC0415 (a ring)

        return _checked(FileVectors(settings.vectors_file, model=model))
    try:
        from headway.systems.consensus.vectors.qdrant import open_qdrant  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        raise ModelMissingError(
            f"CONSENSUS_VECTORS={shown_url(settings.vectors)!r} needs {missing.name}: "
            f"{cure('qdrant')}"
        ) from missing
    return _checked(open_qdrant(settings.vectors, settings.vectors_api_key, model=model))


class _Checkable(VectorStore, Protocol):
    def check(self) -> None:
        """Raise VectorsMismatchError if vectors of another model are there."""
        ...


def _checked(store: _Checkable) -> VectorStore:
    """Refuse to begin with a model that would only make letters.

    A store that does not answer now is looked at with the first vectors: it may be late.
    """
    try:
        store.check()
    except VectorsMismatchError as error:
        store.close()
        raise ConfigurationError(str(error)) from None
    except Exception as error:  # noqa: BLE001 (whatever a driver raises when the engine is unavailable)
        _LOG.warning("It is not known yet which model the stored vectors are of: %s", error)
    return store


def refuse_another(where: str, model: str, size: int | None, kept: tuple[str, int]) -> None:
    """Refuse vectors that cannot be compared with those that are kept.

    While their size is not known, because none was made yet, the model decides.
    """
    if model == kept[0] and size in {None, kept[1]}:
        return
    makes = "is to make the vectors" if size is None else f"makes vectors of {size} numbers"
    raise VectorsMismatchError(
        f"CONSENSUS_EMBEDDING_MODEL={model!r} {makes}; those in {where} "
        f"were made by {kept[0]!r} and have {kept[1]}, and the two cannot be compared. Set the "
        "backend and the model back to that, or begin anew with another CONSENSUS_DATA or "
        "CONSENSUS_VECTORS"
    )
