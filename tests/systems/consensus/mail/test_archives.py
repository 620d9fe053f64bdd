"""Files, folders, patterns, packed files: found, unpacked, or refused with the reason."""

import gzip
import os
import zipfile
from pathlib import Path

import pytest

from headway.systems.consensus.mail.boundaries import find_messages
from headway.systems.consensus.mail.errors import NotMailError, TooLargeError
from headway.systems.consensus.mail.finding import find_archives
from headway.systems.consensus.mail.limits import Limits
from headway.systems.consensus.mail.unpacking import unpack
from tests.systems.consensus.hostile import bomb, mbox, message, write_folder

MAIL = mbox(message(1), message(2))


def content(path: Path | str) -> bytes:
    return b"".join(unpack(str(path)))


def test_a_folder_is_searched_for_mail(tmp_path: Path) -> None:
    hostile = write_folder(tmp_path)
    found = find_archives(str(tmp_path))
    names = {Path(path).name for path in found.archives}
    assert {"strange.mbox", "several.zip", "maildir", "single.eml", "empty.mbox"} <= names
    assert [Path(path).name for path in found.passed_over] == ["notes.txt"]
    assert hostile.refused == 5


def test_a_pattern_stands_for_what_it_matches(tmp_path: Path) -> None:
    for name in ("a.mbox", "b.mbox", "c.txt"):
        (tmp_path / name).write_bytes(MAIL)
    found = find_archives(str(tmp_path / "*.mbox"))
    assert [Path(path).name for path in found.archives] == ["a.mbox", "b.mbox"]


@pytest.mark.parametrize("path", ["nowhere.mbox", "nothing*.mbox"])
def test_what_is_not_there_is_said(tmp_path: Path, path: str) -> None:
    with pytest.raises(FileNotFoundError):
        find_archives(str(tmp_path / path))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotMailError, match="no file and no folder"):
        find_archives(str(tmp_path / "pipe"))
    with pytest.raises(NotMailError, match="1 other files"):
        find_archives(str(tmp_path))


def test_links_in_a_ring_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "ring").symlink_to(tmp_path)
    (tmp_path / "a.mbox").write_bytes(MAIL)
    assert find_archives(str(tmp_path)).is_one


def test_packed_mail_is_the_same_mail(tmp_path: Path) -> None:
    (tmp_path / "a.mbox.gz").write_bytes(gzip.compress(MAIL))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("../../etc/a.mbox", MAIL)
        packed.writestr("b.mbox.gz", gzip.compress(MAIL))
    found = find_archives(str(tmp_path / "a.zip")).archives
    assert len(found) == 2
    assert {content(path) for path in (tmp_path / "a.mbox.gz", *found)} == {MAIL}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.mbox.gz", "a.zip"]


def test_a_maildir_is_the_same_whoever_has_read_it(tmp_path: Path) -> None:
    write_folder(tmp_path)
    before = content(tmp_path / "maildir")
    unread = next((tmp_path / "maildir" / "new").iterdir())
    unread.rename(tmp_path / "maildir" / "cur" / f"{unread.name}:2,RS")
    assert content(tmp_path / "maildir") == before
    assert len(list(find_messages(before))) == 5


def test_a_maildir_may_be_read_while_somebody_reads_it_too(tmp_path: Path) -> None:
    for name in ("cur", "new"):
        (tmp_path / name).mkdir()
    for number in range(4):
        (tmp_path / "new" / f"{number}.host").write_bytes(message(number))
    before = content(tmp_path)
    pieces = unpack(str(tmp_path))
    read = [next(pieces)]
    for number in (1, 2):  # after the names were listed
        name = f"{number}.host"
        (tmp_path / "new" / name).rename(tmp_path / "cur" / f"{name}:2,S")
    read.append(next(pieces))
    (tmp_path / "cur" / "2.host:2,S").rename(tmp_path / "cur" / "2.host:2,FS")
    assert b"".join([*read, *pieces]) == before
    pieces = unpack(str(tmp_path))
    read = [next(pieces)]
    (tmp_path / "new" / "3.host").unlink()  # that one is gone, and the others are read
    assert b"".join([*read, *pieces]) == content(tmp_path)
    assert len(list(find_messages(content(tmp_path)))) == 3


def test_a_message_of_a_maildir_cannot_become_two(tmp_path: Path) -> None:
    for name in ("cur", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "cur" / "1").write_bytes(message(1, "a\n\n" + MAIL.decode()))
    assert len(list(find_messages(content(tmp_path)))) == 1


@pytest.mark.parametrize("name", ["bomb.gz", "bomb.zip"])
def test_bombs_are_left(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    if name.endswith("zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("a.mbox", MAIL + b"\0" * (1 << 24))
        (path,) = find_archives(path).archives
    else:
        Path(path).write_bytes(bomb(1 << 24))
    with pytest.raises(TooLargeError, match="more than 250 times its size"):
        list(unpack(path, Limits(free_bytes=1 << 20)))
    with pytest.raises(TooLargeError, match="part it into several"):
        list(unpack(path, Limits(most_bytes=1 << 20)))


def test_a_bomb_in_many_small_parts_is_left_as_a_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "many.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(8):
            packed.writestr(f"{number}.mbox", MAIL + b"\0" * (15 << 20))
    with pytest.raises(TooLargeError, match=r"many\.zip unpacks to more than 250 times its size"):
        find_archives(path)


def test_packed_parts_of_a_zip_share_what_may_always_come(tmp_path: Path) -> None:
    path = str(tmp_path / "many.zip")
    with zipfile.ZipFile(path, "w") as packed:
        for number in range(4):
            packed.writestr(f"{number}.mbox.gz", bomb(12 << 20))
    for each in find_archives(path).archives:
        with pytest.raises(TooLargeError, match="more than 250 times its size"):
            content(each)


def test_a_name_in_the_wrong_code_makes_the_zip_a_broken_one(tmp_path: Path) -> None:
    path = tmp_path / "named.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("\u00e4.mbox", MAIL)
    path.write_bytes(path.read_bytes().replace("\u00e4".encode(), b"\xff\xff"))
    with pytest.raises(NotMailError, match="cannot be read as a zip file"):
        find_archives(str(path))
    with pytest.raises(NotMailError, match="broken"):
        content(f"{path}!/a.mbox")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("empty.mbox", "is empty"),
        ("no-mail.mbox", "no archive of mail"),
        ("cut.mbox.gz", "not copied whole"),
        ("broken.zip", "cannot be read as a zip file"),
    ],
)
def test_what_is_no_mail_is_refused(tmp_path: Path, name: str, why: str) -> None:
    write_folder(tmp_path)
    path = str(tmp_path / name)
    with pytest.raises(NotMailError, match=why):
        content(find_archives(path).archives[0])


def test_a_locked_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "locked.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("a.mbox", MAIL)
    locked = bytearray(path.read_bytes())
    locked[6] |= 1  # the flag of encryption, here and in the directory at the end
    locked[locked.rfind(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(locked))
    (member,) = find_archives(str(path)).archives
    with pytest.raises(NotMailError, match="password required"):
        content(member)
