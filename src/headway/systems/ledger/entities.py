"""What an event does to the car or the loan it is about: a pure function.

Events may overtake one another on their way in. So an event about an entity that nobody has entered
yet is not refused: it makes a *provisional* entity, which its Created event completes. Counts and
sums come out the same in every order, and no fact is turned away because it came early.
"""

from dataclasses import dataclass, replace
from typing import Literal

from headway.systems.ledger.decoding import RefusedEventError
from headway.systems.ledger.events import (
    CarCreated,
    CarServiceDone,
    Event,
    LoanCreated,
    LoanPaymentSubmitted,
    amount_cents,
)

Kind = Literal["car", "loan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A car or a loan, as the events so far have made it."""

    entity_id: str
    kind: Kind
    provisional: bool = True
    """Its Created event has not arrived yet."""
    opening_cents: int = 0
    """The price of a car, the principal of a loan."""
    movements: int = 0
    """Services of a car, payments on a loan."""
    moved_cents: int = 0
    """What they come to."""

    def described(self) -> dict[str, object]:
        """Give the entity in the words of its kind."""
        common = {
            "entity_id": self.entity_id,
            "kind": self.kind,
            "provisional": self.provisional,
        }
        if self.kind == "car":
            return common | {
                "price_cents": self.opening_cents,
                "services": self.movements,
                "service_cents": self.moved_cents,
            }
        return common | {
            "principal_cents": self.opening_cents,
            "payments": self.movements,
            "paid_cents": self.moved_cents,
            "balance_cents": self.opening_cents - self.moved_cents,
        }


def apply(entity: Entity | None, event: Event) -> Entity:
    """Say what becomes of the entity; what cannot be is refused and changes nothing."""
    kind: Kind = "car" if isinstance(event, CarCreated | CarServiceDone) else "loan"
    entity = entity or Entity(entity_id=event.entity_id, kind=kind)
    if entity.kind != kind:
        raise RefusedEventError(
            "entity_id", f"{event.entity_id!r} is a {entity.kind}, and this event is about a {kind}"
        )
    match event:
        case CarCreated() | LoanCreated():
            if not entity.provisional:
                raise RefusedEventError(
                    "entity_id",
                    f"the {kind} {event.entity_id!r} was created by another event before",
                )
            return replace(entity, provisional=False, opening_cents=amount_cents(event))
        case CarServiceDone() | LoanPaymentSubmitted():
            return replace(
                entity,
                movements=entity.movements + 1,
                moved_cents=entity.moved_cents + amount_cents(event),
            )
