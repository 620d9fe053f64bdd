"""The proof of the books finds every kind of fault."""

import pytest

from headway.systems.ledger.load.plan import hot_run
from headway.systems.ledger.load.proof import faults
from headway.systems.ledger.load.sending import Senders
from tests.systems.ledger.ledgers import Ledger

PLAN = hot_run(events=6, entities=2)
CAR, LOAN = (event.entity_id for event in PLAN.prepare)
FIRST = PLAN.events[0].event_id
ADDED = (
    "insert into ledger_events select event_id || 'x', event_type, entity_id, 0, token, body, "
    f"stored_at from ledger_events where event_id = '{FIRST}'"
)

TAMPERING = {
    "an event is lost": (f"delete from ledger_events where event_id = '{FIRST}'", FIRST),
    "an amount is changed": (
        f"update ledger_entities set moved_cents = moved_cents + 1 where entity_id = '{LOAN}'",
        LOAN,
    ),
    "an entity is lost": (f"delete from ledger_entities where entity_id = '{CAR}'", CAR),
    "an event is added": (
        ADDED,
        f"{FIRST}x",
    ),
}


@pytest.mark.parametrize("tampering", TAMPERING)
async def test_books_that_were_tampered_with_are_not_exact(
    sqlite_ledger: Ledger, tampering: str
) -> None:
    senders = Senders(http=sqlite_ledger.http, clients=2, honour_retry_after=True)
    deliveries = await senders.send_all([*PLAN.prepare, *PLAN.events])
    assert await faults(sqlite_ledger.http, PLAN.name, deliveries) == ()
    statement, named = TAMPERING[tampering]
    await sqlite_ledger.rows(statement)
    told = await faults(sqlite_ledger.http, PLAN.name, deliveries)
    assert any(line.startswith(f"{named} ") for line in told), told
