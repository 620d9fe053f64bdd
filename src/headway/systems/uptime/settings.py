"""The settings of the consumer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

from headway.core.engine_url import SqliteUrl, read_sequences_url
from headway.core.errors import ConfigurationError
from headway.core.parsing import Setting, number, read, whole_number
from headway.core.secrets import hidden
from headway.core.sequence_settings import SequenceSettings
from headway.systems.uptime.monitors import RegionMode
from headway.systems.uptime.rollout import BACKLOG_RETRY, Features, Rollout

PREFIX = "UPTIME_"
_SHORTEST_LEASE = timedelta(seconds=5)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


SETTINGS = (
    Setting("STORE", "store", str),
    Setting("SEQUENCES", "sequences", str),
    Setting("BUS", "bus", str),
    Setting("BACKLOG_RETRY_ORGANIZATIONS", "organizations", _names),
    Setting("BACKLOG_RETRY_PERCENTAGE", "percentage", number(0, 100)),
    Setting("REGIONS", "regions", _names),
    Setting("SHADOW_REGIONS", "shadow_regions", _names),
    Setting("BREAKER", "breaker", whole_number(1, 1_000_000)),
    Setting("TIME_SCALE", "time_scale", number(0.0001, 1000)),
    Setting("PATIENCE_SECONDS", "patience", number(0, 3600, "seconds")),
    Setting("KAFKA_SERVERS", "kafka_servers", str),
    Setting("KAFKA_TOPIC", "kafka_topic", str),
    Setting("KAFKA_GROUP", "kafka_group", str),
    Setting("CELERY_BROKER", "celery_broker", str),
)
_WITH_SECRETS = frozenset({"sequences", "bus", "celery_broker"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UptimeSettings:
    """How one consumer runs. It can be sent to other processes."""

    store: str = "sqlite:///headway-uptime.db"
    """Subscriptions, detectors, and what results did to them."""
    sequences: str = field(default="", repr=False)
    """Where results wait for their turn; in the store's file if not given."""
    bus: str = field(default="", repr=False)
    """Where results come from if not from Kafka; the store's file if not given."""
    organizations: tuple[str, ...] = ()
    """They have the feature organizations:uptime-backlog-retry in any case."""
    percentage: float = 0.0
    """Of all other organizations."""
    regions: tuple[str, ...] = ()
    """Of all subscriptions; if none are given, each keeps its own."""
    shadow_regions: tuple[str, ...] = ()
    breaker: int = 10
    time_scale: float = 1.0
    """All waits are multiplied by this: a demonstration need not take minutes."""
    patience: timedelta = timedelta(seconds=10)
    """How long results wait for an engine of sequences that is away."""
    kafka_servers: str = ""
    kafka_topic: str = "uptime-results"
    kafka_group: str = "uptime-results-consumer"
    celery_broker: str = field(default="", repr=False)
    """Where looks are scheduled; without one, every worker looks by itself."""

    def __post_init__(self) -> None:
        self.store_place()
        read_sequences_url(f"{PREFIX}SEQUENCES", self.sequences_url)
        self.order()

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str], **given: Any) -> Self:
        """Read UPTIME_*; what is given goes before. A value that cannot be used is refused."""
        known = {name: value for name, value in given.items() if value is not None}
        return cls(**{**read(SETTINGS, settings, prefixes=(PREFIX,)), **known})

    @property
    def sequences_url(self) -> str:
        return self.sequences or self.store

    @property
    def bus_url(self) -> str:
        return self.bus or self.store

    def store_place(self) -> SqliteUrl:
        place = read_sequences_url(f"{PREFIX}STORE", self.store)
        if not isinstance(place, SqliteUrl):
            raise ConfigurationError(
                f"{PREFIX}STORE={hidden(self.store)!r} is not accepted: effects are kept in a "
                "file; use sqlite:///FILE, and name Redis by UPTIME_SEQUENCES"
            )
        return place

    def order(self) -> SequenceSettings:
        """Give how long results wait for their turn."""
        settings = SequenceSettings(breaker=self.breaker, breaker_at_most=max(100, self.breaker))
        if self.time_scale == 1:
            return settings
        # A lease is for the work of machines, which a demonstration does not make any faster.
        scaled = settings.scaled(self.time_scale)
        return replace(scaled, lease=max(scaled.lease, _SHORTEST_LEASE))

    def features(self) -> Features:
        rollout = Rollout(
            feature=BACKLOG_RETRY,
            organizations=frozenset(self.organizations),
            percentage=self.percentage,
        )
        return Features(backlog_retry=rollout)

    def region_modes(self) -> dict[str, RegionMode]:
        return {
            **dict.fromkeys(self.regions, RegionMode.ACTIVE),
            **dict.fromkeys(self.shadow_regions, RegionMode.SHADOW),
        }

    def in_words(self) -> dict[str, str]:
        """Give every setting under its outward name, secrets included."""
        shown = {setting: getattr(self, setting.field) for setting in SETTINGS}
        return {
            PREFIX + setting.name: _word(value)
            for setting, value in shown.items()
            if value not in {"", ()}
        }

    def in_force(self) -> dict[str, str]:
        """Give every setting under its outward name, without secrets."""
        secret = {PREFIX + each.name for each in SETTINGS if each.field in _WITH_SECRETS}
        return {
            name: hidden(word) if name in secret else word for name, word in self.in_words().items()
        }


def _word(value: Any) -> str:
    match value:
        case tuple():
            return ",".join(value)
        case timedelta():
            return f"{value.total_seconds():g}"
        case _:
            return str(value)
