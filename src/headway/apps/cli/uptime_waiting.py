"""How `headway uptime run --from` waits until nothing is held any more, and says so."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from rich.console import Console
from rich.text import Text

from headway.adapters.system.clock import CLOCK
from headway.apps.cli.operator import result_order
from headway.apps.cli.screen import many, when
from headway.assembly.sequencing import open_sequences
from headway.core.showing import shown
from headway.runtime.order import OrderReport
from headway.runtime.sequence_reach import is_unavailable
from headway.systems.uptime.opening import FAMILY
from headway.systems.uptime.settings import UptimeSettings

_LOG = logging.getLogger("headway")
_LOOK_EVERY = timedelta(milliseconds=200)
_SAY_EVERY = timedelta(seconds=30)


async def until_none_is_held(settings: UptimeSettings, patience: timedelta) -> bool:
    """Wait; False: the engine of sequences was away for so long that nobody can know."""
    sequences = open_sequences(settings.sequences_url, family=FAMILY, settings=settings.order())
    order = result_order(sequences)
    away_since: datetime | None = None
    try:
        with _said() as say:
            while True:
                try:
                    report = await order.status(1)
                except Exception as error:
                    if not is_unavailable(error):
                        raise
                    away_since = away_since or CLOCK.now()
                    if CLOCK.now() - away_since >= patience:
                        _LOG.warning(
                            "Whether results are held is not known, for the engine of sequences "
                            "is away (%s): this run ends, and the next one takes up what is held",
                            type(error).__name__,
                        )
                        return False
                else:
                    away_since = None
                    if not report.count:
                        return True
                    say(_words(report))
                await CLOCK.wait(_LOOK_EVERY)
    finally:
        await sequences.close()


def _words(report: OrderReport) -> str:
    words = f"Waiting for what is missing: {many(report.count, 'subscription')} with held results"
    for first in report.keys:
        held = many(len(first.standing.held), "result")
        until = first.standing.gives_up or first.standing.next_look
        words += f"; {shown(first.key)} holds {held}, until {when(until)} at most"
    return words


@contextlib.contextmanager
def _said() -> Iterator[Callable[[str], None]]:
    """Show the last words beside a spinner on a terminal; elsewhere, log some of them."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(Text("")) as status:
            yield lambda words: status.update(Text(words))
        return
    again: datetime | None = None

    def log(words: str) -> None:
        nonlocal again
        now = CLOCK.now()
        if again is None or now >= again:
            again = now + _SAY_EVERY
            _LOG.info("%s", words)

    yield log
