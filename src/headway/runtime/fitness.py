"""Which services can run together."""

import logging
from collections.abc import Sequence
from datetime import timedelta

from headway.core.errors import ConfigurationError
from headway.core.origin import origin
from headway.core.policy import RetryConfig
from headway.core.showing import shown
from headway.core.suggestion import nearest
from headway.runtime.service import Service, Subscription
from headway.runtime.storeless import needs_store


def refuse_unfit(services: Sequence[Service]) -> None:
    """Refuse services that have a name or a queue in common, or nothing to do."""
    names = [service.name for service in services]
    queues = [queue.name for service in services for queue in service.queues()]
    for kind, found in (("service", names), ("queue", queues)):
        twice = sorted({each for each in found if found.count(each) > 1})
        if twice:
            raise ConfigurationError(
                f"{kind} {twice[0]!r} is there twice: give each {kind} a name of its own"
            )
    for kept in sorted({service.failed_queue for service in services}.intersection(queues)):
        raise ConfigurationError(f"queue {kept!r} is not accepted: letters are kept there")
    for service in services:
        refuse_misspelt(service)
        if not service.subscriptions:
            raise ConfigurationError(
                f"service {service.name!r} handles nothing: subscribe a handler with "
                f"@{service.name}.on(...)"
            )


def refuse_misspelt(service: Service) -> None:
    """Refuse a lifecycle whose collection is nearly one that a handler works on.

    For one that no handler works on there may be a reason: documents are inserted into it.
    """
    declared = service.lifecycles_by_name.keys()
    worked_on = {each.documents[0] for each in service.subscriptions.values() if each.documents}
    for name in declared - worked_on:
        near = nearest(name, worked_on - declared)
        if near:
            raise ConfigurationError(
                f"{service.name}: no handler works on documents of {name!r}, for which there is a "
                f"lifecycle: did you mean {near!r}?"
            )


def warn_of_stages(services: Sequence[Service]) -> None:
    """Name different handlers of one collection: what one has processed is over for the other.

    That may be meant: another event may ask for the same work. So it is not refused.
    """
    first: dict[str, Subscription] = {}
    for each in (each for service in services for each in service.subscriptions.values()):
        if each.documents is None:
            continue
        collection = each.documents[0]
        other = first.setdefault(collection, each)
        if other.handler != each.handler:
            tell_of_stages(
                collection,
                (origin(other.handler), other.event_type),
                (origin(each.handler), each.event_type),
            )


def tell_of_stages(collection: str, one: tuple[str, str], other: tuple[str, str]) -> None:
    """Warn of two handlers of one collection, each given with what it handles."""
    logging.getLogger("headway").warning(
        "Handlers %s of %s and %s of %s are both about documents of %s, and one status is one "
        "stage: neither runs for a document that the other has processed. If these are two stages, "
        "give the second a collection of its own: have the first insert a document there, and name "
        "it in documents= of the second. If they do the same work, subscribe one function to both "
        "types.",
        *map(shown, (*one, *other)),
        shown(collection),
    )


def refuse_short_retention(
    retention: timedelta, services: Sequence[Service], retry: RetryConfig
) -> None:
    """Refuse to forget done work while a copy of its event may still wait for a retry."""
    for service in services:
        ttls = [(service.retry or retry).ttl]
        if service.transient.ttl is not None:
            ttls.append(service.transient.ttl)
        if retention <= max(ttls):
            raise ConfigurationError(
                f"Invalid retention={retention} for service {service.name!r}: a copy of an event "
                f"may be retried for {max(ttls)}, and would run again once the record of its work "
                "is deleted. Use a longer retention, or a shorter ttl for retries."
            )


def refuse_without_store(services: Sequence[Service]) -> None:
    for service in services:
        for subscription in service.subscriptions.values():
            if subscription.documents is not None:
                raise needs_store(
                    f"service {service.name!r}, with documents={subscription.documents!r} for "
                    f"{subscription.event_type},"
                )


def shortest_lease(services: Sequence[Service]) -> timedelta | None:
    """Give the shortest lease on documents that any of them takes."""
    lifecycles = [each.lifecycle for service in services for each in service.subscriptions.values()]
    leases = [each.lease for each in lifecycles if each is not None and each.lease is not None]
    return min(leases, default=None)
