"""Lines about states that begin and end: outages, pauses, workers that nothing reaches."""

import logging

from headway.adapters.logs.durations import short
from headway.core.facts import FloodChanged, HealthChanged, ReachChanged
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
    fields = {"service": fact.service, "paused": fact.paused}
    if fact.paused:
        log.error(
            "Service %s paused: more than half of the last %d events ended as letters (%d); "
            "fix or roll back, then restart, send SIGHUP, or wait for the probe each minute",
            fact.service,
            fact.handled,
            fact.permanent,
            extra=fields | {"permanent": fact.permanent, "handled": fact.handled},
        )
    else:
        log.warning("Service %s goes on", fact.service, extra=fields)
