"""A service: which events it handles, and by which rules. It declares; a worker runs it."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from headway.core.backoff import Exponential, NoJitter
from headway.core.catalogue import EVERYTHING
from headway.core.classify import Classifier
from headway.core.errors import ConfigurationError
from headway.core.event import (
    Envelope,
    Event,
    exact_key,
    idempotency_key,
    read_data,
    short_name,
)
from headway.core.health import FloodRule, OutageRule
from headway.core.lifecycle import Lifecycle
from headway.core.policy import RetryConfig, RetryPolicy
from headway.core.routing import checked_name, failed_queue_name, queue_name
from headway.core.writes import Document
from headway.ports.bus import Queue

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
Dedup = str | Callable[[Event], str]
Named = str | Callable[[Event], Sequence[str]]
"""Says which documents an event is about: the field of its data, or a function of the event."""
Rebuild = Callable[[Document], Any]
"""Makes the data of an event from the document that the event is about."""
FailedData = Callable[[Event, dict[str, Any]], Any]
"""Makes the data of a `*Failed` event from the event that has ended, and the usual facts."""

TRANSIENT = RetryPolicy(
    max_attempts=3,
    backoff=Exponential(base=timedelta(seconds=5), cap=timedelta(seconds=60), jitter=NoJitter()),
    ttl=timedelta(minutes=30),
)
"""Three tries, 5 and 10 seconds apart: for faults of the infrastructure and unknown errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One handler, and how the events that it gets are read, named and ended."""

    service: str
    event_type: str
    handler: Handler
    queue: str
    is_coroutine: bool
    failed: str | None = None
    failed_data: FailedData | None = None
    dedup: Dedup | None = None
    documents: tuple[str, Named] | None = None
    lifecycle: Lifecycle | None = None
    """Of the documents, where the event is about any."""
    rebuild: Rebuild | None = None
    data: msgspec.json.Decoder[Any] | None = None
    timeout: timedelta | None = None

    def name_work(self, envelope: Envelope, event: Event, operation: str) -> tuple[str, str]:
        """Give the idempotency key of an event, as people are shown it and as it is recorded.

        A function gets data of its own: nothing that it does to it reaches the handler.
        """
        if callable(self.dedup):
            key = _checked_key(self.dedup(read_data(envelope, self.data)))
            return key, key
        if self.dedup is None:
            key = f"{self.service}-{short_name(event.event_id or operation)}"
            return key, key
        ids = _ids(event.data, self.dedup)
        return idempotency_key(self.service, ids), exact_key(self.service, ids)

    def document_ids(self, envelope: Envelope, event: Event) -> tuple[str, ...]:
        """Give the ids of the documents that an event is about; a function gets its own data."""
        if self.documents is None:
            return ()
        is_function = callable(self.documents[1])
        return tuple(self.ids(read_data(envelope, self.data) if is_function else event))

    def ids(self, event: Event) -> list[str]:
        """Give the ids of the documents that an event is about."""
        if self.documents is None:
            return []
        named = self.documents[1]
        if not callable(named):
            return _ids(event.data, named)
        return _checked_ids(named(event), "documents=")


@dataclass(eq=False)
class Service:
    """Handlers subscribed to event types, under one name.

    Args:
        name: What logs, metrics, queues and records call it.
        retry: The schedule for documents that are not visible yet; from RETRY_* if not given.
        transient: The schedule for faults of the infrastructure and for unknown errors.
        classifier: What an exception means.
        failed_queue: Where letters go; `<name>.failed` if not given.
        outage: When a dependency counts as down.
        flood: When a stream of letters is taken for a bad deploy.
        lifecycles: How documents say where they are, for collections that this service works on
            or inserts into; without one, by `status`, with three attempts and no lease.
    """

    name: str
    retry: RetryConfig | None = field(default=None, kw_only=True)
    transient: RetryPolicy = field(default=TRANSIENT, kw_only=True)
    classifier: Classifier = field(default=EVERYTHING, kw_only=True)
    failed_queue: str = field(default="", kw_only=True)
    outage: OutageRule = field(default=OutageRule(), kw_only=True)
    flood: FloodRule = field(default=FloodRule(), kw_only=True)
    lifecycles: Sequence[Lifecycle] = field(default=(), kw_only=True)
    lifecycles_by_name: dict[str, Lifecycle] = field(default_factory=dict, init=False, repr=False)
    subscriptions: dict[tuple[str, str], Subscription] = field(
        default_factory=dict, init=False, repr=False
    )
    """By queue and event type."""

    def __post_init__(self) -> None:
        checked_name("service", self.name)
        self.failed_queue = checked_name(
            "failed_queue", self.failed_queue or failed_queue_name(self.name)
        )
        names = [lifecycle.collection for lifecycle in self.lifecycles]
        for twice in sorted({name for name in names if names.count(name) > 1}):
            raise ConfigurationError(
                f"{self.name}: collection {twice!r} has two lifecycles; give it one"
            )
        self.lifecycles_by_name.update(zip(names, self.lifecycles, strict=True))

    def on(
        self,
        event_type: str,
        *,
        failed: str | None = None,
        failed_data: FailedData | None = None,
        dedup: Dedup | None = None,
        documents: tuple[str, Named] | None = None,
        rebuild: Rebuild | None = None,
        data: type | None = None,
        queue: str | None = None,
        timeout: timedelta | None = None,
    ) -> Callable[[H], H]:
        """Handle events of one type with the decorated function: `handler(event, work)`.

        Args:
            event_type: The type, as it stands in the event.
            failed: Type of the event that is published, once, when one ends as a letter.
            failed_data: Makes the data of that event, `failed_data(event, facts)`; without it,
                or if it raises, the data is the facts.
            dedup: Field of the data that holds the ids by which work is recognised, or a function
                of the event that gives the key. Without it, the event's own id.
            documents: Collection, and the field of the data that holds the ids of its documents,
                or a function of the event that gives them: their attempts are counted and their
                status is set, and a sweep finds those that are stuck.
            rebuild: Makes the data of such an event from a stuck document; without it, the data
                is that field with the document's id.
            data: A msgspec Struct (or another type that msgspec knows) for the event's data.
            queue: Name of the queue; `<service>.<routing key>` if not given.
            timeout: How long one attempt may take, for coroutines.
        """
        checked_name("event_type", event_type)
        name = checked_name("queue", queue or queue_name(self.name, event_type))
        self._check_free(event_type)
        if timeout is not None and timeout <= timedelta():
            raise ConfigurationError(
                f"timeout={timeout} is not accepted: use a positive timedelta, or None for no limit"
            )
        if rebuild is not None and documents is None:
            raise ConfigurationError(
                f"rebuild={rebuild!r} is not accepted for {event_type} without documents=: say "
                "which documents it is about"
            )
        if rebuild is None and documents is not None and callable(documents[1]):
            raise ConfigurationError(
                f"documents=({documents[0]!r}, {documents[1]!r}) is not accepted for {event_type} "
                "without rebuild=: which field holds their ids is not known, so say how an event "
                "is made from a document"
            )
        if failed_data is not None:
            _check_failed_data(failed_data, event_type, failed)
        if name == self.failed_queue:
            raise ConfigurationError(
                f"queue={name!r} is not accepted: letters are kept there; use another name"
            )

        def decorate(handler: H) -> H:
            _check_handler(handler)
            self._check_free(event_type)
            self._check_queue(name, event_type)
            coroutine = _is_coroutine(handler)
            if timeout is not None and not coroutine:
                raise ConfigurationError(
                    f"timeout={timeout} is not accepted for {handler!r}: a thread cannot be "
                    "stopped from outside; make it a coroutine, or limit what it waits for"
                )
            self.subscriptions[name, event_type] = Subscription(
                service=self.name,
                event_type=event_type,
                handler=handler,
                queue=name,
                is_coroutine=coroutine,
                failed=failed,
                failed_data=failed_data,
                dedup=dedup,
                documents=documents,
                lifecycle=None if documents is None else self.lifecycle(documents[0]),
                rebuild=rebuild,
                data=None if data is None else msgspec.json.Decoder(data),
                timeout=timeout,
            )
            return handler

        return decorate

    def lifecycle(self, collection: str) -> Lifecycle:
        """Give the lifecycle of a collection: the one that was declared, or the usual one."""
        return self.lifecycles_by_name.get(collection) or Lifecycle(collection)

    def _check_queue(self, queue: str, event_type: str) -> None:
        for taken, other in self.subscriptions:
            if taken == queue and other != event_type:
                raise ConfigurationError(
                    f"queue={queue!r} is not accepted for {event_type}: it takes {other}, and two "
                    "events of one id could not be told apart in it; give each type its own"
                )

    def _check_free(self, event_type: str) -> None:
        if any(taken == event_type for _, taken in self.subscriptions):
            raise ConfigurationError(
                f"{self.name}: {event_type} has a handler already, and done work is remembered by "
                "service and type: call both from one handler, or make another service"
            )

    def queues(self) -> Sequence[Queue]:
        """Give the queues that this service takes from."""
        types: dict[str, list[str]] = {}
        for queue, event_type in self.subscriptions:
            types.setdefault(queue, []).append(event_type)
        return [
            Queue(name=name, event_types=tuple(kinds), failed=self.failed_queue)
            for name, kinds in types.items()
        ]


def _check_failed_data(failed_data: object, event_type: str, failed: str | None) -> None:
    named = f"failed_data={failed_data!r} is not accepted for {event_type}"
    if failed is None:
        raise ConfigurationError(f"{named} without failed=: say which event it makes the data of")
    if not callable(failed_data) or _is_coroutine(failed_data):
        raise ConfigurationError(
            f"{named}: use a plain function (event, facts) that gives the data at once"
        )


def _check_handler(handler: Handler) -> None:
    if not callable(handler):
        raise ConfigurationError(f"{handler!r} is no handler: decorate a function (event, work)")
    plain = inspect.unwrap(handler)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ConfigurationError(
            f"{handler!r} is no handler: it has a yield in it, so calling it runs nothing"
        )
    try:
        inspect.signature(handler).bind(None, None)
    except TypeError:
        raise ConfigurationError(
            f"{handler!r} is no handler: it must take two arguments, (event, work)"
        ) from None


def _is_coroutine(handler: Handler) -> bool:
    """Say whether to await it; a wrapper counts as what it is, or else as what it wraps."""
    own_call = getattr(handler, "__call__", None)  # noqa: B004
    candidates = (handler, inspect.unwrap(handler), own_call)
    return any(inspect.iscoroutinefunction(each) for each in candidates)


def _checked_key(key: object) -> str:
    """Refuse a key that would make every event a duplicate of every other."""
    if not isinstance(key, str) or not key:
        raise ValueError(f"dedup= gave {key!r:.80}: a text that names the work is needed")
    key.encode()  # a text that cannot be written down is refused here
    return key


def _ids(data: Any, name: str) -> list[str]:
    found = data.get(name) if isinstance(data, dict) else getattr(data, name, None)
    return _checked_ids(found, f"data.{name}")


def _checked_ids(found: object, where: str) -> list[str]:
    if isinstance(found, str | int):
        return [str(found)]
    if not isinstance(found, list | tuple) or not found:
        raise ValueError(f"{where} should hold the ids that name the work, not {found!r:.80}")
    return [str(each) for each in found]
