"""The store of the memory engine: documents, done-records, and a commit that does not settle."""

import copy
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headway.adapters.memory.kept import Kept
from headway.adapters.memory.state import State
from headway.core.beginning import Beginning, Begun, How, begun_together
from headway.core.callback import drive
from headway.core.changes import Changes, Key, wanted
from headway.core.document import LEASE_TOKEN, LEASE_UNTIL, WAITING
from headway.core.errors import KeyTakenError
from headway.core.letter import letter_id, requeued_letter
from headway.core.lifecycle import Lifecycle, by_state
from headway.core.lifecycle import State as DocumentState
from headway.core.travel import instant
from headway.core.writes import Document, Write, matches
from headway.ports.commit import COMMITTED, DUPLICATE, Finish, Outcome, TransactionBody, Unit
from headway.ports.records import DoneRecord, Ended, own_end


class MemoryDocuments:
    """Documents, given as copies: nobody changes what is stored by changing what was read."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def fetch(self, collection: str, ids: Sequence[str]) -> Mapping[str, Document]:
        stored = self._state.documents.get(collection, {})
        return {one: _read(stored[one]) for one in ids if one in stored}

    async def find(
        self, collection: str, where: Mapping[str, Any], limit: int
    ) -> Sequence[Document]:
        stored = self._state.documents.get(collection, {})
        every = (_read(stored[one]) for one in sorted(stored))
        return [document for document in every if matches(document, where)][:limit]

    async def count(self, collection: str, where: Mapping[str, Any]) -> int:
        stored = self._state.documents.get(collection, {})
        return sum(matches(_read(body), where) for body in stored.values())

    async def tally(self, lifecycle: Lifecycle) -> Mapping[DocumentState, int]:
        stored = self._state.documents.get(lifecycle.collection, {})
        return by_state(lifecycle, ((_read(body), 1) for body in stored.values()))

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        return [self._begin(beginning) for beginning in beginnings]

    def _begin(self, beginning: Beginning) -> Mapping[str, Begun]:
        stored = self._state.documents.get(beginning.lifecycle.collection, {})
        found = {one: _read(stored[one]) for one in beginning.ids if one in stored}
        answers = begun_together(found, beginning)
        for one, answer in answers.items():
            if answer.how is How.BEGUN:
                stored[one] = msgspec.json.encode(answer.document)
        return answers

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        return self._change(collection, tokens, {LEASE_UNTIL: instant(until)})

    async def leave(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        return self._change(collection, tokens, {LEASE_TOKEN: WAITING, LEASE_UNTIL: instant(until)})

    def _change(self, collection: str, tokens: Mapping[str, str], changes: Document) -> int:
        stored = self._state.documents.get(collection, {})
        found = {one: _read(stored[one]) for one in tokens if one in stored}
        ours = {one: each for one, each in found.items() if each.get(LEASE_TOKEN) == tokens[one]}
        for one, document in ours.items():
            stored[one] = msgspec.json.encode({**document, **changes})
        return len(ours)


class MemoryRecords:
    """The records that commits have written."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def find(self, keys: Sequence[str]) -> Mapping[str, DoneRecord]:
        records = self._state.records
        return {key: records[key].record for key in keys if key in records}

    async def undispatched(self, before: datetime, limit: int) -> Sequence[DoneRecord]:
        unsent = [r for r in self._by_age(before) if _holds_something(r)]
        return unsent[:limit]

    async def dispatched(self, keys: Sequence[str]) -> None:
        for key in keys:
            if kept := self._state.records.get(key):
                kept.record = sent(kept.record)

    async def forget(self, before: datetime, limit: int) -> int:
        old = [r for r in self._by_age(before) if not _is_needed(r)][:limit]
        for record in old:
            self._state.forget(record.key)
        return len(old)

    def _by_age(self, before: datetime) -> list[DoneRecord]:
        records = (kept.record for kept in self._state.records.values())
        return sorted((r for r in records if r.at < before), key=lambda record: record.at)


class MemoryStore:
    """For the walk in two steps, first this commit and then the bus.

    What is to be sent rides in the record until `records.dispatched` says that it arrived.
    """

    def __init__(self, state: State) -> None:
        self.documents = MemoryDocuments(state)
        self.records = MemoryRecords(state)
        self._state = state

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        """Store effects and records, each unit as one; nothing is sent and nothing is settled."""
        return [self._commit(unit) for unit in units]

    def _commit(self, unit: Unit) -> Finish:
        if unit.resumes:
            return COMMITTED
        try:
            if is_duplicate(self._state, unit):
                return DUPLICATE
        except KeyTakenError as error:
            return Finish(Outcome.REFUSED, error=error)
        finish = carry_out(self._state, unit)
        if finish.outcome is Outcome.COMMITTED and unit.record is not None:
            self._came_again(unit)
            record = msgspec.structs.replace(
                unit.record,
                outgoing=unit.outgoing,
                letter=unit.letter,
                failed_queue=unit.failed_queue,
            )
            keep_record(self._state, unit, record)
        return finish

    async def requeued(self, failed_queue: str, letter_id: str, to: str | None) -> None:
        """Say so where a record says FAILED or PURGED."""
        for kept in self._about(letter_id, Ended.FAILED, Ended.PURGED):
            if kept.record.failed_queue in {"", failed_queue}:
                _decide(kept, _sent_to(kept, to))

    async def purged(self, failed_queue: str, letter_ids: Sequence[str]) -> None:
        """Say so where a record says FAILED."""
        for one in letter_ids:
            for kept in self._about(one, Ended.FAILED):
                if kept.record.failed_queue in {"", failed_queue}:
                    _decide(kept, Ended.PURGED)

    def _came_again(self, unit: Unit) -> None:
        """What was sent again has ended: whoever sent it may have died before it was taken down."""
        letter = requeued_letter(unit.delivery.travel.generation)
        for kept in self._about(letter, Ended.FAILED) if letter else ():
            _decide(kept, _sent_to(kept, unit.delivery.queue))

    def _about(self, letter_id: str, *ends: Ended) -> list[Kept]:
        records = self._state.records.values()
        return [
            each for each in records if each.letter_id == letter_id and each.record.ended in ends
        ]


def _sent_to(kept: Kept, queue: str | None) -> Ended:
    return Ended.REQUEUED if kept.record.queue == queue else Ended.MOVED


def _decide(kept: Kept, ended: Ended) -> None:
    kept.record = msgspec.structs.replace(kept.record, ended=ended, letter=None)


def is_duplicate(state: State, unit: Unit) -> bool:
    """Say whether the work was done before; another operation that did the same has its own end."""
    record = unit.record
    if record is None or record.key not in state.records:
        return False
    end = own_end(state.records[record.key].record, record)
    if end is not None:
        keep_record(state, unit, end)
    return True


def carry_out(state: State, unit: Unit) -> Finish:
    """Let writes and bodies take effect, or leave no trace of them."""
    before = copy.deepcopy(state.tables) if unit.bodies else {}
    try:
        changed, skipped = _changes(state, unit.writes)
    except Exception as error:  # noqa: BLE001 (whatever a value raises)
        return Finish(Outcome.REFUSED, error=error)
    try:
        _run(unit.bodies, state.tables)
    except BaseException as error:  # noqa: BLE001 (no body may end the task of all)
        state.tables.clear()
        state.tables.update(before)
        return Finish(Outcome.REFUSED, error=_refusal(error), of_body=True)
    for (collection, one), document in changed.items():
        state.documents.setdefault(collection, {})[one] = document
    return Finish(Outcome.COMMITTED, skipped=skipped)


def _changes(state: State, writes: Sequence[Write]) -> tuple[dict[Key, bytes], int]:
    found: dict[Key, Document] = {}
    for collection, ids in wanted(writes).items():
        stored = state.documents.get(collection, {})
        found.update({(collection, one): _read(stored[one]) for one in ids if one in stored})
    changes = Changes(found)
    skipped = changes.apply(writes)
    return {key: msgspec.json.encode(each) for key, each in changes.changed.items()}, skipped


def _run(bodies: Sequence[TransactionBody], tables: dict[str, Any]) -> None:
    for body in bodies:
        drive(body, body(tables))


def _refusal(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    refusal = RuntimeError(f"the body raised {type(error).__name__}: {error}")
    refusal.__cause__ = error
    return refusal


def keep_record(state: State, unit: Unit, record: DoneRecord) -> None:
    """Store a record, with the name of the letter that it is about if it failed."""
    travel = unit.delivery.travel
    named = (
        unit.letter.letter_id
        if unit.letter
        else letter_id(unit.delivery.queue, travel.operation, travel.generation)
    )
    state.keep(record, named, travel.generation)


def sent(record: DoneRecord) -> DoneRecord:
    """Give a record that has nothing left to be sent."""
    return msgspec.structs.replace(record, outgoing=(), letter=None)


def _holds_something(record: DoneRecord) -> bool:
    return bool(record.outgoing) or record.letter is not None


def _is_needed(record: DoneRecord) -> bool:
    """A letter waits for a decision, or something for being sent: neither is finished work."""
    return record.ended is Ended.FAILED or _holds_something(record)


def _read(stored: bytes) -> Document:
    document: Document = msgspec.json.decode(stored)
    return document
