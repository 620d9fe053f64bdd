"""Which archives a path stands for: a file, a folder, a pattern, a Maildir, a member of a zip.

A folder is searched for what is mail by its name or by its first bytes. What is mail by its name
and not by its content is found too, and refused when it is read: so somebody hears of it.
"""

import os
import stat
import zlib
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

from headway.systems.consensus.mail.errors import NotMailError, TooLargeError
from headway.systems.consensus.mail.limits import refuse_bomb
from headway.systems.consensus.mail.sniffing import GZIP, SNIFFED, ZIP, looks_like_mail

MEMBER = "!/"
"""Between the path of a zip file and the name of a member in it."""
_SUFFIXES = (".mbox", ".mbx", ".mbox.gz", ".mbox.zip", ".eml", ".txt.gz", ".mail")
_SHOWN = 40
_MOST_MEMBERS = 100_000
_MOST_FILES = 1_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """What a path stands for."""

    archives: tuple[str, ...]
    """Paths that can be read, each one archive."""
    passed_over: tuple[str, ...] = ()
    """Files that are not mail, by name and by content."""

    @property
    def is_one(self) -> bool:
        return len(self.archives) == 1 and not self.passed_over


def find_archives(path: str) -> Found:
    """Give the archives that a path stands for, in the order of their names.

    Raises:
        FileNotFoundError: Nothing is there.
        NotMailError: It is no file and no folder, or there is no mail in it.
    """
    zip_path, member = split_member(path)
    if member is not None:
        return Found((path,))
    if not os.path.lexists(path) and has_magic(path):
        matching = sorted(glob(path, recursive=True))  # noqa: PTH207 (a pattern may be absolute)
        if not matching:
            raise FileNotFoundError(f"nothing matches {path}: check the pattern, and where you are")
        found = _several(matching)
        if not found.archives:
            raise NotMailError(f"no mail matches {path}: {len(found.passed_over)} other files do")
        return found
    mode = Path(path).stat().st_mode
    if stat.S_ISDIR(mode):
        return Found((path,)) if is_maildir(Path(path)) else _in_folder(path)
    if not stat.S_ISREG(mode):
        raise NotMailError(f"{path} is no file and no folder: a device or a pipe cannot be kept")
    first = _begins(path)
    if first.startswith(ZIP):
        return _members(zip_path)
    if not _is_taken(path, first):
        raise NotMailError(f"{path} is no archive of mail: it begins with {first[:_SHOWN]!r}")
    return Found((path,))


def split_member(path: str) -> tuple[str, str | None]:
    """Give the path of a zip file and the name of a member, where a path names one."""
    at = path.find(MEMBER)
    while at >= 0:
        if Path(path[:at]).is_file():
            return path[:at], path[at + len(MEMBER) :]
        at = path.find(MEMBER, at + 1)
    return path, None


def is_maildir(folder: Path) -> bool:
    return (folder / "cur").is_dir() and (folder / "new").is_dir()


def _several(paths: list[str]) -> Found:
    archives: list[str] = []
    passed_over: list[str] = []
    for path in paths:
        try:
            found = find_archives(path) if Path(path).is_dir() else _one_of_many(path)
        except (NotMailError, FileNotFoundError):  # an empty folder, or a file that is gone
            passed_over.append(path)
        else:
            archives += found.archives
            passed_over += found.passed_over
    return Found(tuple(dict.fromkeys(archives)), tuple(passed_over))


def _one_of_many(path: str) -> Found:
    """Look at a file that nobody named: it may be anything."""
    if not Path(path).is_file():
        return Found((), (path,))
    first = _begins(path)
    return Found((path,)) if _is_taken(path, first) else Found((), (path,))


def _is_taken(name: str, first: bytes) -> bool:
    return (
        name.lower().endswith(_SUFFIXES) or first.startswith((GZIP, *ZIP)) or looks_like_mail(first)
    )


def _in_folder(path: str) -> Found:
    files: list[str] = []
    for folder, inner, names in os.walk(path):  # links to folders are not followed: they may ring
        if is_maildir(Path(folder)):
            files.append(folder)
            inner[:] = [name for name in inner if name.startswith(".")]  # Maildir++ folders
            continue
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        files += [str(Path(folder, name)) for name in names if not name.startswith(".")]
        if len(files) > _MOST_FILES:
            raise TooLargeError(f"more than {_MOST_FILES} files are in {path}: name its folders")
    found = _several(sorted(files))
    if not found.archives:
        raise NotMailError(f"no mail is in the folder {path}: {len(found.passed_over)} other files")
    return found


def _begins(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(SNIFFED)


def _members(path: str) -> Found:
    """Give the members of a zip; they are never written under their names."""
    archives: list[str] = []
    passed_over: list[str] = []
    try:
        with ZipFile(path) as opened:
            members = [each for each in opened.infolist() if not each.is_dir()]
            if len(members) > _MOST_MEMBERS:
                raise TooLargeError(
                    f"{path} has {len(members)} members, and {_MOST_MEMBERS} are the most"
                )
            refuse_bomb(path, opened)
            for member in members:
                named = f"{path}{MEMBER}{member.filename}"
                is_mail = not _is_clutter(member) and _is_mail(opened, member)
                (archives if is_mail else passed_over).append(named)
    except (BadZipFile, OSError, NotImplementedError, UnicodeDecodeError) as error:
        raise NotMailError(f"{path} cannot be read as a zip file: {error}") from error
    if not archives:
        raise NotMailError(f"no mail is in {path}: {len(passed_over)} other files")
    return Found(tuple(dict.fromkeys(archives)), tuple(passed_over))


def _is_mail(opened: ZipFile, member: ZipInfo) -> bool:
    try:
        with opened.open(member) as file:
            return _is_taken(member.filename, file.read(SNIFFED))
    except (BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error):
        return True  # it will be refused when it is read, and somebody hears why


def _is_clutter(member: ZipInfo) -> bool:
    name = member.filename.rpartition("/")[2]
    return not name or name.startswith(".") or member.filename.startswith("__MACOSX/")
