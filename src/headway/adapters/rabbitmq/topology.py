"""Which queues and exchanges there are, and what they are like."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from headway.core.routing import routing_key
from headway.ports.bus import Queue
from headway.ports.history import KEPT

EXCHANGE = "headway.events"
CATALOGUE = "headway.catalogue"
HISTORY = "headway.history"
UNROUTED = "headway.unrouted"
VERSIONS = "headway.versions"
DELIVERY_LIMIT = 100
"""Far above what a suspect needs: whatever reaches it goes to the failed queue as it is."""

_SUSPECTS = ".suspects"
_MARKER = "headway.version."
_LONGEST_NAME = 255
_PER_DECADE = (100, 125, 150, 180, 200, 250, 300, 360, 400, 500, 600, 750, 900)
_LONGEST = 900_000
STEPS: tuple[int, ...] = tuple(
    step
    for decade in range(5)
    for digits in _PER_DECADE
    if (step := digits * 10**decade) <= _LONGEST
)
"""Delays in milliseconds, at most a quarter apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDeclaration:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What has to be there for some queues to work."""

    queues: Sequence[QueueDeclaration]
    exchanges: Sequence[tuple[str, str]]
    """Names and kinds."""
    bindings: Sequence[tuple[str, str, str]]
    """Queue, exchange, routing key."""


def topology(queues: Sequence[Queue], exchange: str, *, has_default_limit: bool) -> Topology:
    """Say what has to be declared.

    `has_default_limit`: this broker has a delivery limit where none is set (4.0 and later).
    """
    unlimited: dict[str, Any] = {"x-delivery-limit": -1} if has_default_limit else {}
    return Topology(
        queues=[
            history_queue(has_default_limit=has_default_limit),
            unrouted_queue(has_default_limit=has_default_limit),
            *(_quorum(name, unlimited) for name in dict.fromkeys(q.failed for q in queues)),
            *(_quorum(name, unlimited) for name in journals_of(queues)),
            *(_work_queue(queue.name, queue.failed) for queue in queues),
            *(_work_queue(suspects_of(queue.name), queue.failed) for queue in queues),
            *(_delay_queue(step) for step in STEPS),
        ],
        exchanges=[(exchange, "topic"), *((delay_name(step), "fanout") for step in STEPS)],
        bindings=[*_routes(queues, exchange), *((delay_name(s), delay_name(s), "") for s in STEPS)],
    )


def history_queue(*, has_default_limit: bool) -> QueueDeclaration:
    """Say what the history of changes is kept in: the newest entries, whoever reads them."""
    unlimited: dict[str, Any] = {"x-delivery-limit": -1} if has_default_limit else {}
    return _quorum(HISTORY, {"x-max-length": KEPT, "x-overflow": "drop-head", **unlimited})


def unrouted_queue(*, has_default_limit: bool) -> QueueDeclaration:
    """Describe the queue of events that no service takes: without limit of length or deliveries."""
    return _quorum(UNROUTED, {"x-delivery-limit": -1} if has_default_limit else {})


def suspects_of(queue: str) -> str:
    return f"{queue}{_SUSPECTS}"


def starts_of(failed: str) -> str:
    """Name the journal of a service in which the starts of its suspects are noted."""
    return f"headway.starts.{failed.removesuffix('.failed')}"


def journals_of(queues: Sequence[Queue]) -> list[str]:
    """Name the queues that are read as journals."""
    return [CATALOGUE, *dict.fromkeys(starts_of(queue.failed) for queue in queues)]


def work_queue_of(source: str) -> str:
    return source.removesuffix(_SUSPECTS)


def delay_name(step: int) -> str:
    return f"headway.delay.{step}"


def worker_queue(token: str) -> str:
    """Name the queue that is there for as long as a worker is connected."""
    return f"headway.worker.{token}"


def marker(service: str, version: str) -> str:
    """Name the queue that is there for as long as a version of a service counts as alive."""
    name = f"{_MARKER}{service}/{version}"
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    return f"{_MARKER}{service}/{sha256(version.encode()).hexdigest()[:24]}"


def marker_queue(name: str, expires: timedelta) -> QueueDeclaration:
    """Say what a marker is like: the broker deletes it when it is not used for so long."""
    return _quorum(name, {"x-expires": max(expires // timedelta(milliseconds=1), 1)})


def versions_queue(*, has_default_limit: bool) -> QueueDeclaration:
    """Say what the journal of versions is kept in."""
    return _quorum(VERSIONS, {"x-delivery-limit": -1} if has_default_limit else {})


def step_for(milliseconds: float) -> int | None:
    """Give the shortest step that is long enough; None: it is due now.

    What is longer than the longest step goes round again.
    """
    if milliseconds <= 0:
        return None
    return next((step for step in STEPS if step >= milliseconds), STEPS[-1])


def _routes(queues: Sequence[Queue], exchange: str) -> Iterator[tuple[str, str, str]]:
    for queue in queues:
        for event_type in queue.event_types:
            yield queue.name, exchange, routing_key(event_type)


def _quorum(name: str, more: dict[str, Any]) -> QueueDeclaration:
    # Under a limit of length the broker would drop the oldest message, although it was confirmed.
    arguments = {"x-queue-type": "quorum", "x-overflow": "reject-publish", **more}
    return QueueDeclaration(name=name, arguments=arguments)


def _work_queue(name: str, failed: str) -> QueueDeclaration:
    return _quorum(
        name,
        {
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-routing-key": failed,
            **_DEAD_LETTERS_SURELY,
        },
    )


def _delay_queue(step: int) -> QueueDeclaration:
    # The routing key of a message is the name of its work queue, and stays so.
    return _quorum(delay_name(step), {"x-message-ttl": step, **_DEAD_LETTERS_SURELY})


_DEAD_LETTERS_SURELY = {
    "x-dead-letter-exchange": "",
    "x-dead-letter-strategy": "at-least-once",
}
"""Needs that the queue refuses what is too much, as all of them do."""
