"""The load test against real server processes, with retry off and on."""

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import httpx

from headway import HeadwayError
from headway.clock import SystemClock
from headway.systems.ledger.load.plan import LoadPlan, four_types, hot_run
from headway.systems.ledger.load.run import Report, run_load
from headway.testing.servers.loopback import free_port

EVENTS_PER_TYPE = 5
CLIENTS, ENTITIES = 20, 10

_READY_WITHIN = timedelta(seconds=30)
_STOPPED_WITHIN = timedelta(seconds=15)
_LOOK_AGAIN = timedelta(milliseconds=50)


class ServerDidNotStartError(HeadwayError):
    """The server process of the demo ended or stayed silent; the message has its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One run of the demo, and what must be true of it."""

    load: str
    attempts: int
    clients: int
    report: Report

    @property
    def retry(self) -> str:
        return "on" if self.attempts > 1 else "off"

    @property
    def shortcoming(self) -> str | None:
        """Say what is not as promised, or None."""
        if self.report.faults:
            return f"the books are not exact: {self.report.faults[0]}"
        if self.attempts == 1:
            return None
        if self.report.stored < self.report.sent:
            return f"{self.report.sent - self.report.stored} events were not stored"
        return None


def events_in_all(events: int) -> int:
    return 2 * (4 * EVENTS_PER_TYPE + events)


def play(
    serve: Sequence[str],
    environment: Mapping[str, str],
    *,
    database: str | None,
    events: int,
    on_act: Callable[[str], None],
    on_answer: Callable[[], None],
) -> list[Act]:
    """Start two servers, one without retry, and put the same loads on both.

    `serve` is the command that serves a ledger; options are added to it. `events` are sent by the
    second load.
    """
    acts = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-demo-")))
        urls = {
            attempts: stack.enter_context(
                _server(
                    [*serve, "--attempts", str(attempts)],
                    environment,
                    database or f"sqlite:///{quote(str(folder))}/attempts-{attempts}.db",
                    folder / f"attempts-{attempts}.log",
                )
            )
            for attempts in (1, 5)
        }
        for load, clients, plan in _loads(events):
            for attempts, url in urls.items():
                on_act(f"{load}, retry {'on' if attempts > 1 else 'off'}")
                report = asyncio.run(
                    run_load(
                        url,
                        plan(),
                        clients=clients,
                        honour_retry_after=attempts > 1,
                        on_answer=on_answer,
                    )
                )
                acts.append(Act(load=load, attempts=attempts, clients=clients, report=report))
    return acts


def _loads(events: int) -> Sequence[tuple[str, int, Callable[[], LoadPlan]]]:
    return (
        (
            f"4 types x {EVENTS_PER_TYPE}",
            4 * EVENTS_PER_TYPE,
            lambda: four_types(EVENTS_PER_TYPE),
        ),
        (
            f"{CLIENTS} clients",
            CLIENTS,
            lambda: hot_run(events=events, entities=ENTITIES),
        ),
    )


@contextlib.contextmanager
def _server(
    serve: Sequence[str], environment: Mapping[str, str], database: str, log: Path
) -> Iterator[str]:
    """Run a server process as long as the block lasts, and give its URL.

    It holds the other end of a pipe of ours, so it stops even if we are killed in the block.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    # The URL may hold a password, and everybody on the machine can read a command line.
    settings = {**environment, "LEDGER_DATABASE_URL": database, "LEDGER_PORT": str(port)}
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 (our own command)
            [*serve, "--host", "127.0.0.1", "--as-long-as-stdin"],
            env=settings,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_ready(url, process, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(_STOPPED_WITHIN.total_seconds())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin:
            process.stdin.close()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    clock = SystemClock()
    deadline = clock.now() + _READY_WITHIN
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health").is_success:
                return
        if process.poll() is not None or clock.now() > deadline:
            said = log.read_text(errors="replace").splitlines() or ["nothing"]
            last = said[-1].removeprefix("headway: ")
            raise ServerDidNotStartError(f"the demo's server did not start. It said: {last}")
        clock.sleep(_LOOK_AGAIN)
