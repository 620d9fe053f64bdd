"""What is sent: events about few entities, so that their transactions get in each other's way."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headway.systems.ledger.events import (
    CarCreated,
    CarService,
    CarServiceDone,
    Event,
    LoanCreated,
    LoanPayment,
    LoanPaymentSubmitted,
    NewCar,
    NewLoan,
)

_FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Events that prepare the scene, and those that are then sent in parallel."""

    prepare: tuple[Event, ...] = ()
    events: tuple[Event, ...]
    name: str
    """Begins every id, so that a run is told apart from all else in the ledger."""


def four_types(per_type: int = 5) -> LoadPlan:
    """Send so many of each type at once, by default 4 x 5.

    New cars and loans each stand alone; all services meet on one car, all payments on one loan.
    """
    run = _Run()
    hot = (run.car(), run.loan())
    rounds = (
        (run.car(), run.loan(), run.payment(hot[1].entity_id), run.service(hot[0].entity_id))
        for _ in range(per_type)
    )
    return LoadPlan(
        prepare=hot, events=tuple(event for each in rounds for event in each), name=run.name
    )


def hot_run(*, events: int, entities: int) -> LoadPlan:
    """Spread services and payments over a few cars and loans that exist."""
    run = _Run()
    hot: tuple[CarCreated | LoanCreated, ...] = tuple(
        run.loan() if number % 2 else run.car() for number in range(entities)
    )
    return LoadPlan(prepare=hot, events=tuple(_changes(run, hot, events)), name=run.name)


def _changes(
    run: "_Run", hot: tuple[CarCreated | LoanCreated, ...], number: int
) -> Iterator[Event]:
    for turn in range(number):
        entity = hot[turn % len(hot)]
        if isinstance(entity, CarCreated):
            yield run.service(entity.entity_id)
        else:
            yield run.payment(entity.entity_id)


class _Run:
    """Makes events whose ids begin with the name of the run, with amounts that all differ."""

    def __init__(self) -> None:
        self.name = f"load-{uuid.uuid4().hex[:12]}"
        self._made = 0

    def car(self) -> CarCreated:
        event_id, when, number = self._next()
        return CarCreated(
            event_id=event_id,
            timestamp=when,
            entity_id=f"{self.name}-car-{number}",
            data=NewCar(make="Saab", model="900", year=1992, price_cents=900_000 + number),
        )

    def loan(self) -> LoanCreated:
        event_id, when, number = self._next()
        return LoanCreated(
            event_id=event_id,
            timestamp=when,
            entity_id=f"{self.name}-loan-{number}",
            data=NewLoan(
                car_id=f"{self.name}-car-{number}",
                principal_cents=5_000_000 + number,
                term_months=48,
            ),
        )

    def payment(self, loan_id: str) -> LoanPaymentSubmitted:
        event_id, when, number = self._next()
        return LoanPaymentSubmitted(
            event_id=event_id,
            timestamp=when,
            entity_id=loan_id,
            data=LoanPayment(amount_cents=10_000 + number),
        )

    def service(self, car_id: str) -> CarServiceDone:
        event_id, when, number = self._next()
        return CarServiceDone(
            event_id=event_id,
            timestamp=when,
            entity_id=car_id,
            data=CarService(
                description="Inspection", cost_cents=20_000 + number, odometer_km=number
            ),
        )

    def _next(self) -> tuple[str, datetime, int]:
        self._made += 1
        when = _FIRST_DAY + timedelta(minutes=self._made)
        return f"{self.name}-{self._made:06d}", when, self._made
