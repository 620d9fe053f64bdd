"""Rebuild the event of a stuck document, through the schema of its own consumer.

What this gives, the consumer accepts: it is read, named and looked at as the consumer will do it.
"""

import copy
import inspect
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from headway.core.beginning import sweep_run
from headway.core.event import Event, open_envelope, publishable, read_data
from headway.core.origin import origin
from headway.core.sweep import Requeue
from headway.core.travel import Travel, instant
from headway.core.writes import ID, Document
from headway.ports.bus import Message
from headway.runtime.service import Rebuild
from headway.runtime.sweep_targets import Target
from headway.runtime.work import nth_id


@dataclass(frozen=True, slots=True)
class Sending:
    """A document that is due, and its event."""

    document: Document
    requeue: Requeue
    message: Message

    @property
    def document_id(self) -> str:
        return str(self.document[ID])


def rebuilt(target: Target, document: Document, requeue: Requeue, now: datetime) -> Sending:
    """Make the event of a document. Whatever `rebuild` or the consumer's schema raises, is raised.

    Sent again for the same attempt, it has the same id and the same operation.
    """
    subscription = target.subscription
    if subscription.rebuild is not None:
        return _rebuilt(target, document, _data(subscription.rebuild, document), requeue, now)
    one, many = document[ID], [document[ID]]
    # A name such as order_ids or orders says a list; where the type says otherwise, it goes first.
    likely, other = (many, one) if str(target.field).endswith("s") else (one, many)
    try:
        return _rebuilt(target, document, {target.field: likely}, requeue, now)
    except msgspec.ValidationError:
        try:
            return _rebuilt(target, document, {target.field: other}, requeue, now)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(
                f"the id alone is no data of {subscription.event_type}: {error}. Use rebuild=, a "
                "function that makes the data of an event from a document."
            ) from error


def _rebuilt(
    target: Target, document: Document, data: Any, requeue: Requeue, now: datetime
) -> Sending:
    subscription = target.subscription
    event = Event(
        subscription.event_type,
        nth_id(requeue.operation, 0, "sweep"),
        instant(now),
        data=data,
    )
    body = publishable(event, any_data=True)
    envelope = open_envelope(body)
    read = read_data(envelope, subscription.data)
    subscription.name_work(envelope, read, requeue.operation)
    _check_about(target, document, subscription.document_ids(envelope, read))
    travel = Travel(operation=requeue.operation, generation=sweep_run(requeue.operation))
    message = Message(
        body=body, travel=travel, event_type=subscription.event_type, queue=subscription.queue
    )
    return Sending(document, requeue, message)


def _data(rebuild: Rebuild, document: Document) -> Any:
    # A copy: what it was when it was read decides whether it may be claimed.
    data = rebuild(copy.deepcopy(document))
    if inspect.iscoroutine(data):
        data.close()
        raise TypeError(f"rebuild=<{origin(rebuild)}> returned a coroutine. Use a plain function.")
    return data


def _check_about(target: Target, document: Document, ids: tuple[str, ...]) -> None:
    """One attempt at one document is one operation, so the event must be about it alone."""
    if ids != (str(document[ID]),):
        named = origin(target.field) if callable(target.field) else f"data.{target.field}"
        raise ValueError(
            f"the event is about {list(ids[:3])!r} by {named}, and not about this document: "
            "rebuild= should give the data of an event for the one document that it is given"
        )
