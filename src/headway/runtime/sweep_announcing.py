"""Say when a sweeper begins to sweep again and again, and when it ends: else nobody knows of it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headway.core.showing import shown
from headway.core.sweep import SweepRule
from headway.core.sweep_settings import SweepSettings

_LOG = logging.getLogger("headway")


@contextmanager
def announced(rules: Sequence[SweepRule], settings: SweepSettings) -> Iterator[None]:
    """Say what is swept and how often, and in the end that it is over."""
    names = ", ".join(shown(rule.collection) for rule in rules)
    _LOG.info("Sweeping %s every %gs", names, settings.interval.total_seconds())
    yield
    _LOG.info("Sweeping has ended, as told")
