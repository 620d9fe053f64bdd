"""The rule: what becomes of work that failed. Everything else in Headway serves `decide`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from headway.core.action import Action, DeadLetter, Park, Reason, RetryLater
from headway.core.backoff import Backoff, Exponential, FullJitter, NoJitter
from headway.core.errors import ConfigurationError
from headway.core.failure import Diagnosis, History, Verdict
from headway.core.health import Health
from headway.core.parsing import Setting, number, read, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, how far apart and for how long work is tried."""

    max_attempts: int
    """Tries in all, the first one included."""
    backoff: Backoff
    ttl: timedelta | None = None
    """No attempt begins later than this after the work was first seen."""

    def __post_init__(self) -> None:
        if not _is_count(self.max_attempts, low=1):
            raise ConfigurationError(
                f"max_attempts={self.max_attempts!r} is not accepted: "
                "the first try counts, so use a whole number from 1"
            )
        if not isinstance(self.backoff, Backoff):
            raise ConfigurationError(
                f"backoff={self.backoff!r} is not accepted: use Exponential(...) or Stepped(...)"
            )
        if self.ttl is not None and not _is_duration(self.ttl):
            raise ConfigurationError(
                f"ttl={self.ttl!r} is not accepted: use a positive timedelta, or None for no limit"
            )


def decide(
    policy: RetryPolicy,
    history: History,
    diagnosis: Diagnosis,
    health: Health = Health.WELL,
    *,
    now: datetime,
    draw: float,
) -> Action:
    """Say what becomes of work whose attempt just failed; every path ends in exactly one action."""
    if diagnosis.verdict is Verdict.PERMANENT:
        return DeadLetter(Reason.NON_RETRYABLE)
    if health is Health.DOWN:
        return Park(diagnosis.rule)
    if history.attempts >= policy.max_attempts:
        return DeadLetter(Reason.MAX_ATTEMPTS_EXCEEDED)
    delay = policy.backoff.delay(history.attempts, draw)
    if diagnosis.retry_after is not None:
        delay = max(delay, _asked(diagnosis.retry_after, now))
    # The wait is part of the time spent: a retry due after the end would only come too late.
    if policy.ttl is not None and now + delay - history.first_seen - history.parked > policy.ttl:
        return DeadLetter(Reason.TTL_EXCEEDED)
    return RetryLater(now + delay, delay)


def _asked(retry_after: timedelta | datetime, now: datetime) -> timedelta:
    return retry_after - now if isinstance(retry_after, datetime) else retry_after


def _is_count(value: object, *, low: int) -> bool:
    return isinstance(value, int) and value >= low


def _is_duration(value: object) -> bool:
    return isinstance(value, timedelta) and value > timedelta()


# To operators, RETRY_MAX_ATTEMPTS counts retries after the first call. Where it should count
# tries in all, this is the one line to change.
_FIRST_CALL = 1


TRANSIENT = RetryPolicy(
    max_attempts=3,
    backoff=Exponential(base=timedelta(seconds=5), cap=timedelta(seconds=60), jitter=NoJitter()),
    ttl=timedelta(minutes=30),
)
"""Three tries, 5 and 10 seconds apart: for faults of the infrastructure and unknown errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """Retry of events whose documents are not visible yet, as operators set it.

    Before retry k the wait is `random(0, min(base_delay * backoff_factor**(k-1), max_delay))`.
    """

    max_attempts: int = 8
    """Retries after the first call."""
    base_delay: timedelta = timedelta(milliseconds=250)
    backoff_factor: float = 2.0
    max_delay: timedelta = timedelta(seconds=60)
    ttl: timedelta = timedelta(minutes=30)

    def __post_init__(self) -> None:
        if not _is_count(self.max_attempts, low=0):
            raise ConfigurationError(
                f"max_attempts={self.max_attempts!r} is not accepted: use a whole number from 0"
            )
        self.policy()  # refuses what it cannot work with

    def policy(self) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=self.max_attempts + _FIRST_CALL,
            backoff=Exponential(
                base=self.base_delay,
                factor=self.backoff_factor,
                cap=self.max_delay,
                jitter=FullJitter(),
            ),
            ttl=self.ttl,
        )

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str]) -> Self:
        """Read the settings named in `RETRY_SETTINGS`; EVENT_RETRY_* goes before RETRY_*."""
        return cls(**read(RETRY_SETTINGS, settings, prefixes=RETRY_PREFIXES))


RETRY_PREFIXES = ("EVENT_RETRY_", "RETRY_")
_DAY_MS = 86_400_000.0

RETRY_SETTINGS = (
    Setting("MAX_ATTEMPTS", "max_attempts", whole_number(0, 10_000)),
    Setting("BASE_DELAY_MS", "base_delay", number(0, _DAY_MS, "milliseconds")),
    Setting("BACKOFF_FACTOR", "backoff_factor", number(1, 1_000)),
    Setting("MAX_DELAY_SECONDS", "max_delay", number(0, 86_400, "seconds")),
    Setting("MAX_DELAY_MS", "max_delay", number(0, _DAY_MS, "milliseconds")),
    Setting("TTL_MINUTES", "ttl", number(0.001, 525_600, "minutes")),
    Setting("TTL_SECONDS", "ttl", number(0.05, 31_536_000, "seconds")),
)
"""Every name that `RetryConfig.from_mapping` knows. Of two for one field, the earlier one wins."""
