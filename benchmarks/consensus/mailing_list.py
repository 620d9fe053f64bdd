"""A mailing list of any length, from the words of the one that ships with the package.

The same length and seed always give the same bytes. Several threads go on at a time, people quote
one another and sign, some have nothing to add, and a few write at length.
"""

import gzip
import mailbox
import random
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from functools import cache
from io import BytesIO
from itertools import islice
from pathlib import Path

from headway.systems.consensus.sample import sample_archives

_BEGINNING = datetime(2020, 1, 6, 8, tzinfo=UTC)
_AT_A_TIME = 24
_WIDTH = 72
_NOTHING_TO_ADD = 41
"""One in so many only quotes."""
_AT_LENGTH = 67
"""One in so many is longer than a chunk."""
_LONG = range(12, 30)
_SIZES = (1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 11, 14, 19, 32)
"""How long threads get: seven messages and a half, on average."""


@dataclass(frozen=True)
class _Words:
    subjects: tuple[str, ...]
    people: tuple[str, ...]
    paragraphs: tuple[str, ...]


@dataclass
class _Thread:
    subject: str
    left: int
    written: list[tuple[str, str]] = field(default_factory=list)
    """The id and the first paragraph of each message."""


def write_list(path: Path, messages: int, *, seed: int = 7) -> Path:
    """Write an mbox of so many messages."""
    path.write_text("".join(_mails(messages, seed)), encoding="ascii")
    return path


def write_archives(folder: Path, messages: int, *, each: int, seed: int = 7) -> list[Path]:
    """Write so many messages as archives of `each`; threads go on from one to the next."""
    folder.mkdir(parents=True, exist_ok=True)
    mails = _mails(messages, seed)
    paths: list[Path] = []
    while part := "".join(islice(mails, each)):
        paths.append(folder / f"{len(paths):04}.mbox")
        paths[-1].write_text(part, encoding="ascii")
    return paths


def _mails(messages: int, seed: int) -> Iterator[str]:
    words = _words()
    dice = random.Random(seed)
    going_on: list[_Thread] = []
    moment = _BEGINNING
    for number in range(messages):
        moment += timedelta(minutes=dice.randrange(2, 150))
        if len(going_on) < _AT_A_TIME:
            subject = f"{dice.choice(words.subjects)} ({number})"
            going_on.append(_Thread(subject, dice.choice(_SIZES)))
        thread = going_on[-1] if not going_on[-1].written else dice.choice(going_on)
        mail = _mail(thread, f"<{seed}.{number}@lists.example.org>", moment, words, dice)
        yield f"From list@example.org Mon Jan  6 08:00:00 2020\n{mail}\n"
        thread.left -= 1
        if not thread.left:
            going_on.remove(thread)


def _mail(
    thread: _Thread, message_id: str, moment: datetime, words: _Words, dice: random.Random
) -> str:
    sender = dice.choice(words.people)
    fields = {
        "From": sender,
        "To": "windvane-dev@lists.example.org",
        "Date": format_datetime(moment),
        "Message-ID": message_id,
        "Subject": f"Re: {thread.subject}" if thread.written else thread.subject,
    }
    quoted = ""
    if thread.written:
        parent, said = dice.choice(thread.written)
        fields["In-Reply-To"] = parent
        fields["References"] = f"{thread.written[0][0]} {parent}"
        quoted = f"Somebody wrote:\n{textwrap.indent(said, '> ')}\n\n"
    own = _own_text(words, dice, may_be_none=bool(quoted))
    sign = f"\n-- \n{sender.partition('<')[0].strip()}\n" if dice.random() < 1 / 3 else ""
    thread.written.append((message_id, own.partition("\n\n")[0].strip() or "Nothing."))
    head = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return f"{head}\n{quoted}{own}{sign}"


def _own_text(words: _Words, dice: random.Random, *, may_be_none: bool) -> str:
    if may_be_none and not dice.randrange(_NOTHING_TO_ADD):
        return ""
    count = dice.choice(_LONG) if not dice.randrange(_AT_LENGTH) else dice.randrange(1, 6)
    return "\n\n".join(dice.choice(words.paragraphs) for _ in range(count)) + "\n"


@cache
def _words() -> _Words:
    subjects: dict[str, None] = {}
    people: dict[str, None] = {}
    paragraphs: dict[str, None] = {}
    for mail in _sample():
        subject = str(mail["Subject"])
        if subject.isascii() and not subject.lower().startswith(("re:", "=?")):
            subjects[" ".join(subject.split())] = None
        if str(mail["From"]).isascii() and "=?" not in str(mail["From"]):
            people[str(mail["From"])] = None
        for paragraph in _paragraphs(mail):
            paragraphs[paragraph] = None
    return _Words(tuple(subjects), tuple(people), tuple(paragraphs))


def _sample() -> Iterator[Message]:
    for path in sample_archives():
        packed = path.read_bytes()
        content = gzip.decompress(packed) if path.suffix == ".gz" else packed
        for part in content.split(b"\n\nFrom "):
            yield mailbox.mboxMessage(BytesIO(part.partition(b"\n")[2]))


def _paragraphs(mail: Message) -> Iterator[str]:
    if mail.get_content_type() != "text/plain" or mail["Content-Transfer-Encoding"] != "7bit":
        return
    body, _, _ = str(mail.get_payload()).partition("\n-- \n")
    for paragraph in body.split("\n\n"):
        lines = paragraph.strip().splitlines()
        if lines and len(paragraph) > _WIDTH and not any(each.startswith(">") for each in lines):
            yield "\n".join(each for each in lines if not each.startswith("From "))
