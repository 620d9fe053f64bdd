"""The engine on one SQLite file: every port, and one commit for everything."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from headway.adapters.sqlite.bell import Bell
from headway.adapters.sqlite.bus import SqliteBus
from headway.adapters.sqlite.commit import SqliteFinisher
from headway.adapters.sqlite.connection import Location
from headway.adapters.sqlite.documents import SqliteDocuments
from headway.adapters.sqlite.history import SqliteHistory
from headway.adapters.sqlite.letters import SqliteLetters
from headway.adapters.sqlite.liveness import Liveness, Worker
from headway.adapters.sqlite.places import SqlitePlaces
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.records import SqliteRecords
from headway.adapters.sqlite.sweeping import sqlite_sweeping
from headway.adapters.sqlite.timeline import Timeline
from headway.adapters.sqlite.unrouted import SqliteUnrouted
from headway.adapters.sqlite.writer import Writer
from headway.core.errors import ConfigurationError
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteEngine(Engine):
    """An engine whose bus can be told of the dead."""

    bus: SqliteBus


def sqlite_engine(
    path: str | Path,
    clock: Clock,
    chance: Chance,
    *,
    lease: timedelta = timedelta(seconds=30),
    synchronous: str = "full",
    busy: timedelta = timedelta(seconds=30),
) -> SqliteEngine:
    """Give the engine of one worker process; the file is opened when it is first needed.

    `lease`: how long a worker may be silent before it is given up; it beats six times in that time.
    `bus.close` lets go of all ports, whether or not the bus was opened.
    """
    if lease <= timedelta():
        raise ConfigurationError(f"lease={lease} is not accepted: use more than no time")
    time = Timeline(clock)
    location = Location(path=Path(path), synchronous=synchronous, busy=busy, time=time)
    writer, readers = Writer(location), Readers(location)
    bell, worker = Bell(location, clock), Worker(clock, chance)
    bus = SqliteBus(
        writer=writer,
        readers=readers,
        bell=bell,
        worker=worker,
        liveness=Liveness(location, worker, clock, time, lease=lease),
        time=time,
    )
    return SqliteEngine(
        bus=bus,
        finisher=SqliteFinisher(writer, bell, time),
        letters=SqliteLetters(writer, readers, bell, time),
        records=SqliteRecords(writer, readers, time),
        documents=SqliteDocuments(writer, readers),
        places=SqlitePlaces(readers, time),
        unrouted=SqliteUnrouted(writer, readers, bell, time),
        history=SqliteHistory(writer, readers),
        sweeping=sqlite_sweeping(writer, readers, time),
    )
