"""An archive parted into slices that one commit can hold, and the threads that run through them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from headway.systems.consensus.identity import message_key, slice_id, thread_id
from headway.systems.consensus.mail.boundaries import Buffer, find_messages
from headway.systems.consensus.mail.errors import MailError, TooLargeError
from headway.systems.consensus.mail.fields import without_reply
from headway.systems.consensus.mail.reading import MOST_BYTES, Envelope, read_envelope
from headway.systems.consensus.mail.threading import find_roots

MOST_MESSAGES = 200
MOST_BYTES_OF_SLICE = 4 * 1024 * 1024
_MOST_PARTICIPANTS = 100
NO_THREAD = ""
"""Of a message that could not be read when the archive was looked through."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message lies in its archive, and in which thread."""

    start: int
    end: int
    thread_id: str


@dataclass(frozen=True, slots=True)
class Slice:
    """Messages that are parsed together."""

    slice_id: str
    places: Sequence[Place]


@dataclass(slots=True, kw_only=True)
class Thread:
    """What the headers of one archive say about a thread."""

    thread_id: str
    subject: str
    has_root: bool = False
    """Whether the message that began it is in this archive: then the subject is its own."""
    first_date: datetime | None = None
    last_date: datetime | None = None
    participants: set[str] = field(default_factory=set)
    slices: list[str] = field(default_factory=list)

    def add(self, envelope: Envelope, root: str) -> None:
        """Take a message of the thread into account."""
        if envelope.message_id == root:
            self.subject = envelope.subject
            self.has_root = True
        if envelope.date is not None:
            self.first_date = min(self.first_date or envelope.date, envelope.date)
            self.last_date = max(self.last_date or envelope.date, envelope.date)
        if len(self.participants) < _MOST_PARTICIPANTS:
            self.participants |= {envelope.sender.name or envelope.sender.email} - {""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How an archive is parsed."""

    slices: Sequence[Slice]
    threads: Sequence[Thread]
    message_count: int
    duplicate_count: int
    """Messages that were in the archive before, with the same id, date, sender and subject."""
    differing_count: int
    """Those of them whose text is another one: they are passed over like the others."""


@dataclass(frozen=True, slots=True)
class _Seen:
    start: int
    end: int
    envelope: Envelope | None
    """None if the message cannot be read; it gets a slice of its own, and is refused there."""
    text: int
    """A hash of what follows the header, line ends apart; of use only to compare two."""


def key_of(archive: str, envelope: Envelope) -> str:
    """Name a message of an archive."""
    sender = envelope.sender.email or envelope.sender.name
    return message_key(archive, envelope.message_id, envelope.date_given, sender, envelope.subject)


def plan(archive: str, mail: Buffer, *, latest: datetime) -> Plan:
    """Look through the headers of an archive, and part it."""
    seen: list[_Seen] = []
    texts: dict[str, int] = {}
    duplicates = differing = 0
    for each in _looked_through(mail, latest):
        if each.envelope is not None:
            key = key_of(archive, each.envelope)
            if key in texts:
                duplicates += 1
                differing += texts[key] != each.text
                continue
            texts[key] = each.text
        seen.append(each)
    readable = [each.envelope for each in seen if each.envelope is not None]
    roots = iter(find_roots([envelope.link() for envelope in readable]))
    rooted = [(each, next(roots) if each.envelope is not None else None) for each in seen]
    slices = list(_slices(archive, rooted))
    return Plan(
        slices=slices,
        threads=_threads(rooted, slices),
        message_count=len(seen),
        duplicate_count=duplicates,
        differing_count=differing,
    )


def _looked_through(mail: Buffer, latest: datetime) -> Iterator[_Seen]:
    for start, end in find_messages(mail):
        try:
            if end - start > MOST_BYTES:
                raise TooLargeError  # said where it is parsed; here its bytes are not even copied
            message = bytes(mail[start:end])
            envelope = read_envelope(message, latest=latest)
        except MailError:
            yield _Seen(start, end, None, 0)
        else:
            text = message.replace(b"\r\n", b"\n").partition(b"\n\n")[2]
            yield _Seen(start, end, envelope, hash(text.strip(b"\n")))


def _slices(archive: str, rooted: Iterable[tuple[_Seen, str | None]]) -> Iterator[Slice]:
    gathered: list[Place] = []
    size = 0
    for seen, root in rooted:
        if root is None:
            yield make_slice(archive, [Place(seen.start, seen.end, NO_THREAD)])
            continue
        length = seen.end - seen.start
        if gathered and (len(gathered) >= MOST_MESSAGES or size + length > MOST_BYTES_OF_SLICE):
            yield make_slice(archive, gathered)
            gathered, size = [], 0
        gathered.append(Place(seen.start, seen.end, thread_id(root)))
        size += length
    if gathered:
        yield make_slice(archive, gathered)


def make_slice(archive: str, places: Sequence[Place]) -> Slice:
    return Slice(slice_id(archive, places[0].start, places[-1].end), tuple(places))


def _threads(rooted: Iterable[tuple[_Seen, str | None]], slices: Iterable[Slice]) -> list[Thread]:
    threads: dict[str, Thread] = {}
    for seen, root in rooted:
        if root is None or seen.envelope is None:
            continue
        named = thread_id(root)
        if named not in threads:
            subject = without_reply(seen.envelope.subject)
            threads[named] = Thread(thread_id=named, subject=subject)
        threads[named].add(seen.envelope, root)
    for each in slices:
        for named in dict.fromkeys(place.thread_id for place in each.places):
            if named != NO_THREAD:
                threads[named].slices.append(each.slice_id)
    return list(threads.values())
