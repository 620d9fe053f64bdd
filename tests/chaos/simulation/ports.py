"""The ports as a process sees them: every call is a step at which something can go wrong."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from headway import Lifecycle
from headway.operations import FailedQueue, Letter
from headway.runtime.finishing import Store
from headway.testing.ports import (
    Beginning,
    Begun,
    Decisions,
    Delivery,
    Document,
    Documents,
    DoneRecord,
    DoneRecords,
    Finish,
    Finisher,
    Letters,
    Message,
    OnStep,
    Outcome,
    Queue,
    State,
    Then,
    Travel,
    Unit,
)
from tests.chaos.simulation.process import Process

_IDLE = timedelta(seconds=10)


class FaultyBus:
    """The bus of one process."""

    def __init__(self, process: Process, seen: list[Delivery]) -> None:
        self._process = process
        self._bus = process.bus
        self.atomic_publish = process.bus.atomic_publish
        self.finds_parked = process.bus.finds_parked
        self._faults = process.disks.faults
        self._state = process.disks.state
        self._seen = seen
        self.worker = process.bus.worker

    async def gone(self, workers: Collection[str]) -> Collection[str]:
        return await self._bus.gone(workers)  # it changes nothing, so nothing is lost with it

    def owns(self, delivery: Delivery) -> bool:
        return self._bus.owns(delivery)

    async def open(self, queues: Sequence[Queue], on_routed: OnStep | None = None) -> None:
        await self._process.step("open", lambda: self._bus.open(queues, on_routed))

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        some = messages[: self._faults.some(len(messages))]
        return await self._process.step(
            "publish",
            lambda: self._bus.publish(messages),
            # As a bus without `atomic_publish` does.
            half=None if self._state.recognises else lambda: self._bus.publish(some),
            about=" ".join(f"{each.event_type}:{_short(each.travel)}" for each in messages),
        )

    async def take(
        self, queues: Sequence[str], limit: int, patience: timedelta = timedelta()
    ) -> Sequence[Delivery]:
        if limit < 1:  # engines take this for none, or for no limit at all
            self._process.disks.violated(f"{self._process.name} asks for {limit} events")
        # An idle worker asks every second, which only costs time here.
        patience = _IDLE if patience >= timedelta(seconds=1) else patience
        taken = list(
            await self._process.step("take", lambda: self._bus.take(queues, limit, patience))
        )
        if self._faults.happens(0.3):
            self._faults.random.shuffle(taken)
        if taken:
            self._process.tell("took", " ".join(_named(each) for each in taken))
        self._seen.extend(taken)
        return taken

    async def begin(self, delivery: Delivery) -> bool:
        return await self._process.step(
            "begin", lambda: self._bus.begin(delivery), about=_named(delivery)
        )

    async def settle(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        some = settlements[: self._faults.some(len(settlements))]

        async def whole() -> Sequence[bool]:
            return await self._fenced(settlements)

        async def lost() -> Sequence[bool]:
            await self._fenced(some)
            self._state.disconnect(self._bus)
            return [True] * len(settlements)

        return await self._process.step(
            "settle",
            whole,
            half=lambda: self._fenced(some),
            ack_lost=lost,
            about=" ".join(f"{_named(d)}={type(then).__name__}" for d, then in settlements),
        )

    async def _fenced(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        held = [self._state.is_held(delivery) for delivery, _ in settlements]
        settled = await self._bus.settle(settlements)
        for (delivery, _), was_held, took_effect in zip(settlements, held, settled, strict=True):
            if took_effect and not was_held:
                self._process.disks.violated(f"{_named(delivery)}: settled by one who lost it")
        return settled

    async def resume(self, queue: str) -> int:
        return await self._process.step("resume", lambda: self._bus.resume(queue), about=queue)

    async def announce(
        self, service: str, version: str, queues: Sequence[str], grace: timedelta
    ) -> None:
        await self._process.step(
            "announce", lambda: self._bus.announce(service, version, queues, grace)
        )

    async def live_versions(self, queue: str) -> Collection[str]:
        return await self._process.step("live versions", lambda: self._bus.live_versions(queue))

    async def proven(self) -> datetime | None:
        return await self._bus.proven()  # it changes nothing, so nothing is lost with it

    async def hand_back_all(self, keep: Sequence[Delivery]) -> None:
        await self._process.step("hand back all", lambda: self._bus.hand_back_all(keep))

    async def close(self) -> None:
        await self._process.step("close", self._bus.close)


class FaultyFinisher:
    """One commit for everything: each unit takes effect as a whole, or not at all."""

    def __init__(self, process: Process, finisher: Finisher) -> None:
        self._process = process
        self._finisher = finisher
        self.at_once = finisher.at_once

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        some = units[: self._process.disks.faults.some(len(units))]
        return await self._process.step(
            "finish",
            lambda: self._fenced(units),
            half=lambda: self._fenced(some),
            about=" ".join(map(_ended, units)),
        )

    async def _fenced(self, units: Sequence[Unit]) -> Sequence[Finish]:
        state = self._process.disks.state
        held = [state.is_held(unit.delivery) for unit in units]
        finishes = await self._finisher.finish(units)
        for unit, was_held, finish in zip(units, held, finishes, strict=True):
            if finish.outcome is Outcome.COMMITTED and not was_held:
                self._process.disks.violated(f"{_named(unit.delivery)}: committed by a loser")
        _count_refused(self._process, units, finishes)
        return finishes


class FaultyStore:
    """The store's half of the walk in two steps."""

    def __init__(self, process: Process, store: Store) -> None:
        self._process = process
        self._store = store

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        some = units[: self._process.disks.faults.some(len(units))]

        async def whole() -> Sequence[Finish]:
            finishes = await self._store.commit(units)
            _count_refused(self._process, units, finishes)
            return finishes

        return await self._process.step(
            "commit",
            whole,
            half=lambda: self._store.commit(some),
            about=" ".join(map(_ended, units)),
        )


class FaultyDecisions:
    """What the store is told about letters, where they are kept by a bus."""

    def __init__(self, process: Process, decisions: Decisions) -> None:
        self._process = process
        self._decisions = decisions

    async def requeued(self, failed_queue: str, letter_id: str, to: str | None) -> None:
        await self._process.step(
            "decide",
            lambda: self._decisions.requeued(failed_queue, letter_id, to),
            about=f"requeued {letter_id}",
        )

    async def purged(self, failed_queue: str, letter_ids: Sequence[str]) -> None:
        await self._process.step(
            "decide",
            lambda: self._decisions.purged(failed_queue, letter_ids),
            about=f"purged {' '.join(letter_ids)}",
        )


class FaultyRecords:
    """The done-records."""

    def __init__(self, process: Process, records: DoneRecords) -> None:
        self._process = process
        self._records = records

    async def find(self, keys: Sequence[str]) -> Mapping[str, DoneRecord]:
        return await self._process.step("find", lambda: self._records.find(keys))

    async def undispatched(self, before: datetime, limit: int) -> Sequence[DoneRecord]:
        return await self._process.step(
            "undispatched", lambda: self._records.undispatched(before, limit)
        )

    async def dispatched(self, keys: Sequence[str]) -> None:
        some = keys[: self._process.disks.faults.some(len(keys))]
        await self._process.step(
            "dispatched",
            lambda: self._records.dispatched(keys),
            half=lambda: self._records.dispatched(some),
            about=" ".join(keys),
        )

    async def forget(self, before: datetime, limit: int) -> int:
        return await self._process.step("forget", lambda: self._records.forget(before, limit))


class FaultyLetters:
    """The failed queues; where they are not in the store, a requeue is two steps."""

    def __init__(self, process: Process, letters: Letters) -> None:
        self._process = process
        self._letters = letters

    async def queues(self) -> Sequence[FailedQueue]:
        return await self._process.step("failed queues", self._letters.queues)

    async def write(self, queue: str, letters: Sequence[Letter]) -> None:
        some = letters[: self._process.disks.faults.some(len(letters))]
        await self._process.step(
            "write letters",
            lambda: self._letters.write(queue, letters),
            half=lambda: self._letters.write(queue, some),
            about=" ".join(f"{each.operation}/{each.generation}" for each in letters),
        )

    async def read(self, queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
        return await self._process.step("read", lambda: self._letters.read(queue, limit, after))

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        two_steps = not self._process.disks.state.recognises
        return await self._process.step(
            "requeue",
            lambda: self._letters.requeue(queue, letter_id, message),
            half=(lambda: self._process.bus.publish([message])) if two_steps else None,
            about=_short(message.travel),
        )

    async def remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        return await self._process.step("remove", lambda: self._letters.remove(queue, letter_ids))


class FaultyDocuments:
    """What handlers read."""

    def __init__(self, process: Process, documents: Documents) -> None:
        self._process = process
        self._documents = documents

    async def fetch(self, collection: str, ids: Sequence[str]) -> Mapping[str, Document]:
        return await self._process.step("fetch", lambda: self._documents.fetch(collection, ids))

    async def find(
        self, collection: str, where: Mapping[str, Any], limit: int
    ) -> Sequence[Document]:
        return await self._process.step(
            "fetch", lambda: self._documents.find(collection, where, limit)
        )

    async def tally(self, lifecycle: Lifecycle) -> Mapping[State, int]:
        return await self._process.step("fetch", lambda: self._documents.tally(lifecycle))

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        return await self._process.step("fetch", lambda: self._documents.begin(beginnings))

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        return await self._process.step(
            "fetch", lambda: self._documents.renew(collection, tokens, until)
        )

    async def leave(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        return await self._process.step(
            "fetch", lambda: self._documents.leave(collection, tokens, until)
        )


def _count_refused(process: Process, units: Sequence[Unit], finishes: Sequence[Finish]) -> None:
    for unit, finish in zip(units, finishes, strict=True):
        process.tell("outcome", f"{_named(unit.delivery)} {finish.outcome}")
        if finish.outcome is Outcome.REFUSED:
            process.disks.state.refused_once(unit.delivery)


def _ended(unit: Unit) -> str:
    end = unit.record.ended if unit.record else type(unit.then).__name__
    return f"{_named(unit.delivery)}={'known:' if unit.resumes else ''}{end}"


def _named(delivery: Delivery) -> str:
    more = f" r{delivery.returns} b{delivery.begins}" if delivery.returns else ""
    return f"{_short(delivery.travel)}#{delivery.receipt[0]}({delivery.travel.attempt}{more})"


def _short(travel: Travel) -> str:
    generation = travel.generation
    return travel.operation[:8] + ("" if generation == "0" else f"~{generation[:4]}")
