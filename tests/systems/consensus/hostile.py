"""Mail as it comes, and worse: messages, archives and a folder of them, for any test to read."""

import gzip
import io
import zipfile
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from pathlib import Path

POSTMARK = b"From ann@example.org Mon Jan  5 10:00:00 2026\n"
PLAIN = (
    b"From: Ann <ann@example.org>\nTo: list@example.org\nSubject: Pumps\n"
    b"Date: Mon, 5 Jan 2026 10:00:00 +0100\nMessage-ID: <pumps@example.org>\n\nThe pump runs.\n"
)


def message(number: int, text: str = "", **fields: str) -> bytes:
    """Make a plain message; fields go before the usual ones, and `None` is written as nothing."""
    usual = {
        "From": f"Person {number % 7} <p{number % 7}@example.org>",
        "To": "list@example.org",
        "Subject": f"Topic {number}",
        "Date": f"Mon, 5 Jan 2026 10:{number % 60:02}:00 +0000",
        "Message-ID": f"<m{number}@example.org>",
    }
    named = {key.replace("_", "-"): value for key, value in fields.items()}
    head = "".join(f"{key}: {value}\n" for key, value in {**usual, **named}.items() if value)
    return f"{head}\n{text or f'Text number {number}.'}\n".encode()


def mbox(*messages: bytes, end: bytes = b"\n") -> bytes:
    """Put messages into one mbox."""
    text = b"".join(POSTMARK + each.rstrip(b"\n") + b"\n\n" for each in messages)
    return text if end == b"\n" else text.replace(b"\n", end)


def _multipart(kind: str, *parts: bytes, boundary: str = "cut", end: str = "--cut--\n") -> bytes:
    body = b"".join(f"--{boundary}\n".encode() + part + b"\n" for part in parts)
    head = f'Subject: parts\nFrom: a@b.org\nContent-Type: {kind}; boundary="{boundary}"\n\n'
    return head.encode() + body + end.encode()


def nested(depth: int) -> bytes:
    """Make a message whose parts lie in one another so often."""
    heads = "".join(
        f"Content-Type: multipart/mixed; boundary=b{level}\n\n--b{level}\n"
        for level in range(depth)
    )
    return f"Subject: deep\nFrom: a@b.org\n{heads}\nat the bottom\n".encode()


def _text_part(text: str, kind: str = "text/plain", more: str = "") -> bytes:
    return f"Content-Type: {kind}\n{more}\n{text}".encode()


READABLE: dict[str, tuple[bytes, str]] = {
    # name: the message, and what must be in its text
    "plain": (PLAIN, "The pump runs."),
    "crlf": (PLAIN.replace(b"\n", b"\r\n"), "The pump runs."),
    "cr only": (PLAIN.replace(b"\n", b"\r"), "The pump runs."),
    "junk in the header": (b"Subject: x\nno header here\nTo: y@z\n\nwritten", "written"),
    "no empty line": (b"Subject: x\nFrom: y@z\nthe text begins at once\nand goes on", "at once"),
    "utf-8 said to be ascii": (
        "From: a@b\nContent-Type: text/plain; charset=us-ascii\n\ncafé".encode(),
        "café",
    ),
    "unknown charset": (b"From: a@b\nContent-Type: text/plain; charset=x-moon\n\ncaf\xe9", "café"),
    "charset that is none": (b"From: a@b\nContent-Type: text/plain; charset=zip\n\nabc", "abc"),
    "charset that is slow": (
        b"From: a@b\nContent-Type: text/plain; charset=punycode\n\nabc-" + b"a" * 9_000,
        "abc",
    ),
    "cut in a letter": (
        "From: a@b\nContent-Type: text/plain; charset=utf-8\n\nnaïve ☂".encode()[:-1],
        "naïve",
    ),
    "shift_jis": (
        b"From: a@b\nContent-Type: text/plain; charset=Shift_JIS\n\n" + "気象".encode("cp932"),
        "気象",
    ),
    "utf-7 with half a letter": (
        b"From: a@b\nContent-Type: text/plain; charset=utf-7\n\nx +2AA- y",
        "x",
    ),
    "nuls": (b"From: a@b\n\nbe\0fore\0", "before"),
    "quoted-printable cut off": (
        b"From: a@b\nContent-Transfer-Encoding: quoted-printable\n\ngr=C3=BC=C3=9Fe=\n =4",
        "grüße",
    ),
    "base64 cut off": (
        b"From: a@b\nContent-Transfer-Encoding: base64\n\n" + b64encode(b"half a text, cut")[:-3],
        "half a text",
    ),
    "base64 with a footer": (
        b"From: a@b\nContent-Transfer-Encoding: base64\n\n"
        + b64encode(b"all of it")
        + b"=\n\n_______\nlist footer, in plain text",
        "all of it",
    ),
    "parts": (_multipart("multipart/mixed", _text_part("one"), _text_part("two")), "two"),
    "no last boundary": (_multipart("multipart/mixed", _text_part("open"), end=""), "open"),
    "alternative": (
        _multipart(
            "multipart/alternative", _text_part("plain one"), _text_part("<b>x</b>", "text/html")
        ),
        "plain one",
    ),
    "html only": (
        b"From: a@b\nContent-Type: text/html\n\n<style>p{}</style><p>seen<script>alert(1)</script>",
        "seen",
    ),
    "boundary not said": (
        b"From: a@b\nContent-Type: multipart/mixed\n\n--q\nContent-Type: text/plain\n\nguessed\n",
        "guessed",
    ),
    "boundary that is nowhere": (
        b"From: a@b\nContent-Type: multipart/mixed; boundary=zz\n\njust text",
        "just text",
    ),
    "enclosed message": (
        _multipart("multipart/mixed", b"Content-Type: message/rfc822\n\n" + PLAIN),
        "The pump runs.",
    ),
    "content type that is none": (b"From: a@b\nContent-Type: ;;;=\"'\n\nstill text", "still text"),
    "broken rfc 2231": (
        b"From: a@b\nContent-Type: text/plain; charset*=moon'x'%FF%\n\nstill text",
        "still text",
    ),
    "flowed": (
        b"From: a@b\nContent-Type: text/plain; format=flowed\n\none \nline\n",
        "one line",
    ),
    "quoted postmark": (POSTMARK + b"From: a@b\n\n>From here on\n", "From here on"),
    "no fields but one": (b"Subject: lonely\n\ntext", "text"),
    "comments within comments": (b"From: " + b"(" * 9_000 + b"\nSubject: x\n\ntext", "text"),
    "thousand fields": (b"X-A: b\n" * 3_000 + b"Subject: x\n\ntext", "text"),
}
EMPTY: dict[str, bytes] = {
    # they can be read, and have nothing to say
    "nothing": b"Subject: x\nFrom: a@b\n\n",
    "too deep": nested(3_000),
    "only an attachment": _multipart(
        "multipart/mixed",
        _text_part("secret", more="Content-Disposition: attachment; filename=a.txt\n"),
        b"Content-Type: application/pdf\nContent-Transfer-Encoding: base64\n\nAAAA",
    ),
    "only quoted": b"Subject: Re: x\nFrom: a@b\n\n> all\n> of it\n",
    "base64 of nothing": b"From: a@b\nContent-Transfer-Encoding: base64\n\n!!!",
}
UNREADABLE: dict[str, bytes] = {
    "only nuls": b"\0" * 500,
    "no header": b"this is no message at all\n\nreally\n",
    "one word": b"x",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A folder of archives, and what must come of it."""

    folder: Path
    readable: int
    """Messages that must be processed."""
    unreadable: int
    """Messages that must end as letters, each alone."""
    refused: int
    """Files that must end as letters."""


def write_folder(folder: Path) -> Hostile:
    """Write archives of every kind, good and bad; the good ones have no message in common."""
    folder.mkdir(parents=True, exist_ok=True)
    strange = [raw.removeprefix(POSTMARK) for raw, _ in READABLE.values()]
    strange = [each.replace(b"\r\n", b"\n").replace(b"\r", b"\n") for each in strange]
    strange += EMPTY.values()
    distinct = dict.fromkeys(strange)  # the plain one is there three times, with other line ends
    (folder / "strange.mbox").write_bytes(mbox(*distinct))
    (folder / "with-unreadable.mbox").write_bytes(
        mbox(message(1), *UNREADABLE.values(), message(2))
    )
    (folder / "crlf.mbox").write_bytes(mbox(*map(message, range(10, 20)), end=b"\r\n"))
    (folder / "packed.mbox.gz").write_bytes(gzip.compress(mbox(*map(message, range(20, 30)))))
    with zipfile.ZipFile(folder / "several.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("../../outside.mbox", mbox(*map(message, range(30, 35))))
        packed.writestr("inner/b.mbox", mbox(*map(message, range(35, 40))))
        packed.writestr("inner/readme.txt", "no mail")
    _write_maildir(folder / "maildir", [message(number) for number in range(40, 45)])
    (folder / "single.eml").write_bytes(message(50))
    (folder / "notes.txt").write_text("nothing to do with mail\n")
    return Hostile(
        folder=folder,
        readable=len(distinct) + 2 + 10 + 10 + 10 + 5 + 1,
        unreadable=len(UNREADABLE),
        refused=_write_broken(folder),
    )


def _write_maildir(folder: Path, messages: list[bytes]) -> None:
    for name in ("cur", "new", "tmp"):
        (folder / name).mkdir(parents=True)
    for number, each in enumerate(messages):
        inner, flags = ("cur", ":2,S") if number % 2 else ("new", "")
        (folder / inner / f"17000{number}.host{flags}").write_bytes(each)


def _write_broken(folder: Path) -> int:
    broken = {
        "empty.mbox": b"",
        "no-mail.mbox": b"\x89PNG\r\n\x1a\n" * 10,
        "cut.mbox.gz": gzip.compress(mbox(*map(message, range(60, 90))))[:-20],
        "broken.zip": b"PK\x03\x04 and then nothing",
        "bomb.gz": bomb(24 * 1024 * 1024),
    }
    for name, content in broken.items():
        (folder / name).write_bytes(content)
    return len(broken)


@cache
def bomb(size: int) -> bytes:
    """Make a gz file of mail that unpacks to so many bytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6) as file:
        file.write(mbox(PLAIN))
        for _ in range(size // (1 << 20)):
            file.write(b"\0" * (1 << 20))
    return packed.getvalue()
