"""What RabbitMQ gives to an engine: bus, failed queues, what can be counted, and the history."""

from dataclasses import dataclass

from headway.adapters.rabbitmq.bus import RabbitBus
from headway.adapters.rabbitmq.connecting import HEARTBEAT, parameters
from headway.adapters.rabbitmq.desk import Desk
from headway.adapters.rabbitmq.history import RabbitHistory
from headway.adapters.rabbitmq.letters import RabbitLetters
from headway.adapters.rabbitmq.places import RabbitPlaces
from headway.adapters.rabbitmq.topology import EXCHANGE
from headway.adapters.rabbitmq.unrouted import RabbitUnrouted
from headway.ports.chance import Chance
from headway.ports.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitParts:
    """Documents and done-records are a store's."""

    bus: RabbitBus
    letters: RabbitLetters
    places: RabbitPlaces
    history: RabbitHistory
    unrouted: RabbitUnrouted


def rabbitmq_parts(
    url: str,
    clock: Clock,
    chance: Chance,
    *,
    exchange: str = EXCHANGE,
    has_store: bool = False,
    patient: bool = True,
    for_worker: bool = False,
    heartbeat: int = HEARTBEAT,
) -> RabbitParts:
    """Give the parts of one worker process; connections are made when they are first needed.

    `bus.close` lets go of all of them. `has_store`: there is one beside it; the queues that are
    declared remember that, for whoever decides about their letters without one. `patient`: what is
    published waits for a broker that has no memory or disk space left, however long it takes.
    `for_worker`: it waits for a broker that cannot be reached, or refuses the login, as well: a
    worker goes on when that is over, where others are told at once.
    """
    how = parameters(url, heartbeat)
    desk = Desk(how)
    bus = RabbitBus(
        how,
        clock,
        chance,
        exchange=exchange,
        desk=desk,
        has_store=has_store,
        patient=patient,
        for_worker=for_worker,
    )
    letters = RabbitLetters(how, bus.catalogue, clock, send=bus.send, publish=bus.publish)
    bus.before_close = letters.close
    return RabbitParts(
        bus=bus,
        letters=letters,
        places=RabbitPlaces(desk, bus.catalogue, letters, bus.unrouted),
        history=RabbitHistory(desk),
        unrouted=bus.unrouted,
    )
