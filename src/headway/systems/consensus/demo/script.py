"""The five faults: each is injected, and then watched until it is overcome."""

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from headway import connect
from headway.clock import CLOCK
from headway.systems.consensus.demo.archives import Prepared
from headway.systems.consensus.demo.by_hand import File, Lost
from headway.systems.consensus.demo.faults import away_flag
from headway.systems.consensus.demo.hearing import Heard
from headway.systems.consensus.demo.story import Fault, Faults, Story
from headway.systems.consensus.events import ArchiveSubmitted, plain
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.workers import Workers

CHUNKS = "embedding.chunks.prepared"
_TICK = timedelta(milliseconds=50)
_LOOK_EVERY = 0.25
_PATIENCE = 30.0
_LATE, _AWAY = 2.0, 6.0
"""Seconds for which documents are late, and the vector store is away."""

_UNDER_WAY = 0.2
"""The share of chunks that are embedded when a worker is killed."""

Requeued = dict[str, int]
"""Documents that a sweep sent again, by collection."""


@dataclass(slots=True, kw_only=True)
class Script:
    """Everything that is needed to make things go wrong."""

    settings: ConsensusSettings
    bus: str
    file: File
    prepared: Prepared
    story: Story
    heard: Heard
    workers: Workers
    is_missed: Callable[[str], Awaitable[bool]]
    """Ask `headway verify` whether it names an operation as missing."""
    sweep: Callable[[], Awaitable[Requeued]]
    faults: Faults = field(default_factory=Faults)
    away_since: float = 0.0
    late_since: float = 0.0
    lost_at: float = 0.0
    _looked: float = -_LOOK_EVERY

    async def run(self) -> None:
        """Tell all of it."""
        self.file.hide(self.prepared.late)
        await self._submit()
        await self._poisoned(self.faults.poison)
        await self._documents_late(self.faults.late)
        await self._dependency_down(self.faults.outage)
        await self._documents_seen(self.faults.late)
        gone = await self._event_lost(self.faults.loss)
        await self._dependency_back(self.faults.outage)
        await self._worker_killed(self.faults.death)
        if not await self._until(self._is_at_rest, 2 * _PATIENCE):
            self.story.say("Not everything came to its end in time.")
        if gone is not None:
            await self._swept(self.faults.loss, gone)

    def look(self) -> None:
        """See how far everything is."""
        self.story.seen = self.file.look()
        self._looked = self.heard.seconds()

    async def _until(self, is_so: Callable[[], bool], seconds: float = _PATIENCE) -> bool:
        """Wait until something is so; False: it was not for so long."""
        begins = self.heard.seconds()
        while not is_so():
            if self.heard.seconds() - begins > seconds:
                return False
            await self._tick()
        return True

    async def _tick(self) -> None:
        self.workers.check()
        await CLOCK.wait(_TICK)
        self.story.seconds = self.heard.seconds()
        self.story.retries = self.heard.retries
        if self.story.seconds - self._looked >= _LOOK_EVERY:
            self.look()

    def _is_at_rest(self) -> bool:
        """Say whether no event is in any queue."""
        if self.story.seen is None or self.story.seen.waiting:
            return False
        self.look()  # what was seen may be a moment old
        return not self.story.seen.waiting

    async def _submit(self) -> None:
        archives = self.prepared.paths
        async with connect(self.bus) as headway:
            for path in archives:
                name = path.name.partition(".")[0]
                submitted = ArchiveSubmitted(path=str(path.absolute()), source_name=name)
                await headway.publish("ArchiveSubmitted", plain(submitted))
        number = f"{len(archives)} archives are" if len(archives) > 1 else "1 archive is"
        self.story.say(f"{number} submitted; workers are started.")

    async def _poisoned(self, fault: Fault) -> None:
        fault.injected = "1 message of the first archive is nothing but zeros"
        self.story.say(f"{fault.injected}.", "fault", fault.short)
        await self._until(lambda: bool(self.heard.letters))
        if [told.service for told in self.heard.letters] == ["parsing"]:
            fault.seen = True
            fault.happened = "no second try: a letter in parsing.failed; all around it was parsed"
            self.story.say(
                "parsing cannot read it, and no second try would help: it is put aside for a "
                "person, as a letter in the queue parsing.failed. All around it is parsed.",
                "answer",
                fault.short,
            )

    async def _documents_late(self, fault: Fault) -> None:
        number = len(self.prepared.late)
        fault.injected = f"{number} messages invisible at first, as on a replica that is behind"
        if await self._until(lambda: bool(self.heard.late)):
            self.late_since = self.heard.seconds()
            self.story.say(f"{fault.injected}.", "fault", fault.short)
            self.story.say(
                "chunking finds nothing that its events are about: not yet, so it tries again.",
                "answer",
                fault.short,
            )

    async def _documents_seen(self, fault: Fault) -> None:
        begins = self.heard.seconds()
        await self._until(lambda: self.heard.seconds() - begins > _LATE)
        self.file.show()
        hit = set(self.heard.late)
        self.story.say("The messages can be seen now.", about=fault.short)
        if await self._until(lambda: hit <= self.heard.on_time.keys()) and hit:
            retries = sum(self.heard.late.values())
            fault.seen = True
            fault.seconds = self.heard.seconds() - self.late_since
            fault.happened = f"{retries} retries of {len(hit)} events; all done, no letter"
            self.story.say(
                f"All {len(hit)} events are done, after {retries} retries.", "answer", fault.short
            )

    async def _dependency_down(self, fault: Fault) -> None:
        await self._until(lambda: self._waiting() > 0)
        away_flag(self.settings).touch()
        self.away_since = self.heard.seconds()
        self.story.say("The vector store refuses connections.", "fault", fault.short)
        if await self._until(lambda: self.heard.down > 0):
            self.story.say(
                "Five events in a row failed alike: it is down. They are parked, and nothing is "
                "counted against them.",
                "answer",
                fault.short,
            )

    async def _dependency_back(self, fault: Fault) -> None:
        await self._until(lambda: self.heard.seconds() - self.away_since > _AWAY)
        away_flag(self.settings).unlink()
        lasted, waiting = self.heard.seconds() - self.away_since, self._waiting()
        fault.injected = f"the vector store refused connections for {lasted:.0f} s"
        self.story.say("The vector store is back; nobody tells the workers.", about=fault.short)
        if await self._until(lambda: self.heard.back > 0) and self.heard.parked:
            fault.seen = True
            fault.seconds = self.heard.seconds() - self.away_since
            fault.happened = (
                f"{len(self.heard.parked)} events parked, {waiting} in all waited; a probe found "
                "it back"
            )
            self.story.say("A probe got through: all go on by themselves.", "answer", fault.short)

    def _waiting(self) -> int:
        return 0 if self.story.seen is None else self.story.seen.waiting.get(CHUNKS, 0)

    def _embedded(self) -> float:
        """Give the share of chunks that are embedded."""
        seen = self.story.seen
        return 0.0 if seen is None else seen.done.get("chunks", 0) / self.story.messages

    async def _event_lost(self, fault: Fault) -> Lost | None:
        gone: Lost | None = None

        def lose() -> bool:
            nonlocal gone
            gone = self.file.lose(CHUNKS)
            return gone is not None

        if not await self._until(lose) or gone is None:
            return None
        self.lost_at = self.heard.seconds()
        fault.injected = "1 event deleted from the queue of embedding, by hand"
        self.story.say(f"{fault.injected}.", "fault", fault.short)
        if await self.is_missed(gone.operation):
            fault.happened = "verify named it"
            self.story.say(
                "headway verify names it: accepted, and nowhere. (So that the books balance in the "
                "end, it is struck off there too.)",
                "answer",
                fault.short,
            )
        self.file.write_off(gone)
        return gone

    async def _worker_killed(self, fault: Fault) -> None:
        held: list[tuple[str, str]] = []
        dead = ""

        def kill() -> bool:
            """Kill whoever has most in hand; True: it had something when it died."""
            nonlocal held, dead
            if self._embedded() < _UNDER_WAY:
                return False
            alive = self.workers.pids
            for pid, token, count in self.file.holders():
                if pid in alive and count > 1:
                    os.kill(pid, signal.SIGKILL)
                    held, dead = self.file.held(token), token
                    fault.injected = f"kill -9 of a worker that had {len(held)} events in hand"
                    return bool(held)
            return False

        if not await self._until(kill):
            return
        killed = self.heard.seconds()
        self.story.say(f"{fault.injected}.", "fault", fault.short)
        if await self._until(lambda: not self.file.held(dead)):
            fault.seconds = self.heard.seconds() - killed
            self.story.say(
                "It is noticed: the events go to the others, and a new worker is started.",
                "answer",
                fault.short,
            )
        if await self._until(lambda: self.file.count_done(held) == len(held)):
            fault.seen = True
            fault.happened = f"others did all {len(held)}; no effect is there twice"
            self.story.say(f"All {len(held)} are done, none of them twice.", "answer", fault.short)

    async def _swept(self, fault: Fault, gone: Lost) -> None:
        self.story.say(
            "All queues are empty, but one chunk is not embedded and its thread waits for it.",
            about=fault.short,
        )
        requeued = await self.sweep()
        self.story.seconds = self.heard.seconds()
        fault.seconds = self.story.seconds - self.lost_at
        sent = ", ".join(f"{number} of {name}" for name, number in requeued.items() if number)
        self.story.say(
            f"headway sweep finds what is stuck and sends it again: {sent}.", "answer", fault.short
        )
        is_back = await self._until(lambda: self.file.is_embedded(gone.chunk_id))
        if is_back and requeued.get("chunks") and fault.happened == "verify named it":
            fault.seen = True
            fault.happened += "; a sweep made it anew from its document"
        if await self._until(self._is_at_rest):
            self.story.say("It is done, and its thread is summarized.", "answer", fault.short)
