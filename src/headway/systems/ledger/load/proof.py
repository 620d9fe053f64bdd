"""Prove the books: what the answers promised is what the ledger holds, to the cent.

The sums are made anew here from the events that were sent, by other arithmetic than the ledger's.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import httpx

from headway.systems.ledger.events import Event, amount_cents, event_type
from headway.systems.ledger.load.sending import Delivery

_PAGE = 1000
_FIELD_OF = {
    "CarCreated": "price_cents",
    "LoanCreated": "principal_cents",
    "LoanPaymentSubmitted": "paid_cents",
    "CarServiceDone": "service_cents",
}
_COUNT_OF = {"LoanPaymentSubmitted": "payments", "CarServiceDone": "services"}


async def faults(
    http: httpx.AsyncClient, run: str, deliveries: Sequence[Delivery]
) -> tuple[str, ...]:
    """Say everything that does not agree; nothing said means that all is exact."""
    held = {row["event_id"] async for row in _all(http, "events", "event_id", run)}
    entities = {row["entity_id"]: row async for row in _all(http, "entities", "entity_id", run)}
    sent = {delivery.event.event_id: delivery.event for delivery in deliveries}
    found = [
        *_against_answers(held, deliveries),
        *(f"{event_id} is in the ledger and was never sent" for event_id in held - sent.keys()),
        *_against_sums(entities, (sent[event_id] for event_id in held & sent.keys())),
    ]
    if not (await _get(http, "/api/v1/totals"))["exact"]:
        found.append("the totals of events and entities differ: see /api/v1/totals")
    return tuple(found)


def _against_answers(held: set[str], deliveries: Iterable[Delivery]) -> list[str]:
    return [
        f"{delivery.event.event_id} was answered {delivery.status} and is "
        f"{'' if delivery.event.event_id in held else 'not '}in the ledger"
        for delivery in deliveries
        if delivery.stored is not None and delivery.stored != (delivery.event.event_id in held)
    ]


def _against_sums(entities: Mapping[str, Mapping[str, Any]], stored: Iterable[Event]) -> list[str]:
    expected: Counter[tuple[str, str]] = Counter()
    for event in stored:
        kind = event_type(event)
        expected[event.entity_id, _FIELD_OF[kind]] += amount_cents(event)
        if kind in _COUNT_OF:
            expected[event.entity_id, _COUNT_OF[kind]] += 1
    fields = {*_FIELD_OF.values(), *_COUNT_OF.values()}
    booked = Counter(
        {
            (entity_id, field): row[field]
            for entity_id, row in entities.items()
            for field in fields & row.keys()
        }
    )
    return [
        f"{entity_id} has {field}={booked[entity_id, field]}, "
        f"its events come to {expected[entity_id, field]}"
        for entity_id, field in sorted(expected.keys() | booked.keys())
        if booked[entity_id, field] != expected[entity_id, field]
    ]


async def _all(
    http: httpx.AsyncClient, what: str, key: str, run: str
) -> AsyncIterator[Mapping[str, Any]]:
    """Page through what belongs to the run: ids come in the order of their bytes."""
    after = f"{run}-"
    while True:
        page = (await _get(http, f"/api/v1/{what}?after={after}&limit={_PAGE}"))[what]
        for row in page:
            if not row[key].startswith(f"{run}-"):
                return
            yield row
        if len(page) < _PAGE:
            return
        after = page[-1][key]


async def _get(http: httpx.AsyncClient, path: str) -> Any:
    answer = await http.get(path)
    answer.raise_for_status()
    return answer.json()
