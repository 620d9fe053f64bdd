"""The settings of the consumer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

from headway import ConfigurationError
from headway.order import SequenceSettings
from headway.settings import (
    Setting,
    SqliteUrl,
    number,
    one_of,
    read,
    read_engine_url,
    read_sequences_url,
    shown_url,
    whole_number,
)
from headway.systems.uptime.monitors import RegionMode
from headway.systems.uptime.rollout import BACKLOG_RETRY, Features, Rollout

PREFIX = "UPTIME_"
STOP, OLDEST = "stop", "oldest"
_SHORTEST_LEASE = timedelta(seconds=5)
_KAFKA_SERVER = re.compile(r"(\w+://)?([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
_KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CELERY_BROKER = re.compile(r"(redis|rediss|sentinel|amqp|amqps|pyamqp)://[^/\s].*", re.DOTALL)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _kafka_servers(text: str) -> str:
    if not all(_KAFKA_SERVER.fullmatch(server.strip()) for server in text.split(",")):
        raise ValueError("use HOST:PORT, with a comma between several")
    return text


def _kafka_topic(text: str) -> str:
    if not _KAFKA_TOPIC.fullmatch(text):
        raise ValueError("use up to 249 letters, digits, dots, underscores and hyphens")
    return text


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
    Setting("KAFKA_SERVERS", "kafka_servers", _kafka_servers),
    Setting("KAFKA_TOPIC", "kafka_topic", _kafka_topic),
    Setting("KAFKA_GROUP", "kafka_group", str),
    Setting("KAFKA_LOST", "kafka_lost", one_of({STOP: STOP, OLDEST: OLDEST})),
    Setting("CELERY_BROKER", "celery_broker", str),
)
_NOTHING = ("", ())
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
    kafka_lost: str = STOP
    """What to do where Kafka has deleted what comes next: `stop`, or go on with the `oldest`."""
    celery_broker: str = field(default="", repr=False)
    """Where looks are scheduled; without one, every worker looks by itself."""

    def __post_init__(self) -> None:
        self._refuse_what_cannot_be_said()
        self.store_place()
        read_sequences_url(f"{PREFIX}SEQUENCES", self.sequences_url)
        read_engine_url(f"{PREFIX}BUS", self.bus_url)
        if self.celery_broker and not _CELERY_BROKER.fullmatch(self.celery_broker):
            raise ConfigurationError(
                f"{PREFIX}CELERY_BROKER={shown_url(self.celery_broker)!r} is not accepted: use "
                "redis://HOST:PORT/NUMBER or amqp://USER:PASSWORD@HOST:PORT/VHOST"
            )
        self.order()
        both = sorted({*self.regions} & {*self.shadow_regions})
        if both:
            raise ConfigurationError(
                f"{PREFIX}REGIONS and {PREFIX}SHADOW_REGIONS both name {', '.join(both)}: name a "
                "region in one of them"
            )

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str], **given: Any) -> Self:
        """Read UPTIME_*; what is given goes before. A value that cannot be used is refused."""
        known = {name: value for name, value in given.items() if value is not None}
        return cls(**{**read(SETTINGS, settings, prefixes=(PREFIX,)), **known})

    def _refuse_what_cannot_be_said(self) -> None:
        """Refuse what other processes would not read as what it is: they are told in words."""
        meant = read(SETTINGS, self.in_words(), prefixes=(PREFIX,))
        for setting in SETTINGS:
            given = getattr(self, setting.field)
            if given not in _NOTHING and meant.get(setting.field) != given:
                shown = shown_url(str(given)) if setting.field in _WITH_SECRETS else given
                raise ConfigurationError(
                    f"{setting.field}={shown!r} is not accepted: use a value that can be written "
                    f"as {PREFIX}{setting.name}"
                )

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
                f"{PREFIX}STORE={shown_url(self.store)!r} is not accepted: effects are kept in a "
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
            if value not in _NOTHING
        }

    def in_force(self) -> dict[str, str]:
        """Give every setting under its outward name, without secrets."""
        secret = {PREFIX + each.name for each in SETTINGS if each.field in _WITH_SECRETS}
        return {
            name: shown_url(word) if name in secret else word
            for name, word in self.in_words().items()
        }


def _word(value: Any) -> str:
    match value:
        case tuple():
            return ",".join(map(str, value))
        case timedelta():
            return f"{value.total_seconds():.15g}"
        case _:
            return str(value)
