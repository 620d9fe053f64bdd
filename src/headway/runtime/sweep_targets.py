"""What is swept: for each collection, the one handler to which stuck documents are sent again."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from headway.core.errors import ConfigurationError
from headway.core.showing import described
from headway.core.suggestion import suggestion
from headway.core.sweep import SweepRule
from headway.core.sweep_settings import SweepSettings
from headway.ports.bus import Bus, Queue
from headway.runtime.fitness import refuse_misspelt
from headway.runtime.service import Named, Service, Subscription

_LOG = logging.getLogger("headway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One collection, the rule for its documents, and who works on them."""

    subscription: Subscription
    field: Named
    """Of the event's data, which holds the ids of its documents; or a function that gives them."""
    rule: SweepRule
    queue: Queue

    @property
    def collection(self) -> str:
        return self.rule.collection


def find_targets(
    services: Sequence[Service], settings: SweepSettings, only: Collection[str] = ()
) -> list[Target]:
    """Find what services say about their documents; of these, the collections that are asked for.

    Raises:
        ConfigurationError: There is nothing to sweep, or it is not clear to whom a stuck document
            is to be sent.
    """
    found: dict[str, list[Target]] = {}
    for service in services:
        refuse_misspelt(service)
        queues = {queue.name: queue for queue in service.queues()}
        for subscription in service.subscriptions.values():
            if subscription.documents is None or subscription.lifecycle is None:
                continue
            collection, field = subscription.documents
            target = Target(
                subscription=subscription,
                field=field,
                rule=settings.rule(subscription.lifecycle),
                queue=queues[subscription.queue],
            )
            found.setdefault(collection, []).append(target)
    if not found:
        names = ", ".join(service.name for service in services) or "none"
        raise ConfigurationError(
            f"there is nothing to sweep: no handler of these services ({names}) says which "
            "documents its events are about; say it with @service.on(..., documents=(COLLECTION, "
            "FIELD))"
        )
    settings.refuse_misspelt(found)
    targets = {collection: _one(collection, its) for collection, its in found.items()}
    for name in only:
        if name not in targets:
            raise ConfigurationError(
                f"collection {name!r} is not swept here: {suggestion(name, targets)}"
            )
    return [target for name, target in targets.items() if not only or name in only]


async def of_live_version(target: Target, bus: Bus) -> Target:
    """Give a target with the version that all live workers of its queue run, if they run one.

    Of several versions any may take an event, also one that has failed with it. Where the bus does
    not answer, the version is unknown, as where no worker lives.
    """
    try:
        live = await bus.live_versions(target.queue.name)
    except Exception as error:  # noqa: BLE001 (whatever a driver raises when the engine is unavailable)
        _LOG.debug("Which versions of %s live is unknown: %s", target.queue.name, described(error))
        live = ()
    version = next(iter(live)) if len(live) == 1 else None
    return replace(target, rule=replace(target.rule, version=version))


def _one(collection: str, targets: Sequence[Target]) -> Target:
    """Of several handlers for one collection, take the one that can rebuild its event."""
    if len(targets) == 1:
        return targets[0]
    rebuilding = [target for target in targets if target.subscription.rebuild is not None]
    if len(rebuilding) == 1:
        return rebuilding[0]
    names = ", ".join(f"{t.subscription.service}: {t.subscription.event_type}" for t in targets)
    have = "several of them have" if rebuilding else "none of them has"
    raise ConfigurationError(
        f"documents of {collection!r} are worked on by {len(targets)} handlers ({names}), and "
        f"{have} rebuild=: give it to exactly one, to which stuck documents are to be sent; or, if "
        "they are two stages, give each a collection of its own, because one status is one stage"
    )
