"""Results without Kafka: cut into batches, and taken by several worker processes.

Batches go to whichever worker is free, as in Arroyo's pool, so results of one subscription come out
of order here too. A worker that dies is replaced, and its batch is given to another.
"""

import multiprocessing
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Self

from headway import ConfigurationError
from headway.clock import CLOCK
from headway.systems.uptime.hosting import Host, host_of
from headway.systems.uptime.processor import Handled
from headway.systems.uptime.settings import UptimeSettings

_IDLE_SECONDS = 0.2
_STOP_SECONDS = 30.0


@dataclass(slots=True)
class Batch:
    """Some results, as they were read from the source."""

    number: int
    raws: Sequence[bytes]
    read_at: datetime
    pause: float = 0.0
    """Seconds for which its worker stands still before it begins, for demonstrations."""


@dataclass(slots=True)
class EmbeddedReport:
    """What became of all results."""

    results: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    """By the words of `Disposition` and `Drop`."""
    deaths: int = 0
    """Workers that died and were replaced."""


class Embedded:
    """A pool of worker processes on one store and one engine of sequences.

    Use it as `with Embedded(settings, workers=4) as pool: pool.feed(raws)`.
    """

    def __init__(
        self,
        settings: UptimeSettings,
        *,
        workers: int = 2,
        batch: int = 50,
        pause_of: Callable[[int], float] = lambda _number: 0.0,
        on_batch: Callable[[int], None] = lambda _results: None,
    ) -> None:
        """Say how it runs.

        Args:
            settings: Of every worker.
            workers: How many processes.
            batch: How many results are taken at once.
            pause_of: Seconds for which the worker of a batch, by its number, stands still first.
            on_batch: Called with the number of results of each batch that is done.
        """
        if workers < 1 or batch < 1:
            raise ConfigurationError(
                f"workers={workers}, batch={batch} are not accepted: use at least 1 of each"
            )
        self.report = EmbeddedReport()
        self._settings = settings
        self._workers = [_Worker(settings) for _ in range(workers)]
        self._batch = batch
        self._pause_of = pause_of
        self._on_batch = on_batch
        self._waiting: deque[Batch] = deque()
        self._unfinished: dict[int, Batch] = {}
        self._numbers = 0
        self._changed = threading.Condition()
        self._closed = False
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._serve, args=(worker,), daemon=True)
            for worker in self._workers
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def pids(self) -> list[int]:
        """The processes that are running now."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def feed(self, raws: Iterable[bytes]) -> EmbeddedReport:
        """Have all results taken; returns when each is applied or held."""
        for some in _cut(raws, self._batch):
            with self._changed:
                # As far ahead as workers can use: memory stays bounded whatever is fed.
                self._changed.wait_for(
                    lambda: len(self._waiting) <= len(self._workers) or self._failure is not None
                )
                number, self._numbers = self._numbers, self._numbers + 1
                batch = Batch(number, some, CLOCK.now(), self._pause_of(number))
                self._waiting.append(batch)
                self._unfinished[number] = batch
                self._changed.notify_all()
            if self._failure is not None:
                break
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished or self._failure is not None)
        if self._failure is not None:
            raise self._failure
        return self.report

    def _serve(self, worker: "_Worker") -> None:
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed, _IDLE_SECONDS)
                batch = self._waiting.popleft() if self._waiting else None
                caught_up = self._caught_up(batch)
            try:
                handled = worker.ask(batch, caught_up)
            except (EOFError, OSError):
                self._died(worker, batch)
            except BaseException as error:  # noqa: BLE001 (it is raised where results are fed)
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                break
            else:
                if batch is not None:
                    self._done(batch, handled)
        worker.close()

    def _caught_up(self, batch: Batch | None) -> datetime | None:
        """Say since when something is read and not done; of a batch, what was read before it."""
        limit = self._numbers if batch is None else batch.number
        older = (each.read_at for number, each in self._unfinished.items() if number < limit)
        return min(older, default=None)

    def _died(self, worker: "_Worker", batch: Batch | None) -> None:
        worker.forget()
        with self._changed:
            self.report.deaths += 1
            if batch is not None:
                batch.pause = 0.0
                self._waiting.appendleft(batch)
            self._changed.notify_all()

    def _done(self, batch: Batch, handled: Sequence[Handled]) -> None:
        with self._changed:
            del self._unfinished[batch.number]
            self.report.results += len(handled)
            self.report.fates.update(str(each) for each in handled)
            self._changed.notify_all()
        self._on_batch(len(handled))


class _Worker:
    """One place for a worker process; it is started when it is first asked something."""

    def __init__(self, settings: UptimeSettings) -> None:
        self._settings = settings
        self._process: SpawnProcess | None = None
        self._line: Connection | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def ask(self, batch: Batch | None, caught_up: datetime | None) -> Sequence[Handled]:
        """Have a batch taken; without one, only say how far the source was read."""
        if self._line is None:
            self._start()
        assert self._line is not None  # noqa: S101 (it was just started)
        self._line.send((batch, caught_up))
        answer = self._line.recv()
        if isinstance(answer, BaseException):
            raise answer
        handled: Sequence[Handled] = answer
        return handled

    def close(self) -> None:
        """Have it finish what it is at."""
        if self._line is not None and self._process is not None:
            self._line.close()
            self._process.join(_STOP_SECONDS)
        self.forget()

    def forget(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._line = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(theirs, self._settings), name="headway-uptime", daemon=True
        )
        self._process.start()
        theirs.close()


def _work(line: Connection, settings: UptimeSettings) -> None:
    """Live as a worker process: until the line is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever feeds is told, and closes the line
    host: Host | None = None
    try:
        while True:
            try:
                batch, caught_up = line.recv()
            except EOFError:
                break
            try:
                host = host_of(settings)
                line.send(_taken(host, batch, caught_up))
            except Exception as error:  # noqa: BLE001 (it is raised where results are fed)
                line.send(RuntimeError(f"a worker failed: {type(error).__name__}: {error}"))
    finally:
        if host is not None:
            host.close()


def _taken(host: Host, batch: Batch | None, caught_up: datetime | None) -> list[Handled]:
    if batch is None:
        host.progress.caught_up = caught_up
        return []
    if batch.pause:
        threading.Event().wait(batch.pause)
    return host.handle(batch.raws, caught_up)


def _cut(raws: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    for raw in raws:
        some.append(raw)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some
