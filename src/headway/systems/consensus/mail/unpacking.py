"""The content of an archive as one mbox text, piece by piece: files, gz, zip members, Maildirs.

Pieces are counted as they come. What unpacks to far more than it was packed in is a bomb, and is
left after some megabytes; what a zip file says about its sizes is not believed.
"""

import gzip
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from headway.systems.consensus.mail.errors import NotMailError, TooLargeError
from headway.systems.consensus.mail.finding import is_maildir, split_member
from headway.systems.consensus.mail.limits import Limits, bounded
from headway.systems.consensus.mail.sniffing import GZIP, looks_like_mail

_PIECE = 1024 * 1024
_POSTMARK = b"From MAILER-DAEMON Thu Jan  1 00:00:00 1970\n"
"""Of messages in a Maildir, which have none; always the same, so that the text is the same."""
_LARGEST = 64 * 1024 * 1024
"""Of one message of a Maildir: far more than is read, so that it is refused where that is told."""
_LOOKS = 5
"""For a message that was moved while it was looked for."""
_TO_QUOTE = re.compile(rb"^(?=>*From )", re.MULTILINE)
_PACKED_BADLY = (
    BadZipFile,
    EOFError,
    NotImplementedError,  # a method of packing that nobody knows
    RuntimeError,  # a password is needed
    UnicodeDecodeError,  # a name that is not in the code it says
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
)


def unpack(path: str, limits: Limits = Limits()) -> Iterator[bytes]:  # noqa: B008 (frozen)
    """Give the content of one archive as an mbox or a single message.

    Raises:
        NotMailError: It is no mail, or it is broken.
        TooLargeError: It is larger than the limits allow.
    """
    zip_path, member = split_member(path)
    if member is not None:
        pieces = _of_member(zip_path, member, limits)
    elif Path(path).is_dir():
        if not is_maildir(Path(path)):
            raise NotMailError(f"{path} is a folder and no Maildir: find the archives in it first")
        pieces = _of_maildir(Path(path))
    else:
        pieces = _of_file(path, limits)
    return _checked(path, pieces, limits)


def format_of(path: str) -> str:
    """Say in a word what a path holds."""
    if Path(path).is_dir():
        return "maildir"
    return "eml" if path.lower().removesuffix(".gz").endswith(".eml") else "mbox"


def _checked(path: str, pieces: Iterable[bytes], limits: Limits) -> Iterator[bytes]:
    """Refuse what is no mail at its first piece, and what never ends."""
    total = 0
    for piece in pieces:
        if not total and not looks_like_mail(piece):
            raise NotMailError(f"{path} is no archive of mail: it begins with {piece[:40]!r}")
        total += len(piece)
        if total > limits.most_bytes:
            raise TooLargeError(
                f"{path} has more than {limits.most_bytes / 1e9:.1f} GB: part it into several"
            )
        yield piece
    if not total:
        raise NotMailError(f"{path} is empty")


def _of_file(path: str, limits: Limits) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        if file.read(2) == GZIP:
            yield from _of_gzip(path, file, Path(path).stat().st_size, limits)
        else:
            file.seek(0)
            while piece := file.read(_PIECE):
                yield piece


def _of_gzip(path: str, file: IO[bytes], packed: int, limits: Limits) -> Iterator[bytes]:
    file.seek(0)
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield from bounded(path, unpacked, packed, limits)
    except _PACKED_BADLY as error:
        raise NotMailError(_broken(path, error)) from error


def _of_member(path: str, member: str, limits: Limits) -> Iterator[bytes]:
    shown = f"{member!r} in {path}"
    try:
        with ZipFile(path) as opened, opened.open(member) as file:
            packed = opened.getinfo(member).compress_size
            if file.read(2) == GZIP:
                # Of what may come out of the zip file in any case, a member has its part.
                free = limits.free_bytes * packed // Path(path).stat().st_size
                yield from _of_gzip(shown, file, packed, replace(limits, free_bytes=free))
            else:
                file.seek(0)
                yield from bounded(shown, file, packed, limits)
    except KeyError as error:
        raise NotMailError(f"{path} has no member {member!r} (any more)") from error
    except _PACKED_BADLY as error:
        raise NotMailError(_broken(shown, error)) from error


def _broken(what: str, error: Exception) -> str:
    return f"{what} is broken, or was not copied whole: {error}"


def _of_maildir(folder: Path) -> Iterator[bytes]:
    """Give a Maildir as an mbox; a message that is marked as read does not change it."""
    files = _messages_of(folder)
    for name in sorted(files):
        message = _message_of(folder, name, files)
        if message is not None:
            content = message.replace(b"\r\n", b"\n").rstrip(b"\n")
            yield _POSTMARK + _TO_QUOTE.sub(b">", content) + b"\n\n"


def _messages_of(folder: Path) -> dict[str, Path]:
    """Give the messages by that part of their names which stays when they are read or marked."""
    return {
        path.name.partition(":")[0]: path
        for inner in ("new", "cur")  # as they move: so none is missed that moves just now
        for path in (folder / inner).iterdir()
        if not path.name.startswith(".")
    }


def _message_of(folder: Path, name: str, files: dict[str, Path]) -> bytes | None:
    """Read a message, wherever somebody has moved it meanwhile; None: it is gone, or no file."""
    for _ in range(_LOOKS):
        path = files.get(name)
        if path is None or (path.exists() and not path.is_file()):
            return None
        try:
            with path.open("rb") as file:
                return file.read(_LARGEST)
        except FileNotFoundError:  # others may have moved with it: look for all of them
            files.clear()
            files.update(_messages_of(folder))
    return None
