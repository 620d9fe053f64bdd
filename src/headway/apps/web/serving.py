"""Serve the pages until told to stop."""

import logging
import socket
from pathlib import Path

import uvicorn

from headway.adapters.sqlite.error_book import SqliteErrorBook
from headway.apps.web.application import application
from headway.assembly.retrying import CLOCK
from headway.core.errors import ConfigurationError

log = logging.getLogger("headway")
_LOCAL = ["localhost", "127.0.0.1", "[::1]"]
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 (looked for, not listened on)


def serve(*, host: str, port: int, errors: Path) -> None:
    """Serve the page of errors; they are kept in the file `errors`."""
    book = SqliteErrorBook(errors)
    listener = _listen(host, port)
    with listener:
        found, taken = listener.getsockname()[:2]
        shown = f"[{found}]" if ":" in found else found
        log.info("Errors are at http://%s:%d/ui, kept in %s", shown, taken, errors)
        # Whoever opens it to other machines reaches it by names that only they know.
        hosts = ["*"] if host in _ANY_ADDRESS else [*_LOCAL, host]
        config = uvicorn.Config(
            application(book, CLOCK, hosts=hosts), log_config=None, access_log=False
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"--host {host} --port {port} cannot be listened on: {error.strerror or error}; "
            "choose others"
        ) from None
