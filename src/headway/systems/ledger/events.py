"""The four events of the ledger: their shapes, checked while they are decoded."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

# The end is written as "nothing follows", because `$` would let a final line break pass.
IDENTIFIER = r"^[A-Za-z0-9._:-]{1,128}(?![\s\S])"
IDENTIFIER_IN_WORDS = "1 to 128 letters, digits and the signs . _ : -"

Identifier = Annotated[str, Meta(pattern=IDENTIFIER, description=IDENTIFIER_IN_WORDS)]
# No control characters: PostgreSQL cannot store a zero character, and nobody can see the others.
Text = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+(?![\s\S])")]

Name = Annotated[Text, Meta(description="The type in words, for people")]

# The upper bound keeps a balance within 64 bits for ninety million events on one entity.
_MOST_CENTS = 100_000_000_000
Cents = Annotated[int, Meta(ge=0, le=_MOST_CENTS, description="An amount in cents, never negative")]
Payment = Annotated[int, Meta(ge=1, le=_MOST_CENTS, description="An amount in cents, at least one")]


class NewCar(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a car when it is entered."""

    make: Annotated[Text, Meta(description="Who built it")]
    model: Annotated[Text, Meta(description="What they call it")]
    year: Annotated[int, Meta(ge=1886, le=2200, description="The year it was built")]
    price_cents: Annotated[Cents, Meta(description="Its price, in cents")]


class NewLoan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terms of a loan for a car."""

    car_id: Annotated[Identifier, Meta(description="The car that it pays for")]
    principal_cents: Annotated[Cents, Meta(description="The money lent, in cents")]
    term_months: Annotated[int, Meta(ge=1, le=600, description="Months until it is paid back")]


class LoanPayment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Money paid back on a loan."""

    amount_cents: Annotated[Payment, Meta(description="The money paid, in cents")]


class CarService(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work done on a car."""

    description: Annotated[Text, Meta(description="What was done")]
    cost_cents: Annotated[Cents, Meta(description="What it cost, in cents")]
    odometer_km: Annotated[
        int, Meta(ge=0, le=10_000_000, description="Kilometres driven until then")
    ]


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

    event_name: Name = "Car Created"
    data: NewCar


class LoanCreated(Envelope, frozen=True, kw_only=True, tag="LoanCreated"):
    """A loan was granted."""

    event_name: Name = "Loan Created"
    data: NewLoan


class LoanPaymentSubmitted(Envelope, frozen=True, kw_only=True, tag="LoanPaymentSubmitted"):
    """A payment on a loan arrived."""

    event_name: Name = "Loan Payment Submitted"
    data: LoanPayment


class CarServiceDone(Envelope, frozen=True, kw_only=True, tag="CarServiceDone"):
    """A car was serviced."""

    event_name: Name = "Car Service Done"
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
