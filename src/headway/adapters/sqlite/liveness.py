"""Who takes, who is gone, and what happens to what they had taken.

Leases belong to workers, not to items: a worker that beats keeps all that it has taken, for as long
as a handler needs. It beats from a thread and a connection of its own, so that no busy loop and no
busy writer can make it look dead.

A worker is dead when its process is gone, which is seen at once on the same machine; or when it has
not beaten for a whole lease, by the watch of the one who looks. Clocks are never compared. While
the observer itself could not look, because the file was locked or the machine slept, its watch
stands still: an outage that nobody could beat through buries nobody.
"""

import sqlite3
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from headway.adapters.sqlite.connection import Connection, Location
from headway.adapters.sqlite.process import Process, this_process
from headway.adapters.sqlite.rows import seconds
from headway.adapters.sqlite.schema import open_file
from headway.adapters.sqlite.statements import as_json, json_text
from headway.adapters.sqlite.timeline import Timeline
from headway.adapters.sqlite.turnstile import Turnstile
from headway.core.errors import ConfigurationError
from headway.ports.chance import Chance
from headway.ports.clock import Clock

BEATS = 6
"""In one lease. As often it is seen whether processes have died: every 5 s of a lease of 30 s."""

_REGISTER = """
insert into headway_workers (token, machine, namespace, pid, started, since)
values (?, ?, ?, ?, ?, ?)
"""
_THERE = "select 1 from headway_workers where token = ?"
_LEAVE = "delete from headway_workers where token = ?"
_HAND_BACK = "update headway_items set token = null, begun = 0 where token = ?"
_HAND_BACK_OTHERS = """
update headway_items set token = null, begun = 0
where token = ? and id not in (select value from json_each(?))
"""
_RETURN = """
update headway_items
set token = null, returns = returns + 1, begins = begins + begun, begun = 0
where token = ?
"""
_ANNOUNCE = """
insert into headway_versions (token, queue, version, grace) values (?, ?, ?, ?)
on conflict (queue, version, token) do update set grace = excluded.grace, until = null
"""
_LAST_SEEN = "update headway_versions set until = ? + grace where token = ? and until is null"
_FORGET = "delete from headway_versions where until <= ?"
_LIVE = """
select distinct version from headway_versions
where queue = ? and (until > ? or until is null and token in (select token from headway_workers))
"""
_BEAT = "update headway_workers set beat = beat + 1 where token = ?"
_ALL = "select token, machine, namespace, pid, started, beat from headway_workers"
_SOME = """
select token, machine, namespace, pid, started from headway_workers
where token in (select value from json_each(?))
"""


class Worker:
    """This process as one that takes: the token that its deliveries bear.

    Whoever was given up for dead begins anew under another token; what it had taken is lost to it.
    """

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self.token: str | None = None
        self._versions: dict[tuple[str, str], float] = {}
        """What this worker runs: graces in seconds, by queue and version."""
        self._refusals: dict[str, str] = {}
        self._clock = clock
        self._chance = chance
        self._takings = 0

    def register(self, connection: sqlite3.Connection) -> str:
        """Give the token under which to take now, inside a write transaction."""
        if self.token is None or connection.execute(_THERE, (self.token,)).fetchone() is None:
            self.token = self._chance.token()
            me = this_process()
            since = seconds(self._clock.now())
            row = (self.token, me.machine, me.namespace, me.pid, me.started, since)
            connection.execute(_REGISTER, row)
            self._show_versions(connection, self.token)
        return self.token

    def announce(
        self,
        connection: sqlite3.Connection,
        version: str,
        queues: Sequence[str],
        grace: timedelta,
        at: float,
    ) -> None:
        """Show which version takes from some queues, inside a write transaction."""
        self._versions |= {(queue, version): grace.total_seconds() for queue in queues}
        refusal = json_text.encode({"version": version})[1:-1].decode()
        self._refusals |= dict.fromkeys(queues, refusal)
        connection.execute(_FORGET, (at,))
        self._show_versions(connection, self.register(connection))

    def refusal_of(self, queue: str) -> str:
        """Give the text by which a refusal by the version that runs here is found in its column."""
        return self._refusals.get(queue, "no version")

    def _show_versions(self, connection: sqlite3.Connection, token: str) -> None:
        rows = [(token, *named, grace) for named, grace in self._versions.items()]
        connection.executemany(_ANNOUNCE, rows)

    def next_taking(self) -> int:
        """Number a taking: a receipt of an earlier one cannot settle what was taken again."""
        self._takings += 1
        return self._takings

    def hand_back_others(self, connection: sqlite3.Connection, keep: Sequence[int]) -> None:
        """Hand back what is taken, but for some: others return these when this process is gone."""
        connection.execute(_HAND_BACK_OTHERS, (self.token, as_json(keep)))

    def leave(self, connection: sqlite3.Connection, at: float) -> None:
        """Hand back what is still taken, and be no worker any more."""
        connection.execute(_HAND_BACK, (self.token,))
        connection.execute(_LAST_SEEN, (at, self.token))
        connection.execute(_LEAVE, (self.token,))


def live_versions(connection: sqlite3.Connection, queue: str, at: float) -> set[str]:
    """Name the versions that take from a queue and were alive within their grace."""
    return {version for (version,) in connection.execute(_LIVE, (queue, at))}


def dead_among(
    connection: sqlite3.Connection, tokens: Collection[str]
) -> tuple[set[str], set[str]]:
    """Give the tokens whose processes are dead, and those that are not registered any more."""
    me = this_process()
    rows = connection.execute(_SOME, (as_json(list(tokens)),)).fetchall()
    dead = {
        token
        for token, machine, namespace, pid, started in rows
        if Process(machine=machine, namespace=namespace, pid=pid, started=started).is_gone(me)
    }
    return dead, set(tokens) - {row[0] for row in rows}


@dataclass(slots=True)
class _Watch:
    """How long one worker has been silent."""

    beat: int
    silent: timedelta = field(default_factory=timedelta)


class Liveness:
    """Beats for its worker and buries the dead, in rounds."""

    def __init__(
        self,
        location: Location,
        worker: Worker,
        clock: Clock,
        time: Timeline,
        *,
        lease: timedelta,
    ) -> None:
        self._location = location
        self._time = time
        self._worker = worker
        self._clock = clock
        self._lease = lease
        self._every = lease / BEATS
        self._turnstile = Turnstile(location)
        self._connection: Connection | None = None
        self._watches: dict[str, _Watch] = {}
        self._looked: float | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headway-heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Beat no more, as if the process had died."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._let_go()
            self._turnstile.close()

    def look(self) -> int:
        """Beat, and return what the dead had taken; say how many of them there were."""
        return self._round(None)

    def bury(self, pid: int) -> int:
        """Return what a process of this machine had taken, now that it is known to have ended."""
        return self._round(pid)

    def _run(self) -> None:
        while not self._stop.wait(self._every.total_seconds()):
            # The next round tries again; meanwhile our watch stands still, and so does everybody's.
            with suppress(sqlite3.Error, OSError, ConfigurationError):
                self.look()

    def _round(self, pid: int | None) -> int:
        with self._lock, self._turnstile:
            try:
                connection = self._connected()
                connection.execute("begin immediate")
                connection.execute(_BEAT, (self._worker.token,))
                dead = self._dead(connection, pid)
                for token in dead:
                    connection.execute(_RETURN, (token,))
                    connection.execute(_LAST_SEEN, (self._time.moment().at, token))
                    connection.execute(_LEAVE, (token,))
                connection.execute("commit")
            except BaseException:
                self._let_go()
                raise
            return len(dead)

    def _dead(self, connection: sqlite3.Connection, pid: int | None) -> list[str]:
        me = this_process()
        now = self._clock.read().steady
        passed = timedelta(seconds=0.0 if self._looked is None else now - self._looked)
        self._looked = now
        passed = min(passed, 2 * self._every)
        watches, dead = {}, []
        for token, machine, namespace, its_pid, started, beat in connection.execute(_ALL):
            if token == self._worker.token:
                continue
            watch = self._watches.get(token)
            if watch is None or watch.beat != beat:
                watch = _Watch(beat)
            else:
                watch.silent += passed
            watches[token] = watch
            its = Process(machine=machine, namespace=namespace, pid=its_pid, started=started)
            if pid is None:
                is_dead = its.is_gone(me) or watch.silent >= self._lease
            else:
                is_dead = its_pid == pid and its.is_gone(me)
            if is_dead:
                dead.append(token)
        self._watches = watches
        return dead

    def _connected(self) -> Connection:
        if self._connection is None:
            # A beat has to be seen, not to outlive a power cut.
            self._connection = open_file(self._location, synchronous="normal")
        else:
            self._location.check(self._connection)
        return self._connection

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
