"""`handle_event_with_retry`, bound to the real clock, chance and log."""

import os
import platform
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar, overload

from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.assembly.retrying import told
from headway.assembly.settings import retry_config
from headway.core.catalogue import DEFAULT_CLASSIFIER
from headway.core.classify import Classifier
from headway.core.policy import TRANSIENT, RetryConfig, RetryPolicy
from headway.core.routing import checked_name
from headway.core.travel import Travel
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.observer import Observer
from headway.ports.reporter import ErrorReporter
from headway.runtime.case import Abandoned, Delayed, Handling, ToDlq, ToPark
from headway.runtime.handling import handle
from headway.runtime.intake import Headers, take_in

R = TypeVar("R")


@overload
def handle_event_with_retry(
    handler: Callable[[Any], Coroutine[Any, Any, R]],
    event: Any,
    *,
    service_name: str,
    idempotency_key: str | None = None,
    config: RetryConfig | None = None,
    transient: RetryPolicy = TRANSIENT,
    classifier: Classifier = DEFAULT_CLASSIFIER,
    dlq: ToDlq | None = None,
    park: ToPark | None = None,
    travel: Travel | Headers | None = None,
    observer: Observer | None = None,
    error_reporter: ErrorReporter | None = None,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Coroutine[Any, Any, R | Delayed | Abandoned]: ...
@overload
def handle_event_with_retry(
    handler: Callable[[Any], R],
    event: Any,
    *,
    service_name: str,
    idempotency_key: str | None = None,
    config: RetryConfig | None = None,
    transient: RetryPolicy = TRANSIENT,
    classifier: Classifier = DEFAULT_CLASSIFIER,
    dlq: ToDlq | None = None,
    park: ToPark | None = None,
    travel: Travel | Headers | None = None,
    observer: Observer | None = None,
    error_reporter: ErrorReporter | None = None,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> R | Delayed | Abandoned: ...
def handle_event_with_retry(
    handler: Callable[[Any], Any],
    event: Any,
    *,
    service_name: str,
    idempotency_key: str | None = None,
    config: RetryConfig | None = None,
    transient: RetryPolicy = TRANSIENT,
    classifier: Classifier = DEFAULT_CLASSIFIER,
    dlq: ToDlq | None = None,
    park: ToPark | None = None,
    travel: Travel | Headers | None = None,
    observer: Observer | None = None,
    error_reporter: ErrorReporter | None = None,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Any:
    """Handle one event in a consumer loop of your own, by the rule that services use.

    A coroutine function gives a coroutine: it waits between attempts without blocking, and ends
    with the handler's answer or with `Abandoned`. A plain function is tried once and never waits:
    its answer is given back, or `Delayed`, or `Abandoned`. Acknowledge the delivery after each of
    them, after `Delayed` once the event is kept for later. If anything is raised, do not.

    RETRY_* is read at the first event, once in a process. To change the schedule while it runs,
    keep a RetryConfig of your own, give it as `config`, and replace it: each event goes by the one
    that it was handled with.

    Args:
        handler: Called with the event. DocumentNotFoundError means "not yet".
        event: The bytes of a message, an Event, or the dict that its JSON is.
        service_name: What logs, metrics and letters call the service.
        idempotency_key: Names the work, made from stable ids; `<service>-<event_id>` if not given.
        config: The schedule for documents that are not visible yet; from RETRY_* if not given.
        transient: The schedule for faults that pass and for errors that no rule knows.
        classifier: What an exception means.
        dlq: Stores the Letter of an event that ended without success. If it raises, so does this.
            Without it the last exception of the handler is raised, and no letter is kept.
        park: Keeps a `Delayed` event until it is due; then a coroutine function is not waited for
            either.
        travel: The attempts so far: the headers of the message, or `Delayed.travel`.
        observer: Hears the facts besides the log.
        error_reporter: Takes one report for each event that ends without success.
        clock: Tells the time and waits.
        chance: Rolls the dice for the jitter.
    """
    service = checked_name("service_name", service_name)
    intake = take_in(event, service=service, key=idempotency_key, travel=travel, chance=chance)
    handling = Handling(
        service=service,
        not_yet=_not_yet(config),
        transient=transient,
        classify=classifier.classify,
        clock=clock,
        chance=chance,
        observer=told(observer),
        worker=f"{platform.node()}:{os.getpid()}",
        dlq=dlq,
        park=park,
        reporter=error_reporter,
    )
    return handle(handling, handler, intake)


@cache  # for every event it would be most of what handling costs; the docstring says how to reload
def _not_yet(config: RetryConfig | None) -> RetryPolicy:
    return (config or retry_config()).policy()
