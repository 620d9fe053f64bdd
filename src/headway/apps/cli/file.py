"""Files that commands write: complete, or not written at all."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from headway.core.errors import ConfigurationError
from headway.core.showing import shown

_PRIVATE, _PUBLIC = 0o600, 0o666
_SQLITE = b"SQLite format 3\0"
_COMPANIONS = ("-wal", "-shm", "-journal", "-next", "-now", "-wal-of")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class NewFile:
    """The place of a file that a person named.

    A symbolic link is followed: the file that it names is written, and the link stays.

    Args:
        path: Where the file goes.
        option: The option by which a person named it, for errors.
        force: Replace a file that is there.
        private: Only the owner may read it.
    """

    def __init__(
        self, path: Path, *, option: str, force: bool = False, private: bool = True
    ) -> None:
        self.path = path
        self._option = option
        self._force = force
        self._mode = _PRIVATE if private else _PUBLIC

    def check(self) -> Path:
        """Give the place behind all links; refuse one to which no file can be written."""
        try:
            target = self._followed()
            if not target.parent.is_dir():
                raise self._refused(f"there is no folder {shown(str(target.parent))}")
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from None
        return target

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], None]]:
        """Give what writes text: beside the place, which the file takes when the block ends well.

        If the block raises, the place is as it was.
        """
        target = self.check()
        beside = target.with_name(f".{target.name}.{os.getpid()}.part")
        stream = self._created(beside)

        def write(text: str) -> None:
            try:
                stream.write(text)
            except OSError as error:
                raise self._failed(error) from None

        try:
            yield write
            try:
                stream.flush()
                os.fsync(stream.fileno())
                self._followed()  # another program may have put something there meanwhile
                beside.replace(target)
            except OSError as error:
                raise self._failed(error) from None
            _sync_folder(target.parent)
        finally:
            with suppress(OSError):  # what is still buffered is of no use
                stream.close()
            beside.unlink(missing_ok=True)

    def _created(self, beside: Path) -> IO[str]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            beside.unlink(missing_ok=True)  # of a process that was killed
            return os.fdopen(os.open(beside, flags, self._mode), "w", encoding="utf-8")
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from None

    def _followed(self) -> Path:
        """Give the place behind all links; refuse what is there and no file, or not to be lost."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            target = self.path.resolve()  # a link may name a file that is not there yet
            self._refuse_database(target)
            return target
        for is_kind, name in _KINDS:
            if is_kind(found.st_mode):
                raise self._refused(f"it is {name}, not a file. Use - for standard output")
        target = self.path.resolve()
        self._refuse_database(target)
        if not target.exists() or not os.path.samestat(target.stat(), found):
            raise self._refused("it is an open file without a name. Use - for standard output")
        if not self._force:
            raise self._refused("the file exists. Name another, or replace it with --force")
        return target

    def _refuse_database(self, target: Path) -> None:
        """Refuse an SQLite file and its companions: replacing one would lose all that it holds."""
        for suffix in ("", *_COMPANIONS):
            name = target.name.removesuffix(suffix)
            if target.name == name + suffix and name and _is_database(target.with_name(name)):
                raise self._refused("it belongs to an SQLite database. Name another file")

    def _refused(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"Invalid {self._option} {shown(str(self.path))!r}: {why}.")

    def _failed(self, error: OSError) -> ConfigurationError:
        why = error.strerror or str(error)
        return ConfigurationError(f"Cannot write {shown(str(self.path))!r}: {why}.")


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _sync_folder(folder: Path) -> None:
    """Make a new name durable; some file systems cannot, and then it is not."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
