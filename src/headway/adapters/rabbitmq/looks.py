"""Look through failed queues and unrouted events, one look at a time."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import NoReturn, TypeVar

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from headway.adapters.rabbitmq import scanning
from headway.adapters.rabbitmq.contents import renewed
from headway.adapters.rabbitmq.desk import LOCKED, NOT_FOUND, is_refused
from headway.adapters.rabbitmq.looking import Found, Look, Settling
from headway.adapters.rabbitmq.outgoing import Outgoing
from headway.adapters.rabbitmq.scanning import Page, RemovedError, Scan, Taken, lock_of
from headway.adapters.rabbitmq.session import LostError, Session
from headway.core.errors import ConfigurationError, UnsendableError
from headway.core.showing import described
from headway.ports.clock import Clock

_LOG = logging.getLogger("headway")
_PATIENCE = 15.0
"""Seconds to wait for others who look; nobody holds a queue for so long and does nothing."""
BETWEEN_PAGES = timedelta(seconds=10)
_BETWEEN_DECISIONS = timedelta(seconds=0.5)
_HEARTBEAT = timedelta(seconds=1)
_AT_ONCE = 500
_RENEWED_WITHIN = 3.0
"""Seconds: a broker without memory takes no copies, and nobody who only looks waits for that."""
_ROUNDS = 3
"""How often to look at what has come meanwhile: somebody may be writing all the time."""

T = TypeVar("T")
Send = Callable[[Sequence[Outgoing]], Awaitable[Sequence[bool]]]


class Looks:
    """The looks of one process. Whoever calls has its turn, except where said otherwise."""

    def __init__(self, session: Session, clock: Clock, send: Send) -> None:
        self.turn = asyncio.Lock()
        self.now: Look | None = None
        self.disorders: Counter[str] = Counter()
        """How often the order of a queue was disturbed from here."""
        self.renewals: Counter[str] = Counter()
        """How often all of a queue was published anew from here, in its order."""
        self._session = session
        self._clock = clock
        self._send = send
        self._watching: asyncio.Task[None] | None = None
        self._removing: set[str] = set()
        """Queues of which the broker removed what was given back, at the last look."""

    def at(self, queue: str) -> Look | None:
        """Give the running look, if it is one through this queue."""
        return self.now if self.now is not None and self.now.queue == queue else None

    async def surely(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try twice: a lost connection takes nothing with it but the place in the queue."""
        try:
            return await work()
        except LostError:
            await self._drop()
        except ChannelClosedByBroker as error:
            if not is_refused(error, NOT_FOUND):
                raise
            await self._drop()
        finally:
            if self.now is not None:
                self.now.touched = self._clock.now()
        return await work()

    async def count(self, queue: str) -> int:
        """Count what is in a queue, with what is in hand here; in one that was deleted, nothing."""
        look = self.at(queue)
        own = look.scan.held if look is not None else 0
        return own + await self._session.do(partial(ready, queue=queue))

    async def is_held(self, queue: str) -> bool:
        """Say whether somebody else looks through a queue."""
        if self.at(queue) is not None:
            return False
        return await self._session.do(partial(_is_locked, queue=queue))

    async def start(self, queue: str, linger: timedelta = BETWEEN_PAGES) -> Look | None:
        """End the running look and begin another; None: there is no such queue."""
        await self.end()
        look = await self.begin(queue, _PATIENCE)
        if look is not None:
            look.linger = linger
            self.now = look
            self._watching = asyncio.create_task(self._watch(look))
        return look

    async def begin(self, queue: str, patience: float) -> Look | None:
        """Begin a look beside the running one; whoever does gives it back soon."""
        scan = await self._session.do(partial(_begin, queue=queue, patience=patience))
        if scan is None:
            return None
        scan.is_doubted = scan.is_doubted or queue in self._removing
        self._removing.discard(queue)
        return Look(scan, self._clock.now(), BETWEEN_PAGES)

    async def more(self, look: Look, wanted: int) -> list[Found]:
        """Give the next letters, at most so many; none: there are no more."""
        while not look.ahead:
            try:
                taken = await self._session.do(lambda _: look.scan.take(wanted))
            except RemovedError as removed:
                await self._refuse(look, removed.page)
            if not taken:
                break
            if look.renews and any(each.is_worn for each in taken):
                taken = await self._renew(look, taken)
            found, copies = look.meet(taken)
            look.ahead.extend(found)
            if copies:
                await self.settle(look, copies)
        return [look.ahead.popleft() for _ in range(min(wanted, len(look.ahead)))]

    async def _refuse(self, look: Look, removed: Page) -> NoReturn:
        """End a look before the broker removes more than the one message that it has removed."""
        if look is self.now:
            await self.end()
        await self._restore(look.queue, [removed])
        raise ConfigurationError(
            f"Cannot read {look.queue}: a policy sets delivery-limit 0, so RabbitMQ removes every "
            "message that is read and given back. Exclude the queue from the policy, or set a "
            "delivery-limit of 1 or more."
        )

    async def find(self, queue: str, letter_ids: Sequence[str]) -> Look | None:
        """Look until all of these are in hand, or everything is."""
        look = self.at(queue) or await self.start(queue, _BETWEEN_DECISIONS)
        if look is None or all(look.has(each) for each in letter_ids):
            return look
        look.last = None  # what is passed over now is not there for `read` any more
        look.ahead.clear()
        left = {each for each in letter_ids if not look.has(each)}
        rounds = _ROUNDS
        while left:
            left -= {each.letter.letter_id for each in await self.more(look, _AT_ONCE)}
            if look.ahead or look.scan.left:
                continue
            look.come_later()
            rounds -= 1
            if not rounds or not await self._session.do(lambda _: look.scan.extend()):
                break
        return look

    async def settle(self, look: Look, messages: Sequence[tuple[Page, int]]) -> None:
        """Remove messages for good, together with what others remove; with or without a turn."""
        batch = look.settling
        if batch is None:
            batch = look.settling = Settling()
            # It begins when everybody who is ready by now has joined.
            batch.done = asyncio.create_task(self._settle(look, batch))
        batch.messages += messages
        await asyncio.shield(batch.done)

    async def _settle(self, look: Look, batch: Settling) -> None:
        look.settling = None
        await self._session.do(lambda _: look.scan.settle(batch.messages))

    async def end(self) -> None:
        look, self.now = self.now, None
        if look is not None:
            await look.quiet()
            await self.give_back(look)

    async def give_back(self, look: Look) -> None:
        """Give everything back."""
        scan = look.scan
        try:
            in_order = await self._session.do(lambda _: scan.complete())
            removed = await self._session.do(lambda _: scan.give_back())
            if removed or not in_order:
                self.disorders[look.queue] += 1
            if removed:
                await self._restore(look.queue, removed)
        except LostError:
            pass  # the broker gives it back
        except ChannelClosedByBroker as error:
            if not is_refused(error, NOT_FOUND):
                raise
            _LOG.warning("Queue %s was deleted while it was read", look.queue)
        finally:
            with suppress(LostError):
                await self._session.do(lambda _: scan.end())

    async def _renew(self, look: Look, taken: list[Taken]) -> list[Taken]:
        """Publish anew what has come back before: copy, confirm, remove.

        The copies go to the end of the queue, where the look meets them. To keep the order, all of
        a queue that is not too long is published anew. A process that dies in between leaves
        copies, which the next look recognises.

        Returns:
            The messages that are in hand as before.
        """
        scan, kept = look.scan, list[Taken]()
        whole = scan.held == len(taken) and scan.held + scan.left <= scanning.KEPT_IN_ORDER
        is_disturbed = True
        self.disorders[look.queue] += 1  # until it is known to have come to a good end
        while taken:
            worn = taken if whole else [each for each in taken if each.is_worn]
            try:
                copied = await self._copy(look.queue, worn)
            except TimeoutError:
                _LOG.warning(
                    "RabbitMQ takes no messages: those of %s are given back and counted by the "
                    "broker. Under a policy with a low delivery-limit, look at them again only "
                    "after its alarm is over",
                    look.queue,
                )
                look.renews = False
                kept += taken
                break
            originals = {(each.page, each.tag) for each in copied}
            await self._session.do(partial(_settle, scan, list(originals)))
            kept += [each for each in taken if (each.page, each.tag) not in originals]
            if not whole and len(worn) < len(taken):
                break  # what follows has never come back
            taken = await self._session.do(lambda _: scan.take(_AT_ONCE))
        else:
            is_disturbed = not whole or bool(kept)
        if not is_disturbed:
            self.disorders[look.queue] -= 1
            self.renewals[look.queue] += 1
        await self._session.do(lambda _: scan.begin())
        return kept

    async def _restore(self, queue: str, removed: Sequence[Page]) -> None:
        """Publish anew what the broker removed when it was given back: its delivery limit is 0."""
        self._removing.add(queue)
        number = sum(page.unsettled for page in removed)
        restored = 0
        try:
            for page in removed:
                restored += len(await self._copy(queue, page.open_ones()))
        except TimeoutError:
            pass  # the broker takes no messages
        finally:
            _LOG.error(
                "RabbitMQ removed %d messages of %s when they were given back, and Headway "
                "published %d of them anew: a policy sets delivery-limit 0 for this queue. Exclude "
                "the queue from the policy, or set a delivery-limit of 1 or more, before you look "
                "at it again",
                number,
                queue,
                restored,
            )

    async def _copy(self, queue: str, taken: Sequence[Taken]) -> Sequence[Taken]:
        """Publish copies of messages; give those that have one now."""
        copies = [renewed(queue, each.properties, each.body) for each in taken]
        try:
            async with asyncio.timeout(_RENEWED_WITHIN):
                routed = await self._send(copies)
        except UnsendableError as error:
            if len(taken) > 1:
                return [copied for each in taken for copied in await self._copy(queue, [each])]
            _LOG.warning("Could not republish a message of %s: %s", queue, described(error))
            return []
        return [each for each, is_routed in zip(taken, routed, strict=True) if is_routed]

    async def _drop(self) -> None:
        """Let go of a look whose connection is lost, or one of its channels."""
        look, self.now = self.now, None
        if look is not None:
            with suppress(LostError):
                await self._session.do(lambda _: look.scan.end())

    async def _watch(self, look: Look) -> None:
        """End a look that nobody goes on with, and keep its connection alive until then."""
        pause = min(_HEARTBEAT, look.linger / 2)
        while self.now is look:
            await self._clock.wait(pause)
            async with self.turn:
                if self.now is not look:
                    return
                idle = not look.deciding and self._clock.now() - look.touched >= look.linger
                try:
                    await (self.end() if idle else self._session.do(_breathe))
                except (ConnectionError, AMQPError) as error:
                    await self._drop()
                    _LOG.warning("Reading %s was broken off: %s", look.queue, described(error))

    async def close(self) -> None:
        """Give back what is in hand and let go; without a turn."""
        try:
            async with self.turn:
                await self.end()
        except (ConnectionError, AMQPError) as error:
            _LOG.warning(
                "Could not give back dead letters that were read (%s): the broker does it",
                described(error),
            )
        if self._watching is not None:
            self._watching.cancel()
        await self._session.close()


def _begin(connection: pika.BlockingConnection, queue: str, patience: float) -> Scan | None:
    scan = Scan(connection, queue, patience)
    try:
        scan.begin()
    except ChannelClosedByBroker as error:
        scan.end()
        if is_refused(error, NOT_FOUND):
            return None
        raise
    return scan


def _settle(scan: Scan, messages: Sequence[tuple[Page, int]], _connection: object) -> None:
    scan.settle(messages)


def ready(connection: pika.BlockingConnection, queue: str) -> int:
    """Count what is in a queue and in no hand; in one that was deleted, nothing."""
    channel = connection.channel()
    try:
        number = channel.queue_declare(queue, passive=True).method.message_count
    except ChannelClosedByBroker as error:
        if is_refused(error, NOT_FOUND):
            return 0  # the question has closed its own channel and no other
        raise
    channel.close()
    return int(number)


def _is_locked(connection: pika.BlockingConnection, queue: str) -> bool:
    channel = connection.channel()
    try:
        # Not passively: the broker would write an error into its log where there is none.
        channel.queue_declare(lock_of(queue), exclusive=True)
    except ChannelClosedByBroker as error:
        if not is_refused(error, LOCKED):
            raise
        return True
    channel.queue_delete(lock_of(queue))
    channel.close()
    return False


def _breathe(connection: pika.BlockingConnection) -> None:
    connection.process_data_events(0)
