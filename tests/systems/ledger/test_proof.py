"""The proof of the books finds every kind of fault."""

import pytest

from headway.systems.ledger.load.plan import hot_run
from headway.systems.ledger.load.proof import faults
from headway.systems.ledger.load.sending import Senders
from tests.systems.ledger.ledgers import Ledger

PLAN = hot_run(events=6, entities=2)
CAR, LOAN = (event.entity_id for event in PLAN.prepare)
FIRST = PLAN.events[0].event_id

TAMPERING = {
    f"delete from ledger_events where event_id = '{FIRST}'": f"{FIRST} was answered 201 and is not",
    f"update ledger_entities set moved_cents = moved_cents + 1 where entity_id = '{LOAN}'": (
        f"{LOAN} has paid_cents="
    ),
    f"update ledger_entities set movements = 7 where entity_id = '{CAR}'": (
        f"{CAR} has services=7, its events come to 3"
    ),
    f"delete from ledger_entities where entity_id = '{CAR}'": f"{CAR} has price_cents=0, its",
    "insert into ledger_events select event_id || 'x', event_type, entity_id, 0, token, body, "
    f"stored_at from ledger_events where event_id = '{FIRST}'": f"{FIRST}x is in the ledger and",
}


# Every run names its events anew, so that they cannot name tests: those are the same everywhere.
@pytest.mark.parametrize(("tampering", "found"), TAMPERING.items(), ids=range(len(TAMPERING)))
async def test_books_that_were_tampered_with_are_not_exact(
    sqlite_ledger: Ledger, tampering: str, found: str
) -> None:
    senders = Senders(http=sqlite_ledger.http, clients=2, honour_retry_after=True)
    deliveries = await senders.send_all([*PLAN.prepare, *PLAN.events])
    assert await faults(sqlite_ledger.http, PLAN.name, deliveries) == ()
    await sqlite_ledger.rows(tampering)
    told = await faults(sqlite_ledger.http, PLAN.name, deliveries)
    assert any(line.startswith(found) for line in told), told
    assert "the totals of events and entities differ: see /api/v1/totals" in told
