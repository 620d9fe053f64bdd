"""Worker processes of the pipeline, for as long as somebody watches them."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self

from headway import ConfigurationError
from headway.clock import CLOCK
from headway.systems.consensus.telling import Told, read
from headway.systems.consensus.worker import CANNOT_START

COMMAND = (sys.executable, "-P", "-m", "headway.systems.consensus.worker")
_MOST_DEATHS = 5
"""In a row, of one place, each after a short life: then it is no accident."""
_SHORT_LIFE = timedelta(seconds=5)
_STOP_SECONDS = 40.0
"""Longer than a worker lets its handlers go on."""


class Workers:
    """Keeps so many processes running, and replaces the ones that die.

    Use it as `async with Workers(2, ...) as workers`. When the block is left, they finish what they
    are at. Should this process be killed, their input ends, and so do they.

    Args:
        number: How many.
        environment: Of the processes, with all settings.
        log: The file that they write to.
        on_told: Called with everything that one of them tells.
        on_death: Called with the pid and the exit code of one that died.
        command: What is started.
    """

    def __init__(
        self,
        number: int,
        *,
        environment: Mapping[str, str],
        log: Path,
        on_told: Callable[[Told], None],
        on_death: Callable[[int, int], None] = lambda _pid, _code: None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._number = number
        self._environment = environment
        self._log = log
        self._on_told = on_told
        self._on_death = on_death
        self._command = command
        self._children: set[asyncio.subprocess.Process] = set()
        self._places: list[asyncio.Task[None]] = []
        self._is_stopping = False

    async def __aenter__(self) -> Self:
        self._places = [asyncio.create_task(self._keep()) for _ in range(self._number)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_stopping = True
        for child in self._children:
            _close(child)
        await asyncio.wait(self._places, timeout=_STOP_SECONDS)
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        await asyncio.gather(*self._places, return_exceptions=True)

    @property
    def pids(self) -> list[int]:
        """The processes that are running now."""
        return [child.pid for child in self._children if child.returncode is None]

    def is_stopping(self) -> bool:
        """Say whether the block is being left."""
        return self._is_stopping

    def check(self) -> None:
        """Raise what keeps a worker from starting, if anything does."""
        for place in self._places:
            if place.done():
                place.result()

    async def _keep(self) -> None:
        deaths = 0
        while not self.is_stopping():
            began = CLOCK.now()
            pid, code = await self._live()
            if self.is_stopping():
                return
            deaths = deaths + 1 if CLOCK.now() - began < _SHORT_LIFE else 0
            if code == CANNOT_START or deaths >= _MOST_DEATHS:
                raise ConfigurationError(f"a worker could not start: {self._last_words()}")
            self._on_death(pid, code)

    async def _live(self) -> tuple[int, int]:
        with self._log.open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=dict(self._environment),
            )
        self._children.add(child)
        try:
            if self.is_stopping():  # told to while it was being started
                _close(child)
            assert child.stdout is not None  # noqa: S101 (it is a pipe)
            async for line in child.stdout:
                told = read(line)
                if told is not None:
                    self._on_told(told)
            return child.pid, await child.wait()
        finally:
            self._children.discard(child)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'it said nothing'} (see {self._log})"


def _close(child: asyncio.subprocess.Process) -> None:
    if child.stdin is not None:
        child.stdin.close()
