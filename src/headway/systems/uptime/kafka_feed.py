"""Put results into a topic of Kafka, by the subscription, so that each has one partition."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from confluent_kafka import Producer

from headway import HeadwayError
from headway.clock import CLOCK
from headway.systems.uptime.arroyo.client_log import ClientLog
from headway.systems.uptime.settings import UptimeSettings

_SECONDS = 30.0
_SAY_EVERY = 1000


class NotFedError(HeadwayError):
    """Kafka did not take all results."""


class _Key(msgspec.Struct):
    subscription_id: str = ""


def produce(
    settings: UptimeSettings,
    raws: Iterable[bytes],
    on_stored: Callable[[int], None],
    overrides: Mapping[str, Any] | None = None,
) -> None:
    """Send results; returns when Kafka has confirmed every one."""
    producer = Producer(
        {
            "bootstrap.servers": settings.kafka_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            **(overrides or {}),
            "logger": ClientLog(settings.kafka_servers, CLOCK, option="--kafka").logger,
        }
    )
    failed: list[str] = []
    confirmed = 0

    def delivered(error: Any, _message: Any) -> None:
        nonlocal confirmed
        confirmed += 1
        if error is not None:
            failed.append(str(error))
        elif confirmed % _SAY_EVERY == 0:
            on_stored(_SAY_EVERY)

    for raw in raws:
        while True:
            try:
                producer.produce(
                    settings.kafka_topic, value=raw.strip(), key=_key(raw), on_delivery=delivered
                )
                break
            except BufferError:  # it has as many as it can hold: let it send some
                producer.poll(1.0)
        producer.poll(0)
    left = producer.flush(_SECONDS)
    on_stored(confirmed % _SAY_EVERY)
    if failed or left:
        raise NotFedError(
            f"Kafka at {settings.kafka_servers} did not take {len(failed) + left} results "
            f"({failed[0] if failed else 'no answer'}): feed the file again; what was taken twice "
            "is recognised"
        )


def _key(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=_Key).subscription_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
