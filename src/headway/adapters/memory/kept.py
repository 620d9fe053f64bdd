"""What the memory engine keeps beside events and documents."""

from dataclasses import dataclass
from datetime import datetime

from headway.ports.records import DoneRecord


@dataclass(slots=True)
class Kept:
    """A done-record, the letter that it is about if it failed, and which generation ended."""

    record: DoneRecord
    letter_id: str
    generation: str


@dataclass(slots=True)
class Forgotten:
    """Of finished work whose records are gone, only the numbers are left."""

    done: int = 0
    purged: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A lease by name: whose it is, and until when."""

    token: str
    until: datetime
