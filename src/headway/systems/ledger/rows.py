"""Events and entities as rows, the same in every store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.systems.ledger.decoding import decode_event, encode_event
from headway.systems.ledger.entities import Entity
from headway.systems.ledger.events import Event, amount_cents, event_type

EVENT_COLUMNS = ("event_id", "event_type", "entity_id", "amount_cents", "token", "body")
ENTITY_COLUMNS = (
    "entity_id",
    "kind",
    "provisional",
    "opening_cents",
    "movements",
    "moved_cents",
)

EVENTS_AFTER = """
select event_id, event_type, entity_id, amount_cents, stored_at from ledger_events
where event_id > {0} order by event_id limit {1}
"""
ENTITIES_AFTER = f"""
select {", ".join(ENTITY_COLUMNS)} from ledger_entities
where entity_id > {{0}} order by entity_id limit {{1}}
"""  # noqa: S608 (column names of our own)
STORED_EVENT = "select body, token, stored_at from ledger_events where event_id = {0}"
ENTITY = f"select {', '.join(ENTITY_COLUMNS)} from ledger_entities where entity_id = {{0}}"  # noqa: S608 (column names of our own)

# One statement, so that both sides are of one moment and must agree to the cent.
TOTALS = """
select event_type as name, count(*) as number, coalesce(sum(amount_cents), 0) as cents
from ledger_events group by event_type
union all
select kind || '_opened', coalesce(sum(case when provisional then 0 else 1 end), 0),
    coalesce(sum(opening_cents), 0)
from ledger_entities group by kind
union all
select kind || '_moved', coalesce(sum(movements), 0), coalesce(sum(moved_cents), 0)
from ledger_entities group by kind
"""

_BOOKED_AS = {
    "CarCreated": "car_opened",
    "CarServiceDone": "car_moved",
    "LoanCreated": "loan_opened",
    "LoanPaymentSubmitted": "loan_moved",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event as it lies in the store, and whose write it was."""

    event: Event
    token: str
    stored_at: str


def event_row(event: Event, token: str) -> tuple[object, ...]:
    return (
        event.event_id,
        event_type(event),
        event.entity_id,
        amount_cents(event),
        token,
        encode_event(event),
    )


def entity_row(entity: Entity) -> tuple[object, ...]:
    return tuple(getattr(entity, column) for column in ENTITY_COLUMNS)


def entity_from(row: Mapping[str, Any] | None) -> Entity | None:
    if row is None:
        return None
    fields = {column: row[column] for column in ENTITY_COLUMNS}
    return Entity(**fields | {"provisional": bool(row["provisional"])})


def stored_event_from(row: Mapping[str, Any] | None) -> StoredEvent | None:
    if row is None:
        return None
    return StoredEvent(
        event=decode_event(row["body"].encode()), token=row["token"], stored_at=row["stored_at"]
    )


def totals_from(rows: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Set what the events say beside what the entities say."""
    found = {row["name"]: (int(row["number"]), int(row["cents"])) for row in rows}
    by_type = {
        name: {
            "events": found.get(name, (0, 0))[0],
            "cents": found.get(name, (0, 0))[1],
            "booked": found.get(booked, (0, 0))[0],
            "booked_cents": found.get(booked, (0, 0))[1],
        }
        for name, booked in _BOOKED_AS.items()
    }
    return {
        "events": sum(total["events"] for total in by_type.values()),
        "exact": all(
            (total["events"], total["cents"]) == (total["booked"], total["booked_cents"])
            for total in by_type.values()
        ),
        "by_type": by_type,
    }
