"""The four events of the ledger: their shapes, checked while they are decoded."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

# The end is written as "nothing follows", because `$` would let a final line break pass.
IDENTIFIER = r"^[A-Za-z0-9._:-]{1,128}(?![\s\S])"

Identifier = Annotated[
    str,
    Meta(pattern=IDENTIFIER, description="1 to 128 letters, digits and the signs . _ : -"),
]
# No control characters: PostgreSQL cannot store a zero character, and nobody can see the others.
Text = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+(?![\s\S])")]

# The upper bound keeps a balance within 64 bits for ninety million events on one entity.
_MOST_CENTS = 100_000_000_000
Cents = Annotated[int, Meta(ge=0, le=_MOST_CENTS, description="An amount in cents, never negative")]
Payment = Annotated[int, Meta(ge=1, le=_MOST_CENTS, description="An amount in cents, at least one")]


class NewCar(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a car when it is entered."""

    make: Text
    model: Text
    year: Annotated[int, Meta(ge=1886, le=2200)]
    price_cents: Cents


class NewLoan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terms of a loan for a car."""

    car_id: Identifier
    principal_cents: Cents
    term_months: Annotated[int, Meta(ge=1, le=600)]


class LoanPayment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Money paid back on a loan."""

    amount_cents: Payment


class CarService(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work done on a car."""

    description: Text
    cost_cents: Cents
    odometer_km: Annotated[int, Meta(ge=0, le=10_000_000)]


class Envelope(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event_type"
):
    """What all events carry."""

    event_id: Annotated[
        Identifier, Meta(description="Names the event; the server names it where it is left out")
    ] = ""
    timestamp: Annotated[datetime, Meta(tz=True, description="When it happened, with time zone")]
    entity_id: Annotated[Identifier, Meta(description="The car or the loan that it is about")]


class CarCreated(Envelope, frozen=True, kw_only=True, tag="CarCreated"):
    """A car was entered."""

    event_name: Text = "Car Created"
    data: NewCar


class LoanCreated(Envelope, frozen=True, kw_only=True, tag="LoanCreated"):
    """A loan was granted."""

    event_name: Text = "Loan Created"
    data: NewLoan


class LoanPaymentSubmitted(Envelope, frozen=True, kw_only=True, tag="LoanPaymentSubmitted"):
    """A payment on a loan arrived."""

    event_name: Text = "Loan Payment Submitted"
    data: LoanPayment


class CarServiceDone(Envelope, frozen=True, kw_only=True, tag="CarServiceDone"):
    """A car was serviced."""

    event_name: Text = "Car Service Done"
    data: CarService


Event = CarCreated | LoanCreated | LoanPaymentSubmitted | CarServiceDone

EVENT_TYPES = ("CarCreated", "LoanCreated", "LoanPaymentSubmitted", "CarServiceDone")


def event_type(event: Event) -> str:
    return type(event).__name__


def amount_cents(event: Event) -> int:
    """Give the one amount that each event carries, as it stands in the totals."""
    match event:
        case CarCreated():
            return event.data.price_cents
        case LoanCreated():
            return event.data.principal_cents
        case LoanPaymentSubmitted():
            return event.data.amount_cents
        case CarServiceDone():
            return event.data.cost_cents
