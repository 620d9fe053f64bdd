"""Sequences in the one file: the core's own machine, inside a transaction."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from headway.adapters.sqlite.connection import Location
from headway.adapters.sqlite.history import SqliteHistory
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.rows import instant
from headway.adapters.sqlite.sequence_rows import (
    Needed,
    as_bytes,
    forget,
    load,
    payload_of,
    save,
    take_due,
)
from headway.adapters.sqlite.timeline import Timeline
from headway.adapters.sqlite.writer import Writer
from headway.core.sequence import Sequencer
from headway.core.sequence_answers import (
    Completed,
    Completion,
    Look,
    Looked,
    Offer,
    Offered,
    Outcome,
    Turn,
)
from headway.core.sequence_settings import DEFAULT_NAME, SequenceSettings
from headway.core.sequence_state import KeyState, PartlyLoadedError
from headway.ports.clock import Clock
from headway.ports.history import History
from headway.ports.sequences import HeldResult, Reading, UnreadableKeyError

T = TypeVar("T")
_LOG = logging.getLogger("headway")
A = TypeVar("A", Offered, Completed, Looked)
_LITTLE = Needed()
Q = TypeVar("Q", Offer, Look)
Step = Callable[[KeyState, datetime], tuple[KeyState, T]]

_FIRST_HELD = """
select position, payload from headway_held where family = ? and key = ? order by position limit ?
"""
_COUNT = "select count(*) from headway_sequences where family = ? and due is not null"
_WAITING = """
select key from headway_sequences where family = ? and due is not null order by due, key limit ?
"""
_NAMES = """
with recursive names(name) as (
    select min(family) from headway_sequences
    union all
    select (select min(family) from headway_sequences where family > name)
    from names where name is not null
)
select name from names where name is not null
"""  # from one to the next: a `distinct` would visit every key


class SqliteSequences:
    """The sequences of one family, as one process sees them."""

    def __init__(
        self,
        writer: Writer,
        readers: Readers,
        time: Timeline,
        settings: SequenceSettings,
        family: str,
    ) -> None:
        self.settings = settings
        self._machine = Sequencer(settings)
        self._writer = writer
        self._readers = readers
        self._time = time
        self.family = family
        self.history: History = SqliteHistory(writer, readers)

    async def offer(self, offers: Sequence[Offer]) -> Sequence[Offered]:
        def offered(connection: sqlite3.Connection, offer: Offer) -> Offered:
            def step(state: KeyState, now: datetime) -> tuple[KeyState, Offered]:
                return self._machine.offer(state, self._by_file_time(offer), now)

            def decided() -> Offered:
                needed = Needed(offer.position, up_to=offer.applied)
                answer = self._step(connection, offer.key, step, needed, offer.payload)
                return self._filled(connection, answer)

            return _by_itself(decided, Offered(Outcome.UNREADABLE))

        return await self._writer.run(lambda c: [offered(c, offer) for offer in offers])

    async def complete(self, done: Sequence[Completion]) -> Sequence[Completed]:
        def completed(connection: sqlite3.Connection, each: Completion) -> Completed:
            def step(state: KeyState, now: datetime) -> tuple[KeyState, Completed]:
                return self._machine.complete(state, each, now)

            def decided() -> Completed:
                needed = Needed(up_to=each.position)
                return self._filled(connection, self._step(connection, each.key, step, needed))

            return _by_itself(decided, Completed(accepted=False))

        return await self._writer.run(lambda c: [completed(c, each) for each in done])

    async def look(self, looks: Sequence[Look]) -> Sequence[Looked]:
        def looked(connection: sqlite3.Connection, look: Look) -> Looked:
            def step(state: KeyState, now: datetime) -> tuple[KeyState, Looked]:
                return self._machine.expire(state, self._by_file_time(look), now)

            def decided() -> Looked:
                return self._filled(connection, self._step(connection, look.key, step))

            return _by_itself(decided, Looked())

        return await self._writer.run(lambda c: [looked(c, look) for look in looks])

    async def due(self, limit: int) -> Sequence[str]:
        def taken(connection: sqlite3.Connection) -> Sequence[str]:
            now = self._now()
            return take_due(connection, self.family, limit, now, now + self.settings.lease)

        return await self._writer.run(taken)

    async def give_back(self, offer: Offer, delay: timedelta | None = None) -> timedelta | None:
        def step(state: KeyState, now: datetime) -> tuple[KeyState, timedelta | None]:
            return self._machine.give_back(state, self._by_file_time(offer), now, delay)

        def given_back(connection: sqlite3.Connection) -> timedelta | None:
            needed = Needed(offer.position)
            decided = partial(self._step, connection, offer.key, step, needed, offer.payload)
            return _by_itself(decided, None)

        return await self._writer.run(given_back)

    async def renew(self, work: Turn) -> bool:
        done = Completion(work.key, work.position, work.token)

        def step(state: KeyState, now: datetime) -> tuple[KeyState, bool]:
            return self._machine.renew(state, done, now)

        def renewed(connection: sqlite3.Connection) -> bool:
            return _by_itself(partial(self._step, connection, work.key, step), otherwise=False)

        return await self._writer.run(renewed)

    async def read(self, key: str) -> Reading:
        def read(connection: sqlite3.Connection) -> Reading:
            moment = self._time.moment()
            state = load(connection, self.family, key)
            return Reading(key, state.shifted(timedelta(seconds=-moment.ahead)), moment.now)

        return await self._readers.run(read)

    async def held(self, key: str, limit: int) -> Sequence[HeldResult]:
        values = (self.family, key, limit)
        rows = await self._readers.run(lambda c: c.execute(_FIRST_HELD, values).fetchall())
        return [HeldResult(position, as_bytes(payload)) for position, payload in rows]

    async def waiting(self, limit: int) -> tuple[int, Sequence[str]]:
        def waiting(connection: sqlite3.Connection) -> tuple[int, Sequence[str]]:
            (count,) = connection.execute(_COUNT, (self.family,)).fetchone()
            rows = connection.execute(_WAITING, (self.family, limit)).fetchall()
            return int(count), [key for (key,) in rows]

        return await self._readers.run(waiting)

    async def families(self) -> Sequence[str] | None:
        rows = await self._readers.run(lambda c: c.execute(_NAMES).fetchall())
        return [name for (name,) in rows]

    async def drain(self, key: str) -> bool:
        def step(state: KeyState, _now: datetime) -> tuple[KeyState, bool]:
            return self._machine.drain(state), bool(state.held)

        return await self._writer.run(lambda c: self._step(c, key, step))

    async def forget(self, key: str) -> int:
        return await self._writer.run(lambda c: forget(c, self.family, key))

    async def close(self) -> None:
        await asyncio.to_thread(self._let_go)

    def _now(self) -> datetime:
        """Give the time of the file, by which all of a key's times go."""
        return instant(self._time.moment().at)

    def _by_file_time(self, asked: Q) -> Q:
        if asked.caught_up is None:
            return asked
        at = self._time.moment().stored(asked.caught_up)
        return replace(asked, caught_up=instant(at))

    def _let_go(self) -> None:
        self._writer.close()
        self._readers.close()

    def _step(
        self,
        connection: sqlite3.Connection,
        key: str,
        step: Step[T],
        needed: Needed = _LITTLE,
        payload: bytes = b"",
    ) -> T:
        now = self._now()  # not before it is our turn: that may take a while
        before = load(connection, self.family, key, needed)
        try:
            after, answer = step(before, now)
        except PartlyLoadedError:
            before = load(connection, self.family, key)
            after, answer = step(before, now)
        # Who looked at a key has to look again later, though nothing may have changed.
        if after != before or (after.held and isinstance(answer, Looked)):
            save(
                connection,
                self.family,
                key,
                before=before,
                after=after,
                payload=payload,
                settings=self.settings,
                now=now,
            )
        return answer

    def _filled(self, connection: sqlite3.Connection, answer: A) -> A:
        work = answer.work
        if work is None or not work.held:
            return answer
        payload = payload_of(connection, self.family, work.key, work.position)
        return replace(answer, work=replace(work, payload=payload))


def _by_itself(decided: Callable[[], T], otherwise: T) -> T:
    """Make a decision; a key that cannot be read is logged, and nothing was changed then."""
    try:
        return decided()
    except UnreadableKeyError as error:
        _LOG.error("%s", error)
        return otherwise


def sqlite_sequences(
    path: str | Path,
    clock: Clock,
    settings: SequenceSettings | None = None,
    *,
    family: str = DEFAULT_NAME,
    synchronous: str = "full",
    busy: timedelta = timedelta(seconds=30),
) -> SqliteSequences:
    """Give the sequences of one worker process; the file is opened when it is first needed."""
    time = Timeline(clock)
    location = Location(path=Path(path), synchronous=synchronous, busy=busy, time=time)
    kept = settings or SequenceSettings()
    return SqliteSequences(Writer(location), Readers(location), time, kept, family)
