"""The bus on RabbitMQ."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from operator import attrgetter

import msgspec
import pika

from headway.adapters.rabbitmq import outgoing
from headway.adapters.rabbitmq.absence import Absences
from headway.adapters.rabbitmq.arriving import delivery_of, due_later
from headway.adapters.rabbitmq.catalogue import Catalogue
from headway.adapters.rabbitmq.connecting import unhurried
from headway.adapters.rabbitmq.desk import Desk
from headway.adapters.rabbitmq.errands import Errands
from headway.adapters.rabbitmq.io import IoThread
from headway.adapters.rabbitmq.journal import NO_QUEUE
from headway.adapters.rabbitmq.moving import Mover
from headway.adapters.rabbitmq.outgoing import Outgoing
from headway.adapters.rabbitmq.pulse import Pulse
from headway.adapters.rabbitmq.queues import Queues
from headway.adapters.rabbitmq.sending import NoExchangeError, Sender
from headway.adapters.rabbitmq.sources import Arrived
from headway.adapters.rabbitmq.suspects import Held, Suspects
from headway.adapters.rabbitmq.taking import Taker
from headway.adapters.rabbitmq.topology import worker_queue
from headway.adapters.rabbitmq.unrouted import RabbitUnrouted
from headway.adapters.rabbitmq.versions import Versions
from headway.adapters.rabbitmq.windows import Windows
from headway.core.errors import ConfigurationError, NotPublishedError, UnsendableError
from headway.core.showing import described
from headway.ports.bus import (
    SUSPECT_AFTER,
    Delivery,
    Done,
    HandedBack,
    Message,
    Queue,
    Then,
)
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.unrouted import OnStep

_LOG = logging.getLogger("headway")
_FAREWELL = 5.0
_LAST_ACKS = timedelta(milliseconds=100)
_NOTED_WITHIN = 3.0
_ROUTED_WITHIN = 5.0
"""Seconds for which a start waits until what waited for its queues is in them."""
_ROUTED_AGAIN_AFTER = (timedelta(seconds=1), timedelta(seconds=5), timedelta(seconds=15))
_BETWEEN_DECLARATIONS = timedelta(seconds=10)
_QUEUE = attrgetter("queue")
_NONE: Counter[str] = Counter()


class RabbitBus:
    """Takes over one connection, publishes over another, and asks over the desk's."""

    atomic_publish = False
    finds_parked = False

    def __init__(
        self,
        parameters: pika.ConnectionParameters,
        clock: Clock,
        chance: Chance,
        *,
        exchange: str,
        desk: Desk,
        has_store: bool = False,
        patient: bool = True,
        for_worker: bool = False,
        time_to_come_back: timedelta = timedelta(seconds=5),
        idle: timedelta = timedelta(seconds=5),
        pulse: timedelta = timedelta(seconds=5),
    ) -> None:
        self._clock = clock
        self._exchange = exchange
        self._desk = desk
        self._idle = idle
        token = self._token = chance.token()
        self._vhost = parameters.virtual_host
        self.worker = ""
        """Names the broker too: it knows nothing about workers on others."""
        self._io = IoThread()
        if for_worker:
            parameters = unhurried(parameters)
        self._sender = Sender(self._io, parameters, patient=patient, for_worker=for_worker)
        self._taker = Taker(
            self._io,
            parameters,
            alive=worker_queue(token),
            redeclare=self._redeclare,
            lost=self._excuse,
        )
        self._windows = Windows(self._taker, clock)
        self._pulse = Pulse(self._io, self._taker.consumers, self.send, clock, every=pulse)
        self.catalogue = Catalogue(desk, self._probe)
        self.unrouted = RabbitUnrouted(
            parameters,
            desk,
            self.catalogue,
            clock,
            send=self.send,
            exchange=exchange,
            for_worker=for_worker,
        )
        self._queues = Queues(desk, self.catalogue, exchange, has_store=has_store)
        self._suspects = Suspects(
            desk,
            self.send,
            clock,
            token,
            journal_of=self._queues.journal_of,
            time_to_come_back=time_to_come_back,
        )
        self._absences = Absences(self.send, clock, time_to_come_back, lambda: self._taker.epoch)
        self._taken: dict[Held, Delivery] = {}
        """What is in hand, to hand it back in the end."""
        self._mover = Mover(self.send, self._taker, self._taken)
        self._judged: list[Delivery] = []
        """Deliveries about which the journal was asked, until they are taken."""
        self._errands = Errands(clock)
        self._routing: asyncio.Task[None] | None = None
        """Moves what waited for the own queues when they were declared."""
        self._on_routed: OnStep | None = None
        self._versions = Versions(desk, self._errands, clock)
        self._taking = False
        self._declaring = False
        self._closed = False
        self._handed_back = False
        """All but what comes back as after a crash; the connections are still open."""
        self.before_close: Callable[[], Awaitable[None]] | None = None
        """Lets go of what needs this bus to the end: the letters in somebody's hands."""

    # Workers

    async def gone(self, workers: Collection[str]) -> Collection[str]:
        named = self.worker.removesuffix(self._token)
        tokens = {each.removeprefix(named) for each in workers if each.startswith(named)}
        tokens.discard(self._token)
        if not tokens:
            return ()
        return {f"{named}{token}" for token in await self._absences.gone(tokens)}

    def owns(self, delivery: Delivery) -> bool:
        return self._is_ours(delivery)

    # Queues

    async def open(self, queues: Sequence[Queue], on_routed: OnStep | None = None) -> None:
        self._on_routed = on_routed
        await self._queues.declare(queues)
        broker = f"{self._queues.cluster}/{self._vhost}"
        self.worker = f"amqp-{sha256(broker.encode()).hexdigest()[:8]}-{self._token}"
        await self._route_unrouted()

    async def _route_unrouted(self) -> None:
        """Move what waited for the own queues; what takes longer goes on beside other work."""
        types = self._queues.event_types()
        if not types:
            return
        if self._routing is not None:
            self._routing.cancel()
        done = asyncio.Event()
        self._routing = self._errands.send(self._route(types, done))
        with suppress(TimeoutError):
            async with asyncio.timeout(_ROUTED_WITHIN):
                await done.wait()

    async def _route(self, event_types: Sequence[str], done: asyncio.Event) -> None:
        await self._routed(self.unrouted.route_at_start, event_types)
        done.set()
        # Publishers may store events for a moment after that which the broker returned before.
        for pause in _ROUTED_AGAIN_AFTER:
            await self._clock.wait(pause)
            await self._routed(self.unrouted.route_own, event_types)

    async def _routed(
        self, route: Callable[[Sequence[str], OnStep], Awaitable[int]], event_types: Sequence[str]
    ) -> None:
        """Route until the broker has done it, and tell of all that moved at once."""
        routed: Counter[str] = Counter()
        try:
            await self._errands.insist(partial(route, event_types, routed.update))
        finally:
            if routed and self._on_routed is not None:
                self._on_routed(routed)

    def _redeclare(self) -> None:
        if not self._declaring:
            self._declaring = True
            self._errands.send(self._declare_again())

    async def _declare_again(self) -> None:
        """Declare until it works; whatever is there meanwhile is consumed from."""
        while True:
            try:
                await self._errands.insist(self._queues.declare)
                break
            except ConfigurationError as error:
                _LOG.error("What was gone cannot be declared anew: %s", error)
                await self._clock.wait(_BETWEEN_DECLARATIONS)
        self._declaring = False
        for source in self._queues.sources():
            self._io.call(partial(self._taker.consumers.consume_again, source))
        await self._route_unrouted()

    # Publishing

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        await self._queues.refuse_unknown(messages)
        sent = [outgoing.event(each, self._exchange) for each in messages]
        try:
            routed = await self.send(sent)
        except NoExchangeError:
            if self._queues.event_types():
                raise  # to declare the exchange anew would not bring back its bindings
            await self.unrouted.declare()
            routed = await self.send(sent)
        if False in routed:
            await self._keep_unrouted(messages, sent, routed)
        return [
            self._queues.takers(message) if is_routed else 0
            for message, is_routed in zip(messages, routed, strict=True)
        ]

    async def _keep_unrouted(
        self, messages: Sequence[Message], sent: Sequence[Outgoing], routed: Sequence[bool]
    ) -> None:
        kept = [
            (message.event_type, one)
            for message, one, is_routed in zip(messages, sent, routed, strict=True)
            if not is_routed and message.queue is None and message.needs_consumer
        ]
        if not kept:
            return
        try:
            await self.unrouted.keep(kept)
        except (NotPublishedError, UnsendableError) as error:
            error.stored = frozenset(at for at, is_routed in enumerate(routed) if is_routed)
            raise

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[bool]:
        """Publish messages as they are, confirmed; for each, say whether a queue took it."""
        self._io.start()
        return await self._sender.publish(messages)

    async def _probe(self) -> bool:
        """Say whether the broker takes messages, by one that no queue takes.

        A broker without memory may take the first message of a connection, and none after it.
        """
        if not self._sender.blocked:
            await self.send([Outgoing(outgoing.DIRECT, NO_QUEUE, b"", pika.BasicProperties())])
        return not self._sender.blocked

    # Taking

    async def take(
        self, queues: Sequence[str], limit: int, patience: timedelta = timedelta()
    ) -> Sequence[Delivery]:
        if limit <= 0 or self._closed:
            return []
        if not self._taking:
            self._taking = True
            self._io.start()
            self._taker.start()
            self._errands.send(self._watch())
            self._errands.send(self._pulse.run())
        until = self._clock.now() + patience
        # What is in hand takes up the window of its own queue: events that wait for a document
        # must not keep others of the same queue away.
        held = Counter(map(_QUEUE, self._taken.values())) if len(queues) > 1 else _NONE
        with self._windows.ask(queues, limit, held, len(self._taken)) as sources:
            while True:
                taken = self._judged_of(queues, limit)
                taken += self._admit(self._taker.collect(sources, limit - len(taken)))
                left = until - self._clock.now()
                if taken or left <= timedelta():
                    return taken
                await self._taker.wait(sources, left.total_seconds())

    async def _watch(self) -> None:
        """Give back what nobody here asks for."""
        while True:
            await self._clock.wait(self._idle)
            sources = self._windows.shut(self._idle)
            if sources:
                moves = await self._stop_taking(sources)
                self._windows.open_again()
                await self._errands.insist(partial(self._mover.move, moves))

    async def _stop_taking(self, sources: Sequence[str]) -> list[tuple[Delivery, Outgoing]]:
        """Have no more delivered of some queues; say how to hand back what is here of them."""
        arrived = await self._taker.cancel(sources)
        return [(each, outgoing.again(each)) for each in map(delivery_of, arrived)]

    def _judged_of(self, queues: Sequence[str], limit: int) -> list[Delivery]:
        if not self._judged:
            return []
        taken = [each for each in self._judged if each.queue in queues][:limit]
        self._judged = [each for each in self._judged if each not in taken]
        return [each for each in taken if self._is_ours(each)]

    def _admit(self, arrived: Sequence[Arrived], *, is_asked: bool = False) -> list[Delivery]:
        """Give what can be run; `is_asked`: the journal was asked about what came back twice."""
        found: list[Delivery] = []
        moves: list[tuple[Delivery, Outgoing]] = []
        doubted: list[Arrived] = []
        for one in arrived:
            delivery = delivery_of(one)
            self._taken[one.epoch, one.tag] = delivery
            is_doubted = delivery.returns >= SUSPECT_AFTER
            try:
                if delivery.queue != one.source:
                    self._errands.send(self._judge(delivery))
                elif delivery.spoilt:
                    found.append(delivery)  # it is never run: it ends as a dead letter
                elif is_doubted and not self._suspects.is_excused(delivery):
                    if is_asked:
                        moves.append((delivery, outgoing.suspected(delivery)))
                    else:
                        doubted.append(one)
                elif (due := due_later(one, now := self._clock.now())) is not None:
                    moves.append((delivery, outgoing.again_later(delivery, due, now)))
                else:
                    found.append(_excused(delivery) if is_doubted else delivery)
            except Exception as error:  # noqa: BLE001 (all of them have been taken out already)
                why = f"it cannot be moved: {error!r}"
                found.append(msgspec.structs.replace(delivery, spoilt=why))
        self._go_on(moves, doubted)
        return found

    def _go_on(
        self, moves: Sequence[tuple[Delivery, Outgoing]], doubted: Sequence[Arrived]
    ) -> None:
        """Do beside other work what events need before they can be run."""
        if moves:
            self._errands.send(self._errands.insist(partial(self._mover.move, moves)))
        if doubted:
            self._errands.send(self._ask(doubted))

    async def _ask(self, doubted: Sequence[Arrived]) -> None:
        """Learn which returns count for nothing, and admit what came back so often then."""
        queues = {one.source for one in doubted}
        await self._errands.insist(partial(self._suspects.learn, queues))
        left = [one for one in doubted if self._taken.pop((one.epoch, one.tag), None) is not None]
        ours = [one for one in left if self._taker.is_ours(one.epoch, one.tag)]
        self._judged += self._admit(ours, is_asked=True)
        self._taker.news.set()

    def _excuse(self, epoch: int, arrived: Sequence[Arrived]) -> None:
        """The connection is lost and this worker lives: what it held is not to blame for that."""
        if self._closed:  # what it kept comes back as after a crash
            return
        lost = [each for each in self._taken.values() if each.receipt[0] == epoch]
        lost += map(delivery_of, arrived)
        for queue, notes in self._suspects.excuse(lost).items():
            self._errands.send(self._errands.insist(partial(self._suspects.tell, queue, notes)))

    async def _judge(self, delivery: Delivery) -> None:
        """Find out how often a suspect was begun, and have it taken then."""
        count = await self._errands.insist(partial(self._suspects.count, delivery))
        returns = max(delivery.returns, SUSPECT_AFTER)
        judged = msgspec.structs.replace(delivery, returns=returns, begins=count)
        if self._is_ours(delivery):
            self._taken[delivery.receipt] = judged
            self._judged.append(judged)
            self._taker.news.set()
        else:
            self._suspects.forget(delivery)

    async def begin(self, delivery: Delivery) -> bool:
        if not self._is_ours(delivery):
            return False
        await self._suspects.begin(delivery)
        is_ours = self._is_ours(delivery)
        if not is_ours:
            await self._end(delivery, taken_back=True)
        return is_ours

    def _is_ours(self, delivery: Delivery) -> bool:
        return delivery.receipt in self._taken and self._taker.is_ours(*delivery.receipt)

    # Settling

    async def settle(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        answers: list[bool] = []
        done: list[Held] = []
        moves: list[tuple[Delivery, Outgoing]] = []
        ended: list[tuple[Delivery, bool]] = []
        now = self._clock.now()
        epoch, taken, noted = self._taker.epoch, self._taken, self._suspects.noted
        for delivery, then in settlements:
            held = delivery.receipt
            came = taken.pop(held, None)
            if came is None or held[0] != epoch:
                answers.append(False)
                if held in noted:
                    ended.append((delivery, True))
                continue
            answers.append(True)
            if isinstance(then, Done):
                done.append(held)
            else:
                delivery = _as_it_came(delivery, came)  # noqa: PLW2901 (its returns stay)
                moves.append((delivery, outgoing.unfinished(delivery, then, now)))
            if held in noted:
                ended.append((delivery, isinstance(then, HandedBack)))
        if moves:
            try:
                await self._mover.move(moves)
            except BaseException:
                # Nobody knows what became of it: the same may be asked again.
                taken.update({each.receipt: each for each, _ in moves})
                taken.update({d.receipt: d for d, _ in settlements if d.receipt in done})
                raise
        if done:
            self._mover.acknowledge(done)
        for delivery, taken_back in ended:
            await self._end(delivery, taken_back=taken_back)
        return answers

    async def _end(self, delivery: Delivery, *, taken_back: bool) -> None:
        """Note the end of a suspect; while the broker does not take the note, others go on."""
        end = partial(self._suspects.end, delivery, taken_back=taken_back)
        noting = self._errands.send(self._errands.insist(end))
        await asyncio.wait({noting}, timeout=_NOTED_WITHIN)

    async def resume(self, queue: str) -> int:  # noqa: ARG002 (of the port)
        """A broker finds nothing in its queues: parked events come when they are due."""
        return 0

    async def announce(
        self, service: str, version: str, queues: Sequence[str], grace: timedelta
    ) -> None:
        await self._versions.announce(service, version, queues, grace)

    async def live_versions(self, queue: str) -> Collection[str]:
        return await self._versions.live(queue)

    async def proven(self) -> datetime | None:
        return self._pulse.proven

    # The end

    async def hand_back_all(self, keep: Sequence[Delivery]) -> None:
        if self._closed:
            return
        self._closed = True
        if self._taking:
            self._taker.move_here()
            await self._hand_back({delivery.receipt for delivery in keep})
        self._handed_back = True

    async def _hand_back(self, kept: Collection[Held] = ()) -> None:
        # First, or what is handed back would come again at once.
        await self._mover.move(await self._stop_taking(self._taker.sources()))
        taken = [each for held, each in self._taken.items() if held not in kept]
        await self.settle([(each, HandedBack()) for each in taken])
        for each in self._suspects.started():
            if each.receipt not in kept:
                await self._end(each, taken_back=True)
        # RabbitMQ may drop acknowledgements of a channel that closes right after them.
        await self._clock.wait(_LAST_ACKS)

    async def close(self) -> None:
        if self._closed and not self._handed_back:
            return
        handed_back, self._handed_back, self._closed = self._handed_back, False, True
        if self.before_close is not None:
            await self.before_close()
        if self._routing is not None:
            self._routing.cancel()
        await self.unrouted.close()
        try:
            async with asyncio.timeout(_FAREWELL):
                if self._taking and not handed_back:
                    self._errands.cancel()
                    await self._hand_back()
                await self._let_go()
        except (TimeoutError, ConnectionError) as error:
            _LOG.warning(
                "RabbitMQ did not answer the farewell%s: what was in hand comes back to others",
                f" ({described(error)})" if str(error) else f" within {_FAREWELL:g} s",
            )
        self._errands.cancel()
        self._io.stop()
        await self._desk.close()

    async def _let_go(self) -> None:
        loop = asyncio.get_running_loop()
        self._io.start()
        for close in (self._taker.close, self._sender.close):
            closed = asyncio.Event()
            self._io.call(partial(close, partial(_set, loop, closed)))
            await closed.wait()


def _excused(delivery: Delivery) -> Delivery:
    """Make a delivery no suspect, whatever it came back for."""
    return msgspec.structs.replace(delivery, returns=SUSPECT_AFTER - 1)


def _as_it_came(delivery: Delivery, came: Delivery) -> Delivery:
    """Give a delivery all its returns again: a copy goes on counting where they ended."""
    if delivery.returns == came.returns:
        return delivery
    return msgspec.structs.replace(delivery, returns=came.returns)


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    loop.call_soon_threadsafe(event.set)
