"""The event that tells others, once, that an event has ended as a letter."""

import logging
from datetime import datetime
from typing import Any

import msgspec

from headway.core.event import Event, encode, open_envelope, publishable
from headway.core.failure import words
from headway.core.origin import origin
from headway.core.secrets import hidden
from headway.core.travel import LONGEST_MESSAGE, Travel, instant
from headway.ports.bus import Message
from headway.runtime.attempt import Attempt
from headway.runtime.service import FailedData
from headway.runtime.work import nth_id


def failed_event(
    attempt: Attempt, travel: Travel, error: BaseException, now: datetime
) -> tuple[Message, ...]:
    """Give the event of `failed=`, where the subscription has one."""
    subscription = attempt.subscription
    if subscription.failed is None:
        return ()
    most = attempt.recovery.service.max_hops
    if most is not None and travel.hops >= most:
        logging.getLogger("headway").warning(
            "%s is not published: %d handlers published one after another until this event. If "
            "failed= goes round in circles, end it. Service(max_hops=) sets the limit.",
            subscription.failed,
            travel.hops,
        )
        return ()
    event_id = nth_id(attempt.key, 0, "failed")
    ended = _as_published(attempt)
    facts = {
        **_about(attempt, ended.data),
        "error_message": hidden(words(error))[:LONGEST_MESSAGE],
        "error_type": type(error).__name__,
        "retry_count": travel.failures,
        "failed_at": instant(now),
    }
    event = Event(subscription.failed, event_id, instant(now), "1.0", facts)
    body = None
    if subscription.failed_data is not None:
        body = _in_own_words(subscription.failed_data, ended, event)
    travel_of_it = Travel(operation=event_id, hops=travel.hops + 1)
    message = Message(
        body=body or encode(event),
        travel=travel_of_it,
        event_type=subscription.failed,
        needs_consumer=False,
    )
    return (message,)


def _in_own_words(made_by: FailedData, ended: Event, usual: Event) -> bytes | None:
    """Have the user's function make the data; None if it cannot, for the letter goes before."""
    try:
        data = made_by(ended, dict(usual.data))
        return publishable(msgspec.structs.replace(usual, data=data))
    except Exception:  # whatever a function of the user's own raises
        logging.getLogger("headway").exception(
            "failed_data=<%s> could not make the data of %s: the usual data is published",
            origin(made_by),
            usual.event_type,
        )
        return None


def _as_published(attempt: Attempt) -> Event:
    """Give the event whatever the handler did to it; as plain JSON if its type refuses it now."""
    try:
        return attempt.event
    except Exception:  # noqa: BLE001 (a type of the user's own may raise anything)
        envelope = open_envelope(attempt.delivery.body)
        data = msgspec.json.decode(envelope.data)
        return Event(envelope.event_type, envelope.event_id or "", data=data)


def _about(attempt: Attempt, data: Any) -> dict[str, Any]:
    """Give the fields of the data that name what the event was about."""
    names: list[object] = [attempt.subscription.dedup]
    if attempt.subscription.documents is not None:
        names.append(attempt.subscription.documents[1])
    return {
        name: data.get(name) if isinstance(data, dict) else getattr(data, name, None)
        for name in names
        if isinstance(name, str)
    }
