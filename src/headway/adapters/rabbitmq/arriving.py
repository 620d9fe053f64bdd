"""Messages as they come in, made into deliveries."""

from datetime import datetime, timedelta

from headway.adapters.rabbitmq import headers
from headway.adapters.rabbitmq.properties import PropertiesReader
from headway.adapters.rabbitmq.sources import Arrived
from headway.adapters.rabbitmq.topology import work_queue_of
from headway.core.travel import Travel
from headway.ports.bus import Delivery

_EARLY = timedelta(milliseconds=50)
_LATEST = timedelta(days=366)
"""How far ahead an event may be due; whatever claims more is due now."""
_READER = PropertiesReader()


def delivery_of(one: Arrived) -> Delivery:
    """Read what travels beside an event. What cannot be read is given on, and says why."""
    try:
        held, message_id = _READER.read(one.properties)
    except Exception as error:  # noqa: BLE001 (whatever it is, its neighbours must not suffer)
        why = f"the properties of the message cannot be read: {error}"
        return _delivery(one, headers.UNNAMED, spoilt=why)
    if held == headers.OF_A_NEW_MESSAGE and message_id:
        # Nearly all are such, and this is read for every event.
        return Delivery(
            queue=work_queue_of(one.source),
            body=one.body,
            travel=Travel(operation=message_id),
            receipt=(one.epoch, one.tag),
        )
    spoilt = ""
    try:
        travel = headers.read(held, message_id)
    except Exception as error:  # noqa: BLE001 (as above)
        # To begin anew would forget the attempts, and an event could go round for ever.
        travel, spoilt = headers.UNNAMED, str(error)
    return _delivery(one, travel, returns=headers.returns(held) if held else 0, spoilt=spoilt)


def _delivery(one: Arrived, travel: Travel, *, returns: int = 0, spoilt: str = "") -> Delivery:
    return Delivery(
        queue=work_queue_of(one.source),
        body=one.body,
        travel=travel,
        receipt=(one.epoch, one.tag),
        returns=returns,
        spoilt=spoilt,
    )


def due_later(one: Arrived, now: datetime) -> datetime | None:
    """Say when a message is due that came out of the longest delay and has to go round again."""
    if headers.DUE_AS_BYTES not in one.properties:
        return None
    try:
        due = headers.due(_READER.read(one.properties)[0])
    except Exception:  # noqa: BLE001 (what cannot be read is given on, and says why)
        return None
    return due if due is not None and _EARLY < due - now <= _LATEST else None
