"""Keep several worker processes running, and replace the ones that die."""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from datetime import timedelta

from headway.assembly.terminal import Terminal
from headway.core.backoff import Exponential, NoJitter
from headway.core.errors import ConfigurationError
from headway.core.worker_settings import WorkerSettings
from headway.ports.clock import Clock

_LOG = logging.getLogger("headway")
_SHORT_LIFE = timedelta(seconds=10)
_PAUSES = Exponential(
    base=timedelta(milliseconds=100), cap=timedelta(seconds=30), jitter=NoJitter()
)
_PATIENCE = WorkerSettings().longest_stop
CANNOT_START = 2
"""The exit code of a worker that needs a person to correct its settings first."""


class Supervisor:
    """Starts the same command several times.

    A worker whose input is closed stops as if it was told to, so that none is left behind when the
    supervisor itself is killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        clock: Clock,
        *,
        patience: timedelta = _PATIENCE,
        died: Callable[[int], None] = lambda _pid: None,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        self._command = command
        self._workers = workers
        self._clock = clock
        self._patience = patience
        """How long a worker may take to stop before it is killed."""
        self._died = died
        self._reload = reload
        """Reads the settings of the supervisor itself again."""
        self._children: set[asyncio.subprocess.Process] = set()
        self._stop = asyncio.Event()
        self._refused = False
        self._forced = False

    async def run(self) -> bool:
        """Run until told to stop, by SIGTERM or Ctrl-C; SIGHUP is passed on.

        False: a worker did not stop by itself, and was ended by force.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_all, f"{number.name} received")
        loop.add_signal_handler(signal.SIGHUP, self._hang_up, Terminal())
        places = [asyncio.create_task(self._keep(place)) for place in range(self._workers)]
        stopping = asyncio.create_task(self._until_stopped())
        await asyncio.wait([*places, stopping], return_when=asyncio.FIRST_COMPLETED)
        self._stop.set()
        self._pass_on(signal.SIGTERM)
        killing = asyncio.create_task(self._kill_late())
        await asyncio.gather(*places)
        killing.cancel()
        stopping.cancel()
        if self._refused:
            raise ConfigurationError("a worker could not start; it said why above")
        return not self._forced

    async def _kill_late(self) -> None:
        """Kill the workers that do not stop: one whose interpreter is locked cannot end itself."""
        await self._clock.wait(self._patience)
        for child in self._children:
            if child.returncode is None:
                _LOG.error(
                    "Worker process %d did not stop within %.0fs, and the supervisor killed it: "
                    "its events come back to other workers",
                    child.pid,
                    self._patience.total_seconds(),
                )
                child.kill()

    def _hang_up(self, terminal: Terminal) -> None:
        if terminal.is_gone():
            self._stop_all("SIGHUP received and the terminal is gone")
        else:
            _LOG.info("SIGHUP received: %d worker processes reload settings", len(self._children))
            self._pass_on(signal.SIGHUP)
            self._reload()

    def _stop_all(self, why: str) -> None:
        _LOG.info(
            "%s: stopping %d worker processes, which have %g s to end",
            why,
            len(self._children),
            self._patience.total_seconds(),
        )
        self._stop.set()

    async def _until_stopped(self) -> None:
        await self._stop.wait()

    async def _keep(self, place: int) -> None:
        deaths = starts = 0
        while not self._stop.is_set():
            began = self._clock.now()
            starts += 1
            code = await self._live()
            if self._stop.is_set():
                # One that was only being started ends by the signal itself.
                self._forced |= code not in {0, -signal.SIGTERM, -signal.SIGINT}
                return
            if code == CANNOT_START and starts == 1:
                # A replacement is tried again instead: the others work, and the cause may pass.
                self._refused = True
                return
            deaths = deaths + 1 if self._clock.now() - began < _SHORT_LIFE else 0
            pause = _PAUSES.delay(deaths, 0.0) if deaths > 1 else timedelta()
            _LOG.error(
                "Worker %d died (%s); what it held goes to the others; starting another in %.1fs",
                place + 1,
                _cause(code),
                pause.total_seconds(),
            )
            await self._pause(pause)

    async def _live(self) -> int:
        child = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE)
        self._children.add(child)
        try:
            if self._stop.is_set():  # told to while it was being started
                child.send_signal(signal.SIGTERM)
            return await child.wait()
        finally:
            self._children.discard(child)
            self._died(child.pid)

    async def _pause(self, pause: timedelta) -> None:
        waiting = asyncio.create_task(self._clock.wait(pause))
        stopping = asyncio.create_task(self._until_stopped())
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        stopping.cancel()

    def _pass_on(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.returncode is None:
                child.send_signal(number)


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
