"""One worker process of the pipeline: all services, until its standard input is closed.

`Workers` starts it, and reads on its standard output what happens. The log goes to its standard
error.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from headway import ConfigurationError, Service, run_services
from headway.logs import TerminalFormatter, write_lines
from headway.settings import WorkerSettings, log_level
from headway.systems.consensus.telling import Teller, TroubleTeller

CANNOT_START = 2
"""What it ends with when a setting has to be mended first: starting it again is no use."""
_STDIN = 0


def work(services: Sequence[Service], settings: WorkerSettings | None = None) -> None:
    """Run services in this process."""
    try:
        write_lines(TerminalFormatter(), log_level())
        asyncio.run(_run(services, settings))
    except ConfigurationError as error:
        refuse(error)
    logging.getLogger("headway").info("Stopped (process %d)", os.getpid())


def refuse(error: ConfigurationError) -> None:
    """Say why it cannot start, and end the process."""
    sys.stderr.write(f"{error}\n")
    sys.exit(CANNOT_START)


async def _run(services: Sequence[Service], settings: WorkerSettings | None) -> None:
    loop = asyncio.get_running_loop()

    def stop_at_the_end(worker: Any) -> None:
        if not os.read(_STDIN, 1024):
            loop.remove_reader(_STDIN)
            worker.stop()

    def started(worker: Any, _engine: object) -> None:
        loop.add_reader(_STDIN, stop_at_the_end, worker)

    teller = Teller(sys.stdout)
    logging.getLogger("headway").addHandler(TroubleTeller(teller))
    await run_services(*services, settings=settings, observer=teller, started=started)


def main() -> None:
    """Run the pipeline as the environment has it."""
    try:
        from headway.systems.consensus.pipeline import SERVICES  # noqa: PLC0415 (it reads settings)
    except ConfigurationError as error:
        refuse(error)
    else:
        work(SERVICES)


if __name__ == "__main__":
    main()
