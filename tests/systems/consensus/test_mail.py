"""Mail as people and programs write it, read by ingestion and parsing."""

import asyncio
import gzip
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.systems.consensus.archives import World
from tests.systems.consensus.hostile import (
    EMPTY,
    PLAIN,
    POSTMARK,
    READABLE,
    bomb,
    mbox,
    message,
    nested,
    write_folder,
)

MAIL = mbox(message(1), message(2))


async def test_what_people_wrote_is_read_however_broken_it_is(world: World) -> None:
    texts = {
        raw.removeprefix(POSTMARK): text for raw, text in READABLE.values() if b"\r" not in raw
    }
    texts |= dict.fromkeys(EMPTY.values(), "")
    await world.ingest("a.mbox", mbox(*texts))
    found = await world.messages()
    assert len(found) == len(texts)
    for each, text in zip(found, texts.values(), strict=True):
        assert text in each["body_normalized"] if text else not each["body_normalized"]


HEADERS = [
    (b"Subject: =?utf-8?B?w5xiZXI=?= =?utf-8?q?_alles?=", "subject", "Über alles"),
    (b"Subject: =?utf-8?B?4pg=?=\n =?utf-8?B?gg==?= wet", "subject", "☂ wet"),
    (b"Subject: =?x-moon?q?caf=E9?=", "subject", "café"),
    (b"Subject: =?utf-8?x?no?= =?utf-8", "subject", "=?utf-8?x?no?= =?utf-8"),
    (b"Subject: a\n\tb\n  c", "subject", "a b c"),
    (b'From: "Bee, Ann" <ann@x.org>', "from", {"name": "Bee, Ann", "email": "ann@x.org"}),
    (b"From: ann at x.org (Ann)", "from", {"name": "Ann", "email": "ann@x.org"}),
    (b"From: =?iso-8859-1?q?J=F6rg?= <j@x.org", "from", {"name": "Jörg", "email": "j@x.org"}),
    (b"Date: Mon, 5 Jan 2026 10:00:00 +0100", "date", "2026-01-05T09:00:00+00:00"),
    (b"Date: 2026-01-05T10:00:00Z", "date", "2026-01-05T10:00:00+00:00"),
    (
        b"Date: Mon, 99 Foo 99999\nReceived: from x by y; Tue, 5 Jan 1999 10:00:00 +0000",
        "date",
        "1999-01-05T10:00:00+00:00",
    ),
]


async def test_the_fields_of_a_message_are_read(world: World) -> None:
    raws = [head + b"\nX-Number: %d\n\n." % number for number, (head, _, _) in enumerate(HEADERS)]
    await world.ingest("a.mbox", mbox(*raws))
    found = await world.messages()
    assert [each[name] for each, (_, name, _) in zip(found, HEADERS, strict=True)] == [
        value for _, _, value in HEADERS
    ]


LATE = "On Mon, 5 Jan 2026 at 10:00, Ann Bee <ann@example.org> wrote:"
OLD = "-----Original Message-----\nFrom: Ann\nSent: Monday\n\nold words"
LIST = "_" * 40 + "\npumps mailing list\npumps@example.org"
QUOTED = [
    ("all new", ("all new", "", "")),
    (f"Yes.\n\n{LATE}\n> Shall we?", ("Yes.", f"{LATE}\n> Shall we?", "")),
    ("> one?\nyes\n> two?\nno", ("yes\nno", "> one?\n> two?", "")),
    ("text\n-- \nBob\n> old", ("text", "> old", "Bob")),
    (f"Fine.\n\n{OLD}", ("Fine.", OLD, "")),
    (f"text\n{LIST}", ("text", "", LIST)),
    ("Ann said that:\n\nit works", ("Ann said that:\n\nit works", "", "")),
]


async def test_own_words_are_told_from_quoted_ones_and_from_the_signature(world: World) -> None:
    await world.ingest("a.mbox", mbox(*(message(n, text) for n, (text, _) in enumerate(QUOTED))))
    found = [
        (each["body_normalized"], each["quoted"], each["signature"])
        for each in await world.messages()
    ]
    assert found == [parts for _, parts in QUOTED]


@pytest.mark.parametrize("kind", ["text/html", "text/plain; format=flowed"])
async def test_hostile_texts_take_no_longer_than_others(world: World, kind: str) -> None:
    """With html.parser some of these took minutes: the timeout of the suite is the test."""
    pieces = ("<", "<a ", "<!--", "<![CDATA[", "</", "<script>", "&", "<a b='", "<?", ">\n")
    texts = [each * (300_000 // len(each)) for each in pieces]
    raws = [message(n, text, Content_Type=kind) for n, text in enumerate(texts)]
    parts = b"From: a@b\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 50_000
    long = b"Subject: s\n" + b"X-Trace: a\n b\n" * 22_000 + b"To: b@b.example\n\nHello.\n"
    await world.ingest("a.mbox", mbox(*raws, parts, nested(20_000), long))
    *_, many, deep, last = [each["body_normalized"] for each in await world.messages()]
    assert (many.count("x"), deep, last) == (500, "", "Hello.")


async def test_a_message_of_any_size_is_not_read(world: World) -> None:
    await world.ingest("a.mbox", mbox(message(1), PLAIN + b"x" * 26_500_000))
    assert len(await world.messages()) == 1
    (letter,) = await world.trial.letters("parsing.failed")
    assert letter.error_type == "TooLargeError"


_PIECES = st.sampled_from(
    [
        *(raw for raw, _ in list(READABLE.values())[:20]),
        b"\nContent-Type: multipart/mixed; boundary=b\n\n",
        *(b"--b\n", b"--b--\n", b"\n\n", b"=?utf-8?b?4pi", b"?=", b"> ", b"-- \n", POSTMARK),
        *(b"Content-Type: text/html\n\n<p <!-- <script", b"Subject: ", b"Date: ", b"\0", b"\xff"),
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(_PIECES, st.binary(max_size=40)), max_size=12).map(b"".join))
def test_any_bytes_are_stored_or_refused(raw: bytes) -> None:
    async def ingested(folder: str) -> tuple[list[Any], int]:
        world = World(Path(folder))
        await world.ingest("a.mbox", POSTMARK + raw)
        letters = await world.trial.letters("parsing.failed")
        assert {each.error_type for each in letters} <= {"UnreadableMailError"}
        return await world.messages(), len(letters) + len(await world.refused())

    with tempfile.TemporaryDirectory() as folder:
        messages, refused = asyncio.run(ingested(folder))
    assert messages or refused
    for each in messages:
        whole = "\n".join([each["body_normalized"], each["quoted"], each["subject"]])
        assert "\0" not in whole
        assert "\r" not in whole


POSTMARKS = [
    b"From ann@example.org Mon Jan  5 10:00:00 2026",
    b"From ann at example.org  Mon Jan  5 10:00:00 2026",
    b"From - Mon Jan 05 10:00:00 2026",
    b"From 1234567890@xxx Mon Jan 05 10:00:00 +0000 2026",
    b"From ann@example.org Mon, 5 Jan 2026 10:00:00 +0100",
    b"From ann@example.org",
]
NO_POSTMARKS = [
    b"From here on it is text",
    b"\nFrom Monday on we meet at 10:00",
    b"\nFrom the year 2026 on:\nSubject: to change",
    b"\n>From ann@example.org Mon Jan  5 10:00:00 2026\nSubject: quoted",
    b"\nFrom the minutes of Mon Jan  5 10:00:00 2026\nwe quote",
]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
async def test_messages_begin_at_postmarks_and_nowhere_else(world: World, end: bytes) -> None:
    lines = []
    for postmark in POSTMARKS:
        lines += [postmark, b"Subject: a", b"X: " + postmark, b"", b"text", b""]
    lines += [POSTMARKS[0], b"Subject: b", b"", b"begin", *NO_POSTMARKS, b"end", b""]
    await world.ingest("a.mbox", b"\n".join(lines).replace(b"\n", end))
    found = await world.messages()
    assert len(found) == len(POSTMARKS) + 1
    assert found[-1]["body_normalized"].startswith("begin\nFrom here on")


def linked(number: int, subject: str, references: str = "") -> bytes:
    return message(number, Subject=subject, References=references)


THREADS = {
    "by their references": (
        [linked(1, "Pumps"), linked(2, "Re: Pumps", "<m1@example.org>"),
         linked(3, "another subject", "<m2@example.org>"), linked(4, "Valves")],
        "aaab",
    ),
    "of a message that is not there": (
        [linked(1, "x", "<gone@x> <m9@x>"), linked(2, "y", "<m9@x>")],
        "aa",
    ),
    "in a ring": (
        [linked(1, "", "<m3@example.org>"), linked(2, "", "<m1@example.org>"),
         linked(3, "", "<m2@example.org>")],
        "aaa",
    ),
    "by their subject": (
        [linked(1, "[dev] Agenda"), linked(2, "Re: [dev] agenda"), linked(3, "Agenda"),
         linked(4, "AW: Agenda"), linked(5, "hi"), linked(6, "Re: hi")],
        "aabbcd",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", THREADS)
async def test_messages_that_belong_together_are_one_thread(world: World, how: str) -> None:
    raws, expected = THREADS[how]
    await world.ingest("a.mbox", mbox(*raws))
    threads = [each["thread_id"] for each in await world.messages()]
    names = dict(zip(dict.fromkeys(threads), "abcdef", strict=False))
    assert "".join(names[each] for each in threads) == expected


async def test_a_maildir_is_the_same_archive_after_a_program_has_read_it(world: World) -> None:
    write_folder(world.folder / "mail")
    maildir = world.folder / "mail" / "maildir"
    await world.submit(maildir)
    assert len(await world.messages()) == 5
    unread = next((maildir / "new").iterdir())
    unread.rename(maildir / "cur" / f"{unread.name}:2,RS")
    await world.submit(maildir)
    assert len(await world.trial.documents("archives")) == 1


def _zip(path: Path, parts: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    return path.read_bytes()


def _locked(packed: bytes) -> bytes:
    locked = bytearray(packed)
    locked[6] |= 1  # the flag of encryption, here and in the directory at the end
    locked[locked.rfind(b"PK\x01\x02") + 8] |= 1
    return bytes(locked)


async def test_archives_that_would_harm_us_are_refused(world: World) -> None:
    zeros = MAIL + b"\0" * (15 << 20)
    some = world.folder / "some.zip"
    await world.ingest("many.zip", _zip(some, {f"{n}.mbox": zeros for n in range(8)}))
    await world.ingest("packed.zip", _zip(some, {f"{n}.mbox.gz": bomb(12 << 20) for n in range(2)}))
    assert set(await world.refused()) == {"TooLargeError"}
    refused = len(await world.refused())
    await world.ingest("locked.zip", _locked(_zip(some, {"a.mbox": MAIL})))
    named = _zip(some, {"\u00e4.mbox": MAIL}).replace("\u00e4".encode(), b"\xff\xff")
    await world.ingest("named.zip", named)
    os.mkfifo(world.folder / "pipe")
    await world.submit(world.folder / "pipe")
    assert (await world.refused())[refused:] == ["NotMailError"] * 3
    assert await world.trial.documents("archives") == []


async def test_packed_mail_is_the_same_mail_and_links_in_a_ring_end(world: World) -> None:
    folder = world.folder / "mail"
    folder.mkdir()
    (folder / "ring").symlink_to(folder)
    (folder / "a.mbox").write_bytes(MAIL)
    (folder / "a.mbox.gz").write_bytes(gzip.compress(MAIL))
    _zip(folder / "a.zip", {"../../etc/a.mbox": MAIL, "b.mbox.gz": gzip.compress(MAIL)})
    await world.submit(folder)
    assert await world.refused() == []
    assert len(await world.trial.documents("archives")) == 1
    assert len(await world.messages()) == 2
