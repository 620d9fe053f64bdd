"""`Sweeper`, bound to the real clock, chance and log, on the engine that is meant."""

import logging
import signal
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.assembly.engine import open_engine
from headway.assembly.retrying import LOGS
from headway.assembly.serving import Metrics
from headway.assembly.settings import sweep_settings
from headway.assembly.signals import obeying
from headway.assembly.sweep_metrics import pushgateway, shown
from headway.core.sweep import SweepRule
from headway.core.sweep_facts import SweepEnded
from headway.core.sweep_settings import SweepSettings
from headway.ports.engine import Engine, Sweeping
from headway.ports.gateway import Gateway
from headway.ports.observer import Observer
from headway.runtime import sweeper
from headway.runtime.observers import Observers
from headway.runtime.service import Service
from headway.runtime.storeless import needs_store
from headway.runtime.sweep_announcing import announced
from headway.runtime.sweep_preview import Preview, preview
from headway.runtime.sweep_targets import find_targets, of_live_version
from headway.runtime.sweep_view import SweepView

_LOG = logging.getLogger("headway")


class Sweeper:
    """Finds documents that are stuck, and sends their events again.

    Use it as `await Sweeper(parsing, chunking).sweep_once()`, or let it `run()`: once in every
    interval, until SIGTERM or Ctrl-C. Several may sweep at the same time.

    Args:
        services: Those whose handlers say, by `documents=`, what their events are about.
        bus: URL of the engine; the one that HEADWAY_BUS names if not given.
        settings: When a document is stuck, and how much is done at once; from RETRY_JOB_* if not
            given.
        collections: Only these; all that the services work on if not given.
        observer: Hears the facts besides the log.
        on_progress: Called with a collection, how many documents were looked at, and of how many.
        metrics: Where /metrics is served while it runs; not at all if not given.
    """

    def __init__(
        self,
        *services: Service,
        bus: str | None = None,
        settings: SweepSettings | None = None,
        collections: Collection[str] = (),
        observer: Observer | None = None,
        on_progress: sweeper.OnProgress | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._services = services
        self._bus = bus
        self._settings = settings or sweep_settings()
        self._collections = collections
        self._observers: Sequence[Observer] = [LOGS, *([observer] if observer else [])]
        self._on_progress = on_progress
        self._metrics = metrics
        self._running: sweeper.Sweeper | None = None
        self.is_stopped = False
        """It was told to stop."""
        self.has_begun = False
        """It may have changed something."""
        find_targets(services, self._settings, collections)  # refused here, before anything starts

    async def sweep_once(self) -> SweepEnded:
        """Sweep every collection once; say what was done."""
        async with self._opened() as running:
            self.has_begun = True
            return await running.sweep_once()

    async def run(self) -> None:
        """Sweep once in every interval until told to stop, by SIGTERM, Ctrl-C or `stop`."""
        async with self._opened() as running:
            with announced(running.rules, self._settings):
                await running.run()

    async def preview(self) -> list[Preview]:
        """Say what a sweep would do now, and why; nothing is changed."""
        engine = open_engine(self._bus)
        try:
            found = find_targets(self._services, self._settings, self._collections)
            targets = [await of_live_version(each, engine.bus) for each in found]
            return await preview(targets, _sweeping(engine), self._settings, CLOCK)
        finally:
            await engine.close()

    def stop(self) -> None:
        """End after what is being sent now, with no claim left behind."""
        self.is_stopped = True
        if self._running is not None:
            self._running.stop()

    def _stop_by(self, number: signal.Signals) -> None:
        _LOG.info("%s received: stopping after the documents that are being sent", number.name)
        self.stop()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[sweeper.Sweeper]:
        engine = open_engine(self._bus, patient=False)
        try:
            view, gateway = self._view(engine), self._gateway()
            push = None if gateway is None else partial(view.push, gateway)
            self._running = self._on(engine, view, push)
            if self.is_stopped:
                self._running.stop()
            with suppress(Exception):  # whatever a driver raises: the sweep says what is wrong
                if engine.open_store is not None:
                    await engine.open_store()
            stopping = (signal.SIGTERM, signal.SIGINT)
            with obeying({each: partial(self._stop_by, each) for each in stopping}):
                async with shown(view, gateway=gateway, metrics=self._metrics):
                    yield self._running
        finally:
            self._running = None
            await engine.close()

    def _gateway(self) -> Gateway | None:
        url = self._settings.gateway
        return None if url is None else pushgateway(url)

    def _view(self, engine: Engine) -> SweepView:
        """Look at all collections, also those that are not swept now: a push replaces them all."""
        targets = {each.collection: each for each in find_targets(self._services, self._settings)}

        async def live(rule: SweepRule) -> SweepRule:
            return (await of_live_version(targets[rule.collection], engine.bus)).rule

        return SweepView(
            _sweeping(engine),
            [each.rule for each in targets.values()],
            CLOCK,
            CHANCE,
            interval=self._settings.interval,
            live=live,
        )

    def _on(
        self, engine: Engine, view: SweepView, push: sweeper.AfterRun | None
    ) -> sweeper.Sweeper:
        return sweeper.Sweeper(
            self._services,
            engine,
            clock=CLOCK,
            chance=CHANCE,
            observer=Observers(*self._observers, view),
            settings=self._settings,
            collections=self._collections,
            on_progress=self._on_progress,
            after_run=push,
        )


def _sweeping(engine: Engine) -> Sweeping:
    if engine.sweeping is None:
        raise needs_store("a sweep")
    return engine.sweeping
