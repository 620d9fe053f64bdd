"""Push figures of sweeps to a Pushgateway, always under the same group.

A group holds what was pushed last, whoever pushed it, and keeps it when the pusher is gone. So one
group is for all sweepers of a system, whichever of them swept, and dead ones leave nothing behind.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from http.client import HTTPException
from urllib.error import HTTPError

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import (
    basic_auth_handler,
    push_to_gateway,
    pushadd_to_gateway,
)

from headway.adapters.prometheus.sweeps import SweepCollector
from headway.core.gateway_url import GatewayUrl
from headway.core.secrets import hidden
from headway.core.sweep_figures import SweepFigures
from headway.core.sweep_totals import GROUP

JOB = GROUP
"""The group is `job="retry_job"`, and has no other label."""
_PATIENCE = timedelta(seconds=5)
_MOST_OF_ANSWER = 200


class Pushgateway:
    """A `Gateway` that speaks to a Pushgateway."""

    def __init__(self, url: GatewayUrl, patience: timedelta = _PATIENCE) -> None:
        self._url = url
        self._patience = patience.total_seconds()

    def __str__(self) -> str:
        return f"the Pushgateway at {self._url.address}"

    async def push(self, figures: SweepFigures) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SweepCollector(lambda: figures))
        # To replace the whole group also removes what this push has no word of. To replace what it
        # names keeps the counters of a store that is away, and the time of a run before this one.
        is_whole = figures.totals is not None and figures.last_run is not None
        push = push_to_gateway if is_whole else pushadd_to_gateway
        login = partial(
            basic_auth_handler, username=self._url.user or None, password=self._url.password
        )
        send = partial(
            push, self._url.address, JOB, registry, timeout=self._patience, handler=login
        )
        try:
            # The library waits so long for each step, and for a name as long as that takes.
            async with asyncio.timeout(2 * self._patience):
                await _apart(partial(_answered, send))
        except (OSError, HTTPException, ValueError) as error:
            raise OSError(f"{type(error).__name__}: {hidden(str(error))}") from None


def _answered(send: Callable[[], None]) -> None:
    try:
        send()
    except HTTPError as error:
        with error:  # it holds the connection
            said = error.read(_MOST_OF_ANSWER).decode(errors="replace").strip()
        raise ConnectionRefusedError(f"{error.code} {error.reason} {said}".strip()) from None


async def _apart(work: Callable[[], None]) -> None:
    """Run something in a thread that nobody has to wait for, not even the end of the process."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if over.done():
            return  # nobody waits any longer
        if error is None:
            over.set_result(None)
        else:
            over.set_exception(error)

    def run() -> None:
        error = None
        try:
            work()
        except Exception as raised:  # noqa: BLE001 (raised again where somebody waits for it)
            error = raised
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, error)
        del error  # or it would hold this frame, and the frame it

    threading.Thread(target=run, name="headway-push", daemon=True).start()
    await over
