"""What events do to entities, without any database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.systems.ledger.decoding import RefusedEventError
from headway.systems.ledger.entities import Entity, apply
from headway.systems.ledger.events import Event
from headway.systems.ledger.load.plan import four_types, hot_run


def applied(events: list[Event]) -> Entity | None:
    entity = None
    for event in events:
        entity = apply(entity, event)
    return entity


CAR = hot_run(events=6, entities=1)


@given(st.permutations(CAR.prepare + CAR.events))
def test_the_order_of_events_does_not_matter(events: list[Event]) -> None:
    entity = applied(events)
    assert entity == applied([*CAR.prepare, *CAR.events])
    assert entity is not None
    assert (entity.provisional, entity.movements) == (False, 6)


def test_creating_twice_is_refused() -> None:
    creation = four_types(1).prepare[0]
    with pytest.raises(RefusedEventError, match="was created by another event before"):
        applied([creation, creation])


def test_an_overpaid_loan_has_a_negative_balance() -> None:
    payment = hot_run(events=2, entities=2).events[1]
    entity = apply(None, payment)
    assert entity.moved_cents > 0
    assert entity.described()["balance_cents"] == -entity.moved_cents
