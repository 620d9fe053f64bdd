"""Who has a feature: some organizations by name, and a share of all others.

A share only grows by raising it: whoever was in at 10 % is in at 50 % too, in every process.
"""

from dataclasses import dataclass
from hashlib import sha256

from headway import ConfigurationError

BACKLOG_RETRY = "organizations:uptime-backlog-retry"
UPTIME = "organizations:uptime"
_EVERYBODY = 100.0
_PLACES = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """How far a feature is rolled out."""

    feature: str
    organizations: frozenset[str] = frozenset()
    """These have it in any case."""
    percentage: float = 0.0
    """Of the others."""

    def __post_init__(self) -> None:
        given: object = self.percentage
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not (is_number and 0 <= self.percentage <= _EVERYBODY):  # false for nan too
            raise ConfigurationError(
                f"percentage={given!r} of {self.feature} is not accepted: use a number from 0 to "
                "100"
            )
        names: object = self.organizations
        if not isinstance(names, frozenset) or not all(isinstance(each, str) for each in names):
            raise ConfigurationError(
                f"organizations={names!r} of {self.feature} is not accepted: use a frozenset of "
                "names"
            )

    def includes(self, organization: str) -> bool:
        """Say whether an organization has the feature.

        >>> Rollout(feature="x", organizations=frozenset({"acme"})).includes("acme")
        True
        >>> Rollout(feature="x", percentage=100).includes("anybody")
        True
        """
        if organization in self.organizations or self.percentage >= _EVERYBODY:
            return True
        # Another feature draws other organizations, so that not always the same ones come first.
        drawn = int.from_bytes(sha256(f"{self.feature}/{organization}".encode()).digest()[:4])
        return drawn / _PLACES * _EVERYBODY < self.percentage


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Which organizations have what."""

    uptime: Rollout = Rollout(feature=UPTIME, percentage=_EVERYBODY)
    backlog_retry: Rollout = Rollout(feature=BACKLOG_RETRY)


def everybody() -> Features:
    """Keep the order for all organizations."""
    return Features(backlog_retry=Rollout(feature=BACKLOG_RETRY, percentage=_EVERYBODY))
