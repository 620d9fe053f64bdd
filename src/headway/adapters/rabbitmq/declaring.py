"""Declare queues and exchanges; what is there already stays as it is."""

import logging

from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from headway.adapters.rabbitmq.desk import DIFFERENT, is_refused
from headway.adapters.rabbitmq.topology import QueueDeclaration, Topology
from headway.core.errors import ConfigurationError

_LOG = logging.getLogger("headway")


_FIRST_WITH_LIMITS = 4


def has_default_limit(channel: BlockingChannel) -> bool:
    """Say whether this broker limits deliveries where no limit is set: 4.0 and later."""
    properties = channel.connection._impl.server_properties  # noqa: SLF001 (pika shows it nowhere)
    major = str(properties.get("version", "")).partition(".")[0]
    return major.isdigit() and int(major) >= _FIRST_WITH_LIMITS


def cluster(channel: BlockingChannel) -> str:
    """Name the broker, or the cluster that it belongs to."""
    properties = channel.connection._impl.server_properties  # noqa: SLF001 (as above)
    name = properties.get("cluster_name", "")
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def declare(channel: BlockingChannel, topology: Topology, failed: frozenset[str]) -> None:
    """Declare everything; refuse queues of other people's making that would break promises.

    A failed queue is accepted as it is: its letters are wanted, whatever it is like.
    """
    for name, kind in topology.exchanges:
        declare_exchange(channel, name, kind)
    for queue in topology.queues:
        try:
            channel.queue_declare(queue.name, durable=True, arguments=queue.arguments)
        except ChannelClosedByBroker as error:
            if not is_refused(error, DIFFERENT):
                raise
            if queue.name not in failed:
                raise _different(queue, error) from None
            _LOG.warning(
                "Failed queue %s was declared by somebody else (%s): it is used as it is",
                queue.name,
                error.reply_text,
            )
            channel = channel.connection.channel()
    for queue_name, exchange, key in topology.bindings:
        channel.queue_bind(queue_name, exchange, key)


def declare_queue(channel: BlockingChannel, queue: QueueDeclaration) -> None:
    """Declare one queue; refuse one with this name and other settings."""
    try:
        channel.queue_declare(queue.name, durable=True, arguments=queue.arguments)
    except ChannelClosedByBroker as error:
        if not is_refused(error, DIFFERENT):
            raise
        raise _different(queue, error) from None


def declare_exchange(channel: BlockingChannel, name: str, kind: str) -> None:
    """Declare one exchange; refuse one with this name and of another kind."""
    try:
        channel.exchange_declare(name, kind, durable=True)
    except ChannelClosedByBroker as error:
        if not is_refused(error, DIFFERENT):
            raise
        raise ConfigurationError(
            f"exchange {name!r} is not accepted: it is there, and not a durable {kind} exchange "
            f"({error.reply_text}); name another by HEADWAY_EXCHANGE, or delete it"
        ) from None


def _different(queue: QueueDeclaration, error: ChannelClosedByBroker) -> ConfigurationError:
    return ConfigurationError(
        f"queue {queue.name!r} is not accepted: it is there with other settings "
        f"({error.reply_text}), and Headway's promises need {queue.arguments}; delete it when it "
        "is empty, or give the subscription another queue="
    )
