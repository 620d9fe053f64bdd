"""What the consumer says in its log, beside what its counters say."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from headway.clock import Clock
from headway.facts import SequenceFact, SequencesAway
from headway.logs import SequenceLog, shown
from headway.systems.uptime.rollout import Rollout

_LOG = logging.getLogger("headway")
_SAY_EVERY = timedelta(minutes=1)
_NAMED = 5


class UptimeLog:
    """Lines about what is held; of an engine that is away it says what that means for results."""

    def __init__(self) -> None:
        self._sequences = SequenceLog(_LOG)

    def tell(self, fact: SequenceFact) -> None:
        self._sequences.tell(fact)
        if isinstance(fact, SequencesAway):
            _LOG.warning(
                "Results are processed without their order until it is back: what seems to be "
                "missing is a miss, and is taken back when its result comes"
            )


class UnknownSubscriptions:
    """Names subscriptions whose results come though nobody wrote them, once in a minute at most."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._again: datetime | None = None

    def tell(self, keys: Sequence[str]) -> None:
        now = self._clock.now()
        if not keys or (self._again is not None and now < self._again):
            return
        self._again = now + _SAY_EVERY
        names = list(dict.fromkeys(keys))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        _LOG.warning(
            "Results came of subscriptions that are not known (%s%s) and were dropped: write them "
            "by headway uptime subscribe, or stop their checks",
            ", ".join(shown(name) for name in names[:_NAMED]),
            more,
        )


def say_if_no_order_is_kept(rollout: Rollout) -> None:
    """Warn whoever has not rolled the feature out: it is off unless somebody says otherwise."""
    if rollout.percentage or rollout.organizations:
        return
    _LOG.warning(
        "The order is kept for nobody, and every gap is a miss at once: %s is off; use "
        "--percentage 100, or name some by UPTIME_BACKLOG_RETRY_ORGANIZATIONS",
        rollout.feature,
    )
