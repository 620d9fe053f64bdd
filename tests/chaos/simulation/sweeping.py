"""A world with stuck documents: two sweepers and two workers, all of which die and come back."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import msgspec

from headway import Event, Lifecycle, RetryPolicy, Service
from headway.retrying import TRANSIENT
from headway.runtime.sweeper import Sweeper
from headway.settings import SweepSettings
from headway.testing.ports import Claim, Engine, State, Travel, encode, instant
from tests.chaos.simulation.engines import Parts
from tests.chaos.simulation.population import Population
from tests.chaos.simulation.ports import Faulty
from tests.chaos.simulation.process import Process
from tests.chaos.simulation.state import WatchedState

MAX_ATTEMPTS = 3
QUEUE = "chunking.json.parsed"
_LEASE = timedelta(seconds=20)
_SETTINGS = SweepSettings(
    interval=timedelta(seconds=30),
    base_delay=timedelta(seconds=10),
    max_delay=timedelta(seconds=60),
    stuck_after=timedelta(minutes=5),
    grace=timedelta(seconds=30),
    claim=timedelta(seconds=10),
    cap=0,
)
_FAULTS_END = timedelta(minutes=4)
_REST_WITHIN = timedelta(hours=6)
_CHANGES = frozenset(
    {"prepare", "claim", "published", "give_back", "give_up", "tally", "hold", "let_go", "add"}
)


class SweptWorld(Population):
    """One course of events, made from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, recognises=seed % 2 == 0, state=WatchedState)
        self.lifecycle = Lifecycle(
            "messages", max_attempts=MAX_ATTEMPTS, lease=_LEASE if seed % 3 else None
        )
        self._seed = seed
        self._settings = replace(_SETTINGS, leader=seed % 5 == 0, limit=3 + seed % 7)
        self._before: dict[str, int] = {}
        """Attempts that documents had when the world began."""
        self.runs: dict[str, set[str]] = {}
        """The operations that the handler was called for, by document."""
        self.claims: Counter[tuple[str, int]] = Counter()
        """How often an attempt was counted by a sweeper, by document and number."""

    # The service

    def service(self, process: Process) -> Service:
        once = RetryPolicy(max_attempts=1, backoff=TRANSIENT.backoff)
        service = Service("chunking", lifecycles=[self.lifecycle], transient=once)

        @service.on("JSONParsed", documents=("messages", "ids"), dedup="ids")
        async def chunk(event: Any, work: Any) -> None:
            (one,) = event.data["ids"]
            self.runs.setdefault(one, set()).add(work.key)
            await process.wait(timedelta(seconds=self._takes(one)))
            if self._fails(one, len(self.runs[one])):
                raise RuntimeError(f"{one} is bad this time")
            if self._fails(one, "for good"):
                raise ValueError(f"{one} is bad")
            work.documents("effects").add({"of": one})

        return service

    def _takes(self, one: str) -> float:
        return (hash_of(self._seed, one) % 5) * 3.0

    def _fails(self, one: str, attempt: object) -> bool:
        return hash_of(self._seed, one, attempt) % 3 == 0

    # The documents

    def fill(self) -> None:
        dice, now = self.disks.faults.random, self.disks.clock.now()
        stored = self.state.documents.setdefault("messages", {})
        for number in range(dice.randint(4, 12)):
            one = f"m{number}"
            attempts = dice.choice((0, 0, 1, 2, 3))
            ago = timedelta(seconds=dice.choice((5, 60, 400)))
            document: dict[str, Any] = {
                "_id": one,
                "status": dice.choice(("pending", "failed", "processing", None)),
                "attemptCount": attempts,
                "lastAttemptTime": dice.choice((instant(now - ago), None, "never")),
                "createdAt": instant(now - ago),
            }
            if dice.random() < 0.2:
                document = {"_id": one}
            self._before[one] = document.get("attemptCount", 0)
            stored[one] = msgspec.json.encode(document)
            if not self._before[one] and dice.random() < 0.4:  # its first event is not lost at all
                body = encode(Event("JSONParsed", f"first-{one}", data={"ids": [one]}))
                self.state.put(QUEUE, body, Travel(operation=f"first-{one}"), now)

    # Processes

    def _engine(self, process: Process) -> Engine:
        inner = process.engine.sweeping
        assert inner is not None
        parts: dict[str, Any] = {
            "candidates": Faulty(process, _Watched(self, inner.candidates), only=_CHANGES),
            "leases": Faulty(process, inner.leases, only=_CHANGES),
            "totals": Faulty(process, inner.totals, only=_CHANGES),
        }
        engine = Parts().engine(process, [], one_commit=self.disks.state.recognises)
        return replace(engine, sweeping=replace(inner, **parts))

    async def _worker(self, process: Process) -> None:
        await self.work(process, [self.service(process)], self._engine(process), concurrency=2)

    async def _sweeper(self, process: Process) -> None:
        sweeper = Sweeper(
            [self.service(process)],
            self._engine(process),
            clock=process,
            chance=process.chance,
            observer=self,
            settings=self._settings,
        )
        await sweeper.run()
        self.disks.violated(f"{process.name} ended although it was not asked to")

    async def live(self) -> None:
        """Let it all happen: first with faults, then without, until every document has ended."""
        opening = Process(self.disks, "office")
        await opening.bus.open(self.service(opening).queues())
        self.fill()
        self.populate(
            {"w1": self._worker, "w2": self._worker, "s1": self._sweeper, "s2": self._sweeper}
        )
        end = self.disks.clock.now() + _FAULTS_END
        while self.disks.clock.now() < end and not self.disks.trouble.is_set():  # noqa: ASYNC110 (time is pretended)
            await asyncio.sleep(1)
        self.disks.faults.left = 0
        end += _REST_WITHIN
        while self.disks.clock.now() < end and not self.disks.trouble.is_set():
            if all(self._has_ended(each) for each in self.documents()):
                break
            await asyncio.sleep(10)
        await self.end()

    # What must be true

    def documents(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(each) for each in self.state.documents["messages"].values()]

    def _has_ended(self, document: dict[str, Any]) -> bool:
        is_over = self.lifecycle.state(document) in {State.PROCESSED, State.GIVEN_UP}
        return is_over or document.get("permanentFailure") is not None

    def check(self) -> list[str]:
        """Name every promise that was broken."""
        effects = Counter(
            msgspec.json.decode(each)["of"]
            for each in self.state.documents.get("effects", {}).values()
        )
        found = list(self.disks.violations)
        for document in self.documents():
            one, attempts = document["_id"], document.get("attemptCount", 0)
            state = self.lifecycle.state(document)
            if not self._has_ended(document):
                found.append(f"{one} has not ended: {document}")
            if attempts > MAX_ATTEMPTS:
                found.append(f"{one} has had {attempts} attempts")
            if len(self.runs.get(one, ())) > MAX_ATTEMPTS - self._before[one]:
                found.append(f"{one} was run by {self.runs[one]}, after {self._before[one]}")
            if effects[one] != (state is State.PROCESSED):
                found.append(f"{one} is {state} and took effect {effects[one]} times")
        found += [
            f"attempt {number} of {one} was counted {count} times by sweepers"
            for (one, number), count in self.claims.items()
            if count > 1
        ]
        return found


class _Watched:
    """Candidates of which every claim is taken down."""

    def __init__(self, world: SweptWorld, inner: Any) -> None:
        self._world = world
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def claim(self, rule: Any, claims: list[Claim], *more: Any) -> frozenset[str]:
        if any(claim.document.get("permanentFailure") for claim in claims):
            self._world.disks.violated("a sweeper took up what failed permanently")
        claimed: frozenset[str] = await self._inner.claim(rule, claims, *more)
        for claim in claims:
            if claim.document["_id"] in claimed and not claim.requeue.again:
                self._world.claims[claim.document["_id"], claim.requeue.attempt] += 1
        return claimed

    async def give_back(self, rule: Any, ids: list[str], token: str) -> None:
        """What was never sent is not counted: the next claim makes the same attempt."""
        ours = [
            each
            for each in self._world.documents()
            if each["_id"] in ids and each.get("claimToken") == token and each.get("claimBefore")
        ]
        await self._inner.give_back(rule, ids, token)
        for document in ours:
            self._world.claims[document["_id"], document["attemptCount"]] -= 1


def hash_of(*parts: object) -> int:
    """Roll dice that are the same whenever they are rolled for the same."""
    return int(sha256(repr(parts).encode()).hexdigest()[:8], 16)
