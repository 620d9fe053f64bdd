"""How stuck documents are swept, as operators set it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

from headway.core.errors import ConfigurationError
from headway.core.gateway_url import GatewayUrl, read_gateway_url
from headway.core.lifecycle import ATTEMPTS, Lifecycle
from headway.core.parsing import Setting, number, one_of, read, whole_number
from headway.core.suggestion import nearest, suggestion
from headway.core.sweep import SweepRule

_PREFIX = "RETRY_JOB_"
_MAX_ATTEMPTS = "MAX_ATTEMPTS_"
_NEAR = 0.8
_ZERO = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """When documents are stuck, and how much is done about it at once."""

    interval: timedelta = timedelta(seconds=900)
    """From the beginning of one run to that of the next."""
    base_delay: timedelta = timedelta(seconds=300)
    max_delay: timedelta = timedelta(seconds=3600)
    stuck_after: timedelta = timedelta(hours=24)
    """A pending document that has not moved for so long is in nobody's hands; 0: at once."""
    grace: timedelta = timedelta(seconds=900)
    """A document that was never attempted is left alone for so long after it was made."""
    max_attempts: Mapping[str, int] = field(default_factory=dict)
    """By collection, as `setting_of` writes its name."""
    limit: int = 10_000
    """Documents of one collection whose events a run sends at most."""
    rate: float = 0.0
    """Of them in one second; 0: as fast as it goes."""
    newest_first: bool = True
    cap: int = 1_000
    """What `limit` begins with after a downtime of the sweeper itself; 0: there is no cap."""
    claim: timedelta = timedelta(seconds=60)
    """After so long a claim counts as broken off, and its event is sent again."""
    leader: bool = True
    """Of several that run, one sweeps."""
    gateway: GatewayUrl | None = None
    """Where figures are pushed."""

    def __post_init__(self) -> None:
        for name in ("interval", "claim"):
            if getattr(self, name) <= _ZERO:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)} is not accepted: use more than no time"
                )
        for name in ("base_delay", "max_delay", "stuck_after", "grace", "limit", "rate", "cap"):
            value = getattr(self, name)
            if value < (_ZERO if isinstance(value, timedelta) else 0):
                raise ConfigurationError(f"{name}={value} is not accepted: use 0 or more")

    def rule(self, lifecycle: Lifecycle) -> SweepRule:
        """Give the rule for the documents of one collection."""
        given = self.max_attempts.get(setting_of(lifecycle.collection))
        attempts = lifecycle.most_attempts if given is None else given
        return SweepRule(
            lifecycle=replace(lifecycle, max_attempts=attempts),
            base_delay=self.base_delay,
            max_delay=self.max_delay,
            stuck_after=self.stuck_after,
            grace=self.grace,
        )

    def refuse_misspelt(self, collections: Iterable[str]) -> None:
        """Refuse a limit of attempts for a collection that is nearly one of these."""
        known = {setting_of(name) for name in (*collections, *ATTEMPTS)}
        for given in sorted(set(self.max_attempts) - known):
            near = nearest(given, known, cutoff=_NEAR)
            if near:
                before = f"{_PREFIX}{_MAX_ATTEMPTS}"
                raise ConfigurationError(
                    f"{before}{given} is for no collection: did you mean {before}{near}?"
                )

    def in_force(self) -> dict[str, str]:
        """Give every setting as it would be written."""
        shown = {
            _PREFIX + setting.name: _written(setting.name, getattr(self, setting.field))
            for setting in SWEEP_SETTINGS
        }
        limits = {setting_of(name): most for name, most in ATTEMPTS.items()}
        for name, most in {**limits, **self.max_attempts}.items():
            shown[f"{_PREFIX}{_MAX_ATTEMPTS}{name}"] = str(most)
        if self.gateway is not None:
            shown["PUSHGATEWAY_URL"] = self.gateway.address
        return shown

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str]) -> Self:
        """Read RETRY_JOB_*, METRICS_BACKEND and PUSHGATEWAY_URL."""
        _refuse_unknown(settings)
        limits = tuple(
            Setting(name.removeprefix(_PREFIX), name, whole_number(1, 10_000))
            for name in settings
            if name.startswith(_PREFIX + _MAX_ATTEMPTS)
        )
        attempts = {
            name.removeprefix(_PREFIX + _MAX_ATTEMPTS): value
            for name, value in read(limits, settings, prefixes=(_PREFIX,)).items()
        }
        fields = read(SWEEP_SETTINGS, settings, prefixes=(_PREFIX,))
        _refuse_long_base(settings, fields)
        return cls(**fields, max_attempts=attempts, gateway=_gateway(settings))


def setting_of(collection: str) -> str:
    """Write the name of a collection as names of settings have it.

    >>> setting_of("mail-threads")
    'MAIL_THREADS'
    """
    return re.sub(r"[^A-Za-z0-9]", "_", collection).upper()


_DAY, _YEAR_OF_HOURS = 86_400, 8_760

SWEEP_SETTINGS = (
    Setting("INTERVAL_SECONDS", "interval", number(1, 7 * _DAY, "seconds")),
    Setting("BASE_DELAY_SECONDS", "base_delay", number(0, 7 * _DAY, "seconds")),
    Setting("MAX_DELAY_SECONDS", "max_delay", number(0, 365 * _DAY, "seconds")),
    Setting("STUCK_THRESHOLD_HOURS", "stuck_after", number(0, _YEAR_OF_HOURS, "hours")),
    Setting("GRACE_SECONDS", "grace", number(0, 365 * _DAY, "seconds")),
    Setting("LIMIT", "limit", whole_number(1, 100_000_000)),
    Setting("RATE_PER_SECOND", "rate", number(0, 1_000_000)),
    Setting("PRIORITY", "newest_first", one_of({"newest": True, "oldest": False})),
    Setting("CAP_AFTER_DOWNTIME", "cap", whole_number(0, 100_000_000)),
    Setting("CLAIM_SECONDS", "claim", number(1, _DAY, "seconds")),
    Setting("LEADER", "leader", one_of({"true": True, "false": False})),
)
"""Every name that `SweepSettings.from_mapping` knows, besides MAX_ATTEMPTS_<COLLECTION>."""


def _written(name: str, value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value / timedelta(**{name.rpartition('_')[2].lower(): 1}):g}"
    if isinstance(value, bool):
        return _WORDS[name][value]
    return f"{value:g}" if isinstance(value, float) else str(value)


_WORDS = {"PRIORITY": ("oldest", "newest"), "LEADER": ("false", "true")}


def _refuse_unknown(settings: Mapping[str, str]) -> None:
    # These names begin with a word of ours, so one that we do not know is a mistake.
    names = [setting.name for setting in SWEEP_SETTINGS]
    for name in settings:
        given = name.removeprefix(_PREFIX)
        collection = given.removeprefix(_MAX_ATTEMPTS)
        if given not in {name, collection} and collection != setting_of(collection):
            raise ConfigurationError(
                f"{name} is not a setting: names of collections are in capitals there, "
                f"{_PREFIX}{_MAX_ATTEMPTS}{setting_of(collection)}"
            )
        if given == name or given in names or given.removeprefix(_MAX_ATTEMPTS) not in {given, ""}:
            continue
        known = [*names, f"{_MAX_ATTEMPTS}<COLLECTION>"]
        raise ConfigurationError(
            f"{name} is not a setting: {suggestion(given, known, before=_PREFIX)}"
        )


def _refuse_long_base(settings: Mapping[str, str], fields: Mapping[str, Any]) -> None:
    """Refuse a first wait above the longest one, if somebody set it: it would not be waited."""
    longest = fields.get("max_delay", SweepSettings().max_delay)
    if "base_delay" in fields and fields["base_delay"] > longest:
        given = settings[f"{_PREFIX}BASE_DELAY_SECONDS"]
        raise ConfigurationError(
            f"{_PREFIX}BASE_DELAY_SECONDS={given!r} is above {_PREFIX}MAX_DELAY_SECONDS "
            f"({longest.total_seconds():g}), so it would not be waited: lower it, or raise that"
        )


_BACKENDS = {"noop": False, "prometheus": False, "prometheus_pushgateway": True}


def _gateway(settings: Mapping[str, str]) -> GatewayUrl | None:
    backend = (Setting("METRICS_BACKEND", "pushes", one_of(_BACKENDS)),)
    if not read(backend, settings, prefixes=("",)).get("pushes"):
        return None
    url = settings.get("PUSHGATEWAY_URL", "").strip()
    if not url:
        raise ConfigurationError(
            "METRICS_BACKEND='prometheus_pushgateway' needs PUSHGATEWAY_URL: set it, for example "
            "to http://pushgateway:9091"
        )
    return read_gateway_url("PUSHGATEWAY_URL", url)
