"""Archives in the data folder: written once, under the hash of their content, then only read."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import NamedTemporaryFile

from headway.systems.consensus.failures import ArchiveAwayError
from headway.systems.consensus.identity import archive_id

_A_DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An archive that is safe."""

    archive_id: str
    file_hash: str
    size: int
    file_path: str
    """Within the data folder, which may be mounted elsewhere for others."""


def keep(pieces: Iterable[bytes], data: Path) -> Kept:
    """Write an archive down; whoever is killed on the way leaves none that is half there.

    The same content has the same name: keeping it twice changes nothing.
    """
    folder, incoming = data / "archives", data / "incoming"
    for each in (folder, incoming):
        each.mkdir(parents=True, exist_ok=True)
    digest = sha256()
    size = 0
    with NamedTemporaryFile(dir=incoming, delete=False) as file:
        _sweep(incoming, os.fstat(file.fileno()).st_mtime)
        try:
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            named = archive_id(digest.hexdigest())
            os.replace(file.name, folder / f"{named}.mbox")  # noqa: PTH105 (the file has a text for a name)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    _sync(folder)
    return Kept(
        archive_id=named,
        file_hash=digest.hexdigest(),
        size=size,
        file_path=f"archives/{named}.mbox",
    )


def _sweep(incoming: Path, now: float) -> None:
    """Remove what was left by whoever was killed; nobody takes a day over one archive."""
    for each in incoming.iterdir():
        with suppress(FileNotFoundError):  # somebody else was quicker
            if each.stat().st_mtime < now - _A_DAY:
                each.unlink()


def _sync(folder: Path) -> None:
    """Have the new name on disk before anybody is told of it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def opened(data: Path, file_path: str) -> Iterator[mmap]:
    """Give a kept archive as bytes that are read where they are looked at, and not before.

    Raises:
        ArchiveAwayError: It is not where it was kept.
    """
    path = data / file_path
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise ArchiveAwayError(
            f"{file_path} is not in {data}: every service needs the same CONSENSUS_DATA. If the "
            "file is lost, ingest the archive again, and it is back under this name; then headway "
            "failed requeue parsing.failed has it parsed"
        ) from error
    with file:
        mail = mmap(file.fileno(), 0, access=ACCESS_READ)
        try:
            yield mail
        finally:
            with suppress(BufferError):  # an error on its way out may still look into it
                mail.close()
