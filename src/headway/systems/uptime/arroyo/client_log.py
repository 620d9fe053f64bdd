"""What Kafka's client says: of a server that is away, one line of ours in place of its hundreds.

The client writes a line to stderr for every socket that it cannot open, many times in a second, and
none of them says what to do.
"""

import logging
from datetime import datetime, timedelta

from headway.clock import Clock

_LOG = logging.getLogger("headway")
_SAY_EVERY = timedelta(minutes=1)
_PARTS = 3
"""Of what it says: the kind, the client's own name, and the text."""


class ClientLog(logging.Handler):
    """Hears one client, or several of the same servers."""

    def __init__(self, servers: str, clock: Clock, *, option: str) -> None:
        """Take where the servers are looked for, and which option says so."""
        super().__init__()
        self._servers = servers
        self._option = option
        self._clock = clock
        self._say_again: datetime | None = None
        # One of its own, under no other: nobody else's settings reach it.
        self.logger = logging.Logger("headway.kafka.client", logging.WARNING)  # noqa: LOG001 (so)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on what the client says; what it says as an error is of its connections."""
        said = record.args if isinstance(record.args, tuple) else ()
        if record.levelno >= logging.ERROR and len(said) == _PARTS:
            self.not_reached(str(said[-1]).rpartition("]: ")[2])
        else:
            _LOG.log(record.levelno, "Kafka's client says: %s", record.getMessage())

    def not_reached(self, why: str) -> None:
        """Say that Kafka is away, once in a minute."""
        self.acquire()
        try:
            now = self._clock.now()
            if self._say_again is not None and now < self._say_again:
                return
            self._say_again = now + _SAY_EVERY
        finally:
            self.release()
        _LOG.warning(
            "Kafka at %s cannot be reached (%s): it is tried until it answers, or until this is "
            "stopped; look whether it runs, and at %s",
            self._servers,
            why,
            self._option,
        )
