"""Claims, many with one statement: grouped by what becomes of them.

A group is changed where every field that is watched holds what some document of the group was read
with; status, attempts and generation are those of all. Whoever begins or claims a document changes
one of these three, or writes a time that nobody had read. What holds something unusual, or was
missed by the statement, is looked at document by document.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import ObjectId

from headway.adapters.mongodb.ids import id_of
from headway.adapters.mongodb.values import Raw, kept_value, likely
from headway.core.document import CLAIM_BEFORE, LAST_OPERATION, STATUS
from headway.core.sweep import SweepRule, claimed, watched
from headway.core.writes import ID
from headway.ports.candidates import Claim

_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimer:
    """Who claims, and until when."""

    rule: SweepRule
    token: str
    now: datetime
    until: datetime

    def one(self, claim: Claim) -> list[Raw]:
        """Give the update that claims one document."""
        return self._update(claim, {"$literal": claim.requeue.operation})

    def many(self, claims: Sequence[Claim], ids: Sequence[Any]) -> tuple[Raw, list[Raw]]:
        """Give the query for those of a group that are as they were read, and their update."""
        query: Raw = {ID: {"$in": list(ids)}}
        for field in watched(self.rule):
            shown = {
                (type(value), value) for value in (claim.document.get(field) for claim in claims)
            }
            query[field] = {"$in": [each for _, value in shown for each in likely(value)]}
        named = _before_id(claims[0], self.rule)
        return query, self._update(
            claims[0], {"$concat": [{"$literal": named}, {"$toString": f"${ID}"}]}
        )

    def _update(self, claim: Claim, operation: Any) -> list[Raw]:
        changes = claimed(
            claim.document, claim.requeue, token=self.token, until=self.until, now=self.now
        )
        update: Raw = {
            field: {"$literal": kept_value(field, value)} for field, value in changes.items()
        }
        if LAST_OPERATION in changes:
            update[LAST_OPERATION] = operation
        if CLAIM_BEFORE in changes:
            # As it is in the database: what comes back later is what was there.
            update[CLAIM_BEFORE] = {
                field: {"$ifNull": [f"${field}", None]} for field in changes[CLAIM_BEFORE]
            }
        return [{"$set": update}]


def grouped(claims: Iterable[Claim], rule: SweepRule) -> tuple[list[list[Claim]], list[Claim]]:
    """Part claims into groups, and give those apart that fit into none."""
    groups: dict[tuple[Any, ...], list[Claim]] = {}
    unusual: list[Claim] = []
    fields = watched(rule)
    for claim in claims:
        document, requeue = claim.document, claim.requeue
        values = [document.get(field) for field in fields]
        named = _before_id(claim, rule)
        if named is None or any(isinstance(value, list | dict) for value in values):
            unusual.append(claim)
            continue
        key = (
            requeue.again,
            named,
            requeue.attempt,
            requeue.generation,
            document.get(STATUS),
            *[value is None for value in values],
        )
        groups.setdefault(key, []).append(claim)
    return [
        group[start : start + _AT_ONCE]
        for group in groups.values()
        for start in range(0, len(group), _AT_ONCE)
    ], unusual


def is_written_by_server(text: str, one: Any) -> bool:
    """Say whether the server writes an id as the text by which it is known."""
    return isinstance(one, str | ObjectId | int) and id_of(one) == text


def _before_id(claim: Claim, rule: SweepRule) -> str | None:
    """Give what the operation of a claim begins with, if it ends with its document's id."""
    operation, one = claim.requeue.operation, str(claim.document[ID])
    if claim.requeue.again:
        return ""  # it is not written a second time
    if not operation.endswith(f":{rule.collection}:{one}"):
        return None  # the id is too long to be shown
    return operation[: len(operation) - len(one)]
