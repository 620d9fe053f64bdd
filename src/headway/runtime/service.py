"""A service: which events it handles, and by which rules. It declares; a worker runs it."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headway.core.catalogue import DEFAULT_CLASSIFIER, has_default_rules
from headway.core.classify import Classifier
from headway.core.data_type import Decoder, is_data_type
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
from headway.core.origin import is_coroutine, origin
from headway.core.policy import TRANSIENT, RetryConfig, RetryPolicy
from headway.core.routing import checked_name, failed_queue_name, queue_name
from headway.core.showing import function_name
from headway.core.travel import LONGEST_VERSION
from headway.core.writes import Document
from headway.ports.bus import Queue
from headway.runtime.declaration import Declaration

Handler = Callable[..., Any]
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    T = DefaultedTypeVar("T", default=Any)
else:
    T = TypeVar("T")
W = TypeVar("W")
R = TypeVar("R")
Dedup = str | Callable[[Event], str]
Named = str | Callable[[Event], Sequence[str]]
"""Says which documents an event is about: the field of its data, or a function of the event."""
Rebuild = Callable[[Document], Any]
"""Makes the data of an event from the document that the event is about."""
FailedData = Callable[[Event, dict[str, Any]], Any]
"""Makes the data of a `*Failed` event from the event that has ended, and the usual facts."""

_LONGEST_GRACE = timedelta(days=7)


class Subscribe(Protocol[T]):
    """Decorates a handler of events whose data is of one type."""

    def __call__(self, handler: Callable[[Event[T], W], R], /) -> Callable[[Event[T], W], R]: ...


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
    data: Decoder | None = None
    timeout: timedelta | None = None

    @property
    def function(self) -> str:
        """Name of the handler, for log lines."""
        return function_name(self.handler)

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
        flood: When permanent failures of one event type are taken for a bad deploy.
        version: A text of your own, such as a git commit. During a roll-out it tells the old
            workers from the new ones: an event that one of them cannot read is left to the other.
            A sweep gives documents that failed by a programming error one attempt under another
            version.
        version_grace: How long a version counts as alive after its last worker was.
        lifecycles: How documents say where they are, for collections that this service works on
            or inserts into; without one, by `status`, with three attempts and no lease.
        announces: Types of events that it publishes and that no service has to take. An event of
            any other type that no service takes is kept as unrouted until one does. Types of
            `failed=` need no consumer either.
        slow_after: A handler that runs for longer is named in the log; None: none is.
        max_hops: So many handlers may publish one after another, each in answer to the event of
            the one before. The next that publishes fails, and its event becomes a dead letter; at
            a tenth of it a warning names the handler. None: chains of events may be endless.
    """

    name: str
    retry: RetryConfig | None = field(default=None, kw_only=True)
    transient: RetryPolicy = field(default=TRANSIENT, kw_only=True)
    classifier: Classifier = field(default=DEFAULT_CLASSIFIER, kw_only=True)
    failed_queue: str = field(default="", kw_only=True)
    outage: OutageRule = field(default=OutageRule(), kw_only=True)
    flood: FloodRule = field(default=FloodRule(), kw_only=True)
    version: str = field(default="", kw_only=True)
    version_grace: timedelta = field(default=timedelta(minutes=10), kw_only=True)
    lifecycles: Sequence[Lifecycle] = field(default=(), kw_only=True)
    announces: Sequence[str] = field(default=(), kw_only=True)
    announced: set[str] = field(default_factory=set, init=False, repr=False)
    """Types of `announces=` and `failed=`."""
    slow_after: timedelta | None = field(default=timedelta(minutes=5), kw_only=True)
    max_hops: int | None = field(default=1_000, kw_only=True)
    warn_hops: float = field(default=math.inf, init=False, repr=False)
    """From so many hops on, a handler that publishes is looked at."""
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
        _check_version(self.name, self.version, self.version_grace)
        self._check_types()
        if not has_default_rules(self.classifier):
            logging.getLogger("headway").warning(
                "The classifier of service %s has none of the default rules: what its own rules do "
                "not name is %s, also KeyError and DocumentNotFoundError. Use "
                "DEFAULT_CLASSIFIER.before([...]) of headway.retrying to keep the default rules.",
                self.name,
                self.classifier.unmatched,
            )
        names = [lifecycle.collection for lifecycle in self.lifecycles]
        for twice in sorted({name for name in names if names.count(name) > 1}):
            raise ConfigurationError(
                f"{self.name}: collection {twice!r} has two lifecycles; give it one"
            )
        self.lifecycles_by_name.update(zip(names, self.lifecycles, strict=True))
        if isinstance(self.announces, str):
            raise ConfigurationError(
                f"Invalid announces={self.announces!r} of service {self.name!r}: use a list of "
                f"event types, such as [{self.announces!r}]."
            )
        self.announced.update(checked_name("announces", each) for each in self.announces)

    def _check_types(self) -> None:
        kinds: dict[str, tuple[type, ...]] = {
            "retry": (RetryConfig, type(None)),
            "transient": (RetryPolicy,),
            "classifier": (Classifier,),
            "outage": (OutageRule,),
            "flood": (FloodRule,),
            "slow_after": (timedelta, type(None)),
        }
        for name, kind in kinds.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ConfigurationError(
                    f"Invalid {name}={value!r:.80} of service {self.name!r}. Use a "
                    f"{kind[0].__name__}."
                )
        if self.name.partition(".")[0] == "headway":
            raise ConfigurationError(
                f"Invalid name of service {self.name!r}: Headway names queues of its own so. Use "
                "another name."
            )
        if self.slow_after is not None and self.slow_after <= timedelta():
            raise ConfigurationError(
                f"Invalid slow_after={self.slow_after} of service {self.name!r}. Use a positive "
                "timedelta, or None for no warning."
            )
        if self.max_hops is not None:
            if type(self.max_hops) is not int or self.max_hops < 1:
                raise ConfigurationError(
                    f"Invalid max_hops={self.max_hops!r} of service {self.name!r}. Use a whole "
                    "number from 1, or None for no limit."
                )
            self.warn_hops = max(self.max_hops // 10, 1)
        given: object = self.lifecycles
        if not isinstance(given, Sequence) or not all(
            isinstance(each, Lifecycle) for each in given
        ):
            raise ConfigurationError(
                f"Invalid lifecycles={given!r:.80} of service {self.name!r}. Use a list, "
                'lifecycles=[Lifecycle("orders")].'
            )

    def on(
        self,
        event_type: str | type[T],
        *,
        failed: str | type | None = None,
        failed_data: Callable[[Event[T], dict[str, Any]], Any] | None = None,
        dedup: str | Callable[[Event[T]], str] | None = None,
        documents: tuple[str, str | Callable[[Event[T]], Sequence[str]]] | None = None,
        rebuild: Rebuild | None = None,
        data: type[T] | None = None,
        queue: str | None = None,
        timeout: timedelta | None = None,
    ) -> Subscribe[T]:
        """Handle events of one type with the decorated function: `handler(event, work)`.

        Args:
            event_type: The type, as it stands in the event; or the type of its data, whose name
                is the event type: `on(OrderPlaced)` is `on("OrderPlaced", data=OrderPlaced)`.
            failed: Type of the event that is published, once, when one ends as a dead letter; or
                the type of its data.
            failed_data: Makes the data of that event, `failed_data(event, facts)`; without it,
                or if it raises, the data is the facts.
            dedup: Field of the data that holds the ids by which work is recognised, or a function
                of the event that gives the key. Without it, the event's own id.
            documents: Collection, and the field of the data that holds the ids of its documents,
                or a function of the event that gives them: their attempts are counted and their
                status is set, and a sweep finds those that are stuck.
            rebuild: Makes the data of such an event from a stuck document; without it, the data
                is that field with the document's id: in a list if the name of the field ends in
                "s", unless the type of `data=` says otherwise.
            data: The type of the event's data: a msgspec Struct, a dataclass, a TypedDict or a
                pydantic model. Without it, a dict.
            queue: Name of the queue; `<service>.<routing key>` if not given.
            timeout: How long one attempt may take, for coroutines.
        """
        named, data = self._named(event_type, data)
        failed_type: Any = getattr(failed, "__name__", "") if is_data_type(failed) else failed

        def decorate(handler: Callable[[Event[T], W], R]) -> Callable[[Event[T], W], R]:
            declared = Declaration(named, handler)
            declared.check_handler()
            self._check_free(named, handler)
            name = queue_name(self.name, named) if queue is None else queue
            declared.check_name("queue", name)
            self._check_queue(name, declared, named)
            declared.check_failed(failed_type, failed_data)
            decoder = declared.check_data(data)
            declared.check_dedup(dedup, data)
            declared.check_documents(documents, data, rebuild)
            declared.check_timeout(timeout)
            if failed_type is not None:
                self.announced.add(failed_type)
            self.subscriptions[name, named] = Subscription(
                service=self.name,
                event_type=named,
                handler=handler,
                queue=name,
                is_coroutine=is_coroutine(handler),
                failed=failed_type,
                failed_data=failed_data,
                dedup=dedup,
                documents=documents,
                lifecycle=None if documents is None else self.lifecycle(documents[0]),
                rebuild=rebuild,
                data=decoder,
                timeout=timeout,
            )
            return handler

        return decorate

    def _named(self, event_type: Any, data: Any) -> tuple[str, Any]:
        """Give the name of an event type and the type of its data, which may be given as one."""
        if is_data_type(event_type):
            if data not in {None, event_type}:
                raise ConfigurationError(
                    f"Invalid data={data!r:.80} for {event_type.__name__}: the event type is a "
                    "type of data itself. Leave data= out."
                )
            event_type, data = event_type.__name__, event_type
        elif callable(event_type):
            raise ConfigurationError(
                f"Invalid @{self.name}.on ({origin(event_type)}): the event type is missing. "
                f'Use @{self.name}.on("OrderPlaced").'
            )
        return checked_name("event_type", event_type), data

    def lifecycle(self, collection: str) -> Lifecycle:
        """Give the lifecycle of a collection: the one that was declared, or the usual one."""
        return self.lifecycles_by_name.get(collection) or Lifecycle(collection)

    def _check_queue(self, queue: str, declared: Declaration, event_type: str) -> None:
        if queue == self.failed_queue:
            raise declared.refused(
                f"queue={queue!r}", "dead letters are kept there. Use another name."
            )
        for taken, other in self.subscriptions:
            if taken == queue and other != event_type:
                raise declared.refused(
                    f"queue={queue!r}",
                    f"it takes {other}, and two events of one id could not be told apart in it. "
                    "Use a queue for each type.",
                )

    def _check_free(self, event_type: str, handler: object) -> None:
        for (_, taken), other in self.subscriptions.items():
            if taken == event_type:
                raise ConfigurationError(
                    f"Invalid handler {origin(handler)}: {event_type} has a handler already in "
                    f"{self.name}, {origin(other.handler)}, and done work is remembered by service "
                    "and type. Call both from one handler, or use another service."
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


def _check_version(service: str, version: object, grace: object) -> None:
    is_text = isinstance(version, str) and (version.isprintable() or not version)
    if not (is_text and len(str(version)) <= LONGEST_VERSION):
        raise ConfigurationError(
            f"Invalid version={version!r} for service {service!r}: use a printable text of at "
            f"most {LONGEST_VERSION} characters, such as a git commit."
        )
    if not isinstance(grace, timedelta) or not timedelta() < grace <= _LONGEST_GRACE:
        raise ConfigurationError(
            f"Invalid version_grace={grace!r} for service {service!r}: use a timedelta of more "
            f"than 0 and at most {_LONGEST_GRACE.days} days."
        )


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
    """Refuse ids that are empty: they would make every event a duplicate of every other."""
    ids = [found] if isinstance(found, str | int) else found
    if not isinstance(ids, list | tuple) or not ids or "" in ids or None in ids:
        raise ValueError(f"{where} should hold the ids that name the work, not {found!r:.80}")
    return [str(each) for each in ids]
