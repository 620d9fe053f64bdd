"""Results from Kafka, through Arroyo's pool of processes.

Batches of one partition go to whichever process is free, which is what brings results out of their
order. Offsets are committed in order all the same, after every result of a batch is applied or
held: whoever dies before that gets them again.
"""

import logging
import multiprocessing
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.util import Finalize
from typing import Any

from arroyo.backends.abstract import Consumer
from arroyo.backends.kafka import KafkaPayload
from arroyo.errors import OffsetOutOfRange
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import (
    BatchStep,
    CommitOffsets,
    ProcessingStrategy,
    ProcessingStrategyFactory,
    RunTaskWithMultiprocessing,
)
from arroyo.processing.strategies.batching import ValuesBatch
from arroyo.types import Commit, Message, Partition, Topic
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headway import HeadwayError
from headway.clock import CLOCK
from headway.order import Disposition
from headway.systems.uptime.arroyo.client_log import ClientLog
from headway.systems.uptime.arroyo.offsets import lost_offsets
from headway.systems.uptime.arroyo.pool import WatchedPool
from headway.systems.uptime.arroyo.progress import NOTHING, GroupProgress
from headway.systems.uptime.arroyo.source import Entrance, kafka_consumer
from headway.systems.uptime.hosting import host_of, progress_in
from headway.systems.uptime.settings import OLDEST, PREFIX, STOP, UptimeSettings

_LOG = logging.getLogger("headway")
_PAUSE = timedelta(seconds=1)
_ANSWERS_WITHIN = 5.0
ASK_EVERY = timedelta(seconds=1)
"""How far the topic is read."""


class ResultsLeftError(HeadwayError):
    """Results could be neither applied nor held: Kafka has to give them again."""


class OffsetsLostError(HeadwayError):
    """Kafka has no more what has to be read next."""


class UptimeStrategy(ProcessingStrategyFactory[KafkaPayload]):
    """Makes the steps for the partitions that are ours at present."""

    def __init__(
        self,
        settings: UptimeSettings,
        *,
        processes: int = 2,
        batch: int = 50,
        batch_seconds: float = 0.5,
        worker: Any = None,
    ) -> None:
        """Say how it runs.

        Args:
            settings: Of every process.
            processes: How many.
            batch: How many results are taken at once.
            batch_seconds: How long is waited for that many.
            worker: What is done with a batch instead, by a function that can be imported; called
                with the settings and a message.
        """
        self._settings = settings
        self._batch = batch
        self._seconds = batch_seconds
        self._worker = worker or take
        # Seconds since 1970 until which all was offered; 0: until now. No lock: a process that
        # is killed would keep it.
        self._shared = multiprocessing.get_context("spawn").RawValue("d", NOTHING.timestamp())
        begin = partial(_begin, settings, self._shared)
        self._pool = WatchedPool(processes, begin, CLOCK)
        self._progress = progress_of(settings)
        self._progress.keep_asking(ASK_EVERY, self._say)

    def create_with_partitions(
        self,
        commit: Commit,
        partitions: Mapping[Partition, int],  # noqa: ARG002 (Arroyo's form)
    ) -> ProcessingStrategy[KafkaPayload]:
        run = RunTaskWithMultiprocessing(
            partial(self._worker, self._settings),
            CommitOffsets(commit),
            max_batch_size=1,  # batches are cut before, so that each is one call of the engines
            max_batch_time=self._seconds,
            pool=self._pool,
        )
        cut = BatchStep[KafkaPayload](self._batch, self._seconds, run)
        return Entrance(self._pool.check, cut)

    def shutdown(self) -> None:
        self._progress.close()
        self._pool.close()

    def _say(self, caught_up: datetime | None) -> None:
        self._shared.value = 0.0 if caught_up is None else caught_up.timestamp()


def take(settings: UptimeSettings, message: Message[ValuesBatch[KafkaPayload]]) -> int:
    """Have a batch taken by the consumer of this process; say how many results it has."""
    host = host_of(settings)
    raws = [value.payload.value for value in message.payload]
    left = [each for each in host.handle(raws, host.progress()) if each is Disposition.LEFT]
    host.flush()  # whoever kills this process says no word before
    if left:
        raise ResultsLeftError(f"{len(left)} of {len(raws)} results were neither applied nor held")
    return len(raws)


def _begin(settings: UptimeSettings, shared: Any) -> None:
    """Open the consumer of a process before its first batch, and tell it where progress is."""
    progress_in(settings).ask = partial(_told, shared)
    host = host_of(settings)
    # The pool sends this signal to its processes in the end: they leave, and close what they have.
    signal.signal(signal.SIGTERM, _leave)
    Finalize(None, host.close, exitpriority=1)


def _leave(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise SystemExit(0)


def _told(shared: Any) -> datetime | None:
    seconds = shared.value
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def progress_of(settings: UptimeSettings) -> GroupProgress:
    """Give how far all consumers are together."""
    return GroupProgress(settings.kafka_servers, settings.kafka_group, settings.kafka_topic, CLOCK)


def run_kafka(
    settings: UptimeSettings,
    *,
    processes: int,
    batch: int,
    overrides: Mapping[str, Any] | None = None,
) -> None:
    """Read the topic until SIGTERM or Ctrl-C. When something breaks, begin at the last commit.

    OffsetsLostError: Kafka has no more what comes next, and the settings say to stop then.
    """
    client = ClientLog(settings.kafka_servers, CLOCK, option="--kafka")
    running: list[StreamProcessor[KafkaPayload]] = []
    stopped = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        stopped.set()
        for each in running:
            each.signal_shutdown()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    saying = threading.Thread(target=_say_whether_it_answers, args=(settings, client), daemon=True)
    saying.start()
    while not stopped.is_set():
        strategy = UptimeStrategy(settings, processes=processes, batch=batch)
        consumer = kafka_consumer(
            settings.kafka_servers,
            settings.kafka_group,
            overrides or {},
            logger=client.logger,
            stops_if_lost=settings.kafka_lost == STOP,
        )
        running[:] = [stream(settings, consumer, strategy)]
        if stopped.is_set():
            running[0].signal_shutdown()
        try:
            running[0].run()
        except OffsetOutOfRange as error:
            raise _lost(settings, client, overrides or {}) from error
        except Exception:
            if stopped.is_set():
                raise
            _LOG.exception("Reading %s broke off; it begins anew", settings.kafka_topic)
            CLOCK.sleep(_PAUSE)
        finally:
            # Arroyo's own raises when a process ends: from here on they are meant to.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # Both are given up in any case. Whoever leaves the group without a word keeps its
            # partitions from everybody until the session ends.
            with suppress(Exception):
                consumer.close()
            with suppress(Exception):
                strategy.shutdown()


def _lost(
    settings: UptimeSettings, client: ClientLog, overrides: Mapping[str, Any]
) -> OffsetsLostError:
    """Say what is gone. To go on by itself would lose results without a word."""
    servers, group, topic = settings.kafka_servers, settings.kafka_group, settings.kafka_topic
    found = lost_offsets(servers, group, topic, client.logger, overrides)
    which = "; ".join(map(str, found)) or "of which partition it does not say"
    return OffsetsLostError(
        f"Kafka at {servers} has no more what group {group} reads next of {topic} ({which}): it "
        "was deleted before it was read. Keep it longer (retention.ms); and to go on, set "
        f"{PREFIX}KAFKA_LOST={OLDEST}: what is gone is given up as missing, and reading begins "
        "with the oldest that is there"
    )


def _say_whether_it_answers(settings: UptimeSettings, log: ClientLog) -> None:
    """Say in one line that Kafka is not reached, also if its client has not noticed yet."""
    servers = settings.kafka_servers
    try:
        client = AdminClient({"bootstrap.servers": servers}, logger=log.logger)
        client.list_topics(timeout=_ANSWERS_WITHIN)
    except KafkaException as error:
        log.not_reached(error.args[0].str() if error.args else str(error))
    else:
        _LOG.info("Reading %s from Kafka at %s", settings.kafka_topic, servers)


def stream(
    settings: UptimeSettings, consumer: Consumer[KafkaPayload], strategy: UptimeStrategy
) -> StreamProcessor[KafkaPayload]:
    """Put a consumer of Arroyo and the steps together."""
    return StreamProcessor(consumer, Topic(settings.kafka_topic), strategy)
