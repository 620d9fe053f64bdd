"""How much may be unpacked: what becomes far more than it was packed in is made to fill a disk."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zipfile import ZipFile

from headway.systems.consensus.mail.errors import TooLargeError

_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is unpacked."""

    most_bytes: int = 8 * 1024**3
    most_times: int = 250
    """So many times its packed size; mail is mostly packed to a fifth, seldom to a hundredth."""
    free_bytes: int = 16 * 1024**2
    """So much may always come out of one file, whatever it was packed in."""


def refuse_bomb(path: str, opened: ZipFile, limits: Limits = Limits()) -> None:  # noqa: B008 (frozen)
    """Refuse a zip file whose members are together more than it may become.

    No member gives more bytes than the zip file says it has, so what it says may be added up.

    Raises:
        TooLargeError: They are more; or they are packed in the same bytes, which are counted once.
    """
    size = Path(path).stat().st_size
    members = opened.infolist()
    unpacked = sum(each.file_size for each in members)
    packed = sum(each.compress_size for each in members)
    if packed > size or unpacked > limits.free_bytes + size * limits.most_times:
        raise TooLargeError(_too_much(path, limits))


def bounded(
    path: str, file: IO[bytes] | gzip.GzipFile, packed: int, limits: Limits
) -> Iterator[bytes]:
    """Give the pieces of a file until they are more than it may become.

    Raises:
        TooLargeError: They are more.
    """
    most = limits.free_bytes + packed * limits.most_times
    total = 0
    while piece := file.read(_PIECE):
        total += len(piece)
        if total > most:
            raise TooLargeError(_too_much(path, limits))
        yield piece


def _too_much(path: str, limits: Limits) -> str:
    return (
        f"{path} unpacks to more than {limits.most_times} times its size: that is made to fill a "
        "disk; if it is not, unpack it yourself and send the file"
    )
