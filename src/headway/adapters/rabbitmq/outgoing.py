"""Messages as they leave: to the exchange, to a queue, into a delay, to the suspects."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pika

from headway.adapters.rabbitmq import headers
from headway.adapters.rabbitmq.topology import STEPS, delay_name, step_for, suspects_of
from headway.core.routing import routing_key
from headway.core.travel import Travel
from headway.ports.bus import Delivery, HandedBack, Later, Message, Parked

DIRECT = ""
"""The broker's own exchange: the routing key is the name of a queue."""
_PERSISTENT = 2


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as the broker gets it."""

    exchange: str
    routing_key: str
    body: bytes
    properties: pika.BasicProperties


def event(message: Message, exchange: str) -> Outgoing:
    """An event for whoever takes its type, or straight to one queue."""
    if message.queue is None:
        target, key = exchange, routing_key(message.event_type)
    else:
        target, key = DIRECT, message.queue
    properties = _properties(message.travel, headers.write(message.travel), message.event_type)
    return Outgoing(target, key, message.body, properties)


def unfinished(delivery: Delivery, then: Later | Parked | HandedBack, now: datetime) -> Outgoing:
    """To where it waits until it is taken again."""
    match then:
        case HandedBack(due=datetime() as due, travel=travel):
            return again_later(delivery, due, now, travel)
        case HandedBack():
            return again(delivery)
        case Later(due=due, travel=travel) | Parked(due=due, travel=travel):
            return _later(delivery, travel, due, now)


def _later(
    delivery: Delivery, travel: Travel, due: datetime, now: datetime, *, returns: int = 0
) -> Outgoing:
    """Into a delay; what is longer than the longest one goes round again."""
    milliseconds = (due - now).total_seconds() * 1000
    step = step_for(milliseconds)
    rest = due if milliseconds > STEPS[-1] else None
    written = headers.write(travel, returns=returns, due=rest)
    exchange = DIRECT if step is None else delay_name(step)
    return Outgoing(exchange, delivery.queue, delivery.body, _properties(travel, written))


def again(delivery: Delivery) -> Outgoing:
    """Back into its queue, as it was."""
    return _straight(delivery, delivery.queue)


def again_later(
    delivery: Delivery, due: datetime, now: datetime, travel: Travel | None = None
) -> Outgoing:
    """Into a delay, as it was, or with something else beside it."""
    return _later(delivery, travel or delivery.travel, due, now, returns=delivery.returns)


def suspected(delivery: Delivery) -> Outgoing:
    """To the suspects of its queue."""
    return _straight(delivery, suspects_of(delivery.queue))


def _straight(delivery: Delivery, queue: str) -> Outgoing:
    written = headers.write(delivery.travel, returns=delivery.returns)
    return Outgoing(DIRECT, queue, delivery.body, _properties(delivery.travel, written))


def _properties(
    travel: Travel, written: dict[str, Any], event_type: str = ""
) -> pika.BasicProperties:
    return pika.BasicProperties(
        content_type="application/json",
        delivery_mode=_PERSISTENT,
        message_id=headers.message_id(travel),
        type=short(event_type),
        headers=written or None,
    )


def short(text: str | None) -> str | None:
    """Give a text that can be a property; what is empty or too long is left out."""
    return text if text and len(text.encode()) <= headers.LONGEST_SHORT else None
