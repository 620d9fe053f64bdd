"""Messages as they come in, made into deliveries."""

from datetime import datetime, timedelta

from headway.adapters.rabbitmq import headers
from headway.adapters.rabbitmq.sources import Arrived
from headway.adapters.rabbitmq.topology import work_queue_of
from headway.core.errors import MalformedEventError
from headway.core.travel import Travel
from headway.ports.bus import Delivery

_EARLY = timedelta(milliseconds=50)


def delivery_of(one: Arrived) -> Delivery:
    """Read what travels beside an event. What cannot be read is given on, and says why."""
    properties = one.properties
    held = properties.headers
    if held == headers.OF_A_NEW_MESSAGE and properties.message_id:
        # Nearly all are such, and this is read for every event.
        return Delivery(
            queue=work_queue_of(one.source),
            body=one.body,
            travel=Travel(operation=properties.message_id),
            receipt=(one.epoch, one.tag),
        )
    spoilt = ""
    try:
        travel = headers.read(held, properties.message_id)
    except MalformedEventError as error:
        # To begin anew would forget the attempts, and an event could go round for ever.
        travel, spoilt = headers.UNNAMED, str(error)
    return Delivery(
        queue=work_queue_of(one.source),
        body=one.body,
        travel=travel,
        receipt=(one.epoch, one.tag),
        returns=headers.returns(held) if held else 0,
        spoilt=spoilt,
    )


def due_later(one: Arrived, now: datetime) -> datetime | None:
    """Say when a message is due that came out of the longest delay and has to go round again."""
    held = one.properties.headers
    if not held or headers.DUE not in held:
        return None
    try:
        due = headers.due(held)
    except MalformedEventError:
        return None
    return due if due is not None and due - now > _EARLY else None
