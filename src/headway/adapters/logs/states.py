"""Lines about states that begin and end: outages, pauses, workers that nothing reaches."""

import logging

from headway.adapters.logs.durations import short
from headway.core.facts import (
    EventsRouted,
    EventsUnrouted,
    EventsWaiting,
    FloodChanged,
    HealthChanged,
    ReachChanged,
)
from headway.core.showing import shown


def health(log: logging.Logger, fact: HealthChanged) -> None:
    fields = {
        "service": fact.service,
        "event_type": shown(fact.event_type),
        "rule": fact.rule,
        "down": fact.down,
    }
    if fact.down:
        log.warning(
            "Dependency down (%s): %s of %s are parked and nothing is counted against them; "
            "they resume by themselves when a probe succeeds",
            fact.rule,
            shown(fact.event_type),
            fact.service,
            extra=fields | {"last_error": shown(fact.last_error)},
        )
    else:
        log.warning(
            "Dependency back after %s (%s): %s of %s resume",
            short(fact.lasted),
            fact.rule,
            shown(fact.event_type),
            fact.service,
            extra=fields | {"lasted": round(fact.lasted.total_seconds(), 3)},
        )


def waiting(log: logging.Logger, fact: EventsWaiting) -> None:
    until = "an unknown time" if fact.until is None else fact.until.isoformat(timespec="seconds")
    fields = {
        "service": fact.service,
        "event_type": shown(fact.event_type),
        "collection": shown(fact.collection),
        "document": shown(fact.document),
        "holder": shown(fact.holder),
        "until": until,
        "count": fact.count,
        "gone": fact.is_gone,
    }
    if fact.is_gone:
        log.warning(
            "Taking over document %s of %s: worker %s is gone and held its lease until %s",
            shown(fact.document),
            shown(fact.collection),
            shown(fact.holder),
            until,
            extra=fields,
        )
    else:
        log.info(
            "Waiting for document %s of %s: worker %s holds its lease until %s and may renew it "
            "(%d waiting, first %s)",
            shown(fact.document),
            shown(fact.collection),
            shown(fact.holder),
            until,
            fact.count,
            shown(fact.event_type),
            extra=fields,
        )


def reach(log: logging.Logger, fact: ReachChanged) -> None:
    fields = {"service": fact.service, "silent": fact.silent}
    if fact.silent:
        log.error(
            "Nothing has reached this worker of %s for %s: look at the engine and the network; "
            "it goes on trying",
            fact.service,
            short(fact.lasted),
            extra=fields | {"lasted": round(fact.lasted.total_seconds(), 3)},
        )
    else:
        log.warning(
            "Events reach this worker of %s again, after %s",
            fact.service,
            short(fact.lasted),
            extra=fields | {"lasted": round(fact.lasted.total_seconds(), 3)},
        )


def flood(log: logging.Logger, fact: FloodChanged) -> None:
    event_type = shown(fact.event_type)
    fields = {"service": fact.service, "event_type": event_type, "paused": fact.paused}
    if fact.paused:
        log.error(
            "Paused %s of %s: %d of the last %d failed for good, as after a bad deploy. The others "
            "wait in their queue. Fix or roll back and restart, or send SIGHUP; a probe that "
            "succeeds resumes them too.",
            event_type,
            fact.service,
            fact.permanent,
            fact.handled,
            extra=fields | {"permanent": fact.permanent, "handled": fact.handled},
        )
    else:
        log.warning("Resumed %s of %s", event_type, fact.service, extra=fields)


def routed(log: logging.Logger, fact: EventsRouted) -> None:
    of_type = shown(fact.event_type)
    log.info(
        "Routed %d unrouted %s event%s to service %s",
        fact.count,
        of_type,
        "s" * (fact.count != 1),
        fact.service,
        extra={"service": fact.service, "event_type": of_type, "count": fact.count},
    )


def unrouted(log: logging.Logger, fact: EventsUnrouted) -> None:
    of_type = shown(fact.event_type)
    fields = {"service": fact.service, "event_type": of_type, "meant": shown(fact.meant)}
    if not fact.kept:
        log.warning(
            "No service takes %s, which %s publishes: its events are dropped, because failed= or "
            "announces= says that it needs no consumer. Did you mean %s, which a service takes?",
            of_type,
            fact.service,
            shown(fact.meant),
            extra=fields,
        )
        return
    log.warning(
        "No service takes %s, which %s publishes: its events are kept as unrouted%s until one does."
        "%s Start a service that handles it (see 'headway unrouted list')%s",
        of_type,
        fact.service or "this program",
        f" on {fact.where}" if fact.where else "",
        f" Did you mean {shown(fact.meant)}?" if fact.meant else "",
        ", or name it in Service(announces=...) if none has to" if fact.service else "",
        extra=fields,
    )
