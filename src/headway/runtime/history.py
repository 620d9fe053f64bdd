"""Record who changed what, when and why: before the change, and again with its result.

The first entry is stored before anything is changed, so a process that is killed leaves a change
whose outcome is unknown, and never one without an entry.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headway.core.errors import ConfigurationError
from headway.core.failure import note, words
from headway.core.secrets import hidden
from headway.core.showing import shown
from headway.core.travel import instant
from headway.core.writes import Document
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.history import KEPT, History

_LOG = logging.getLogger("headway.operator")
IDS_KEPT = 100
"""Ids that an entry names."""
_LONGEST_REASON = 1_000
_AT_FIRST = 100


class Subject(StrEnum):
    """What was changed: the field of an entry that holds its name."""

    QUEUE = "queue"
    COLLECTION = "collection"
    SEQUENCES = "sequences"
    UNROUTED = "unrouted"


_NOUNS = {
    Subject.QUEUE: "letters",
    Subject.COLLECTION: "documents",
    Subject.SEQUENCES: "keys",
    Subject.UNROUTED: "events",
}
_LOGGED_AS = {Subject.QUEUE: "failed_queue"}


class Outcome(StrEnum):
    """How far a change got, as its entry says."""

    INTENDED = "intended"
    """It is going on, or its process was killed: some of it may be done."""
    COMPLETE = "complete"
    STOPPED = "stopped"
    """By an error, or by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that an operator makes."""

    what: str
    """Such as `requeue`."""
    subject: Subject
    name: str
    """Of the queue, the collection or the sequences, or the types of the events."""
    selection: str
    """What was selected, in words."""
    reason: str = ""
    """Why, in the operator's own words."""
    facts: Callable[[], Mapping[str, Any]]
    """Gives `chosen`, `done`, `ids` and whatever else is known at the moment."""


def checked_reason(reason: str) -> str:
    """Refuse a reason that is too long for the history, and hide the secrets in it."""
    if len(reason) > _LONGEST_REASON:
        raise ConfigurationError(
            f"Invalid reason: {len(reason)} characters. Use at most {_LONGEST_REASON}."
        )
    return hidden(reason.strip())


@dataclass(frozen=True, slots=True)
class Operator:
    """The person or program that changes things, and the history of it."""

    who: str
    history: History
    clock: Clock
    chance: Chance

    @asynccontextmanager
    async def recorded(self, change: Change) -> AsyncIterator[None]:
        """Record what is intended, let the block do it, and record the outcome."""
        change_id = self.chance.token()
        await self._record(change_id, change, Outcome.INTENDED)
        try:
            yield
        except BaseException as error:
            try:
                await self._record(change_id, change, Outcome.STOPPED, error)
            except Exception as also:  # noqa: BLE001 (the first entry is there, and says enough)
                note(error, f"Recording the outcome failed too: {_said(also)}")
            raise
        await self._record(change_id, change, Outcome.COMPLETE)

    async def _record(
        self, change_id: str, change: Change, outcome: Outcome, error: BaseException | None = None
    ) -> None:
        entry: Document = {
            "change": change_id,
            "at": instant(self.clock.now()),
            "who": self.who,
            "what": change.what,
            change.subject.value: change.name,
            "selection": change.selection,
            "reason": change.reason,
            "outcome": outcome.value,
            **change.facts(),
        }
        if error is not None:
            entry["error"] = shown(_said(error))
        try:
            await self.history.append(entry)
        finally:
            if outcome is not Outcome.INTENDED:
                _log(change.subject, entry)


def _said(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return "interrupted"
    return f"{type(error).__name__}: {hidden(words(error))}"


def _log(subject: Subject, entry: Mapping[str, Any]) -> None:
    noun, because = _NOUNS[subject], f", because: {entry['reason']}" if entry["reason"] else ""
    _LOG.info(
        "%s of %s by %s: %d of %d %s (%s)%s, %s",
        entry["what"],
        shown(entry[subject.value]),
        shown(entry["who"]),
        entry["done"],
        entry["chosen"],
        noun.removesuffix("s") if entry["chosen"] == 1 else noun,
        shown(entry["selection"]),
        shown(because),
        entry["outcome"],
        extra={
            **{name: value for name, value in entry.items() if name not in _NOT_LOGGED},
            "operator": entry["who"],
            "change": entry["what"],
            _LOGGED_AS.get(subject, subject.value): entry[subject.value],
            noun: entry["done"],
            "filters": entry["selection"],
        },
    )


_NOT_LOGGED = {"at", "who", "what", "selection", "done", "ids", "queue", "change"}


async def read_history(
    history: History,
    limit: int,
    subject: Subject,
    name: str | None = None,
    **fields: str,
) -> Sequence[Document]:
    """Give the latest changes, the newest first, each by the entry of its outcome if it has one.

    `name` and `fields` select changes of one queue, collection or resequencer, or of one kind.
    """
    wanted = fields | ({} if name is None else {subject.value: name})
    asked = max(2 * limit, _AT_FIRST)
    while True:
        entries = await history.latest(asked)
        latest: dict[str | int, Document] = {}
        for number, each in enumerate(entries):
            if subject.value in each and all(each.get(f) == v for f, v in wanted.items()):
                named = each.get("change")
                # An entry of another program may name no change: it is one by itself.
                change = named if isinstance(named, str) else number
                if change not in latest or each.get("outcome") != Outcome.INTENDED:
                    latest[change] = each
        # One more than the limit: the outcome of a change is newer than its intent.
        if len(latest) > limit or len(entries) < asked or asked >= KEPT:
            return list(latest.values())[:limit]
        asked = min(4 * asked, KEPT)
