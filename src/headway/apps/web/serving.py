"""Serve the pages until told to stop."""

import logging
from functools import partial
from pathlib import Path

from headway.adapters.sqlite.error_book import SqliteErrorBook
from headway.apps.web.application import application
from headway.assembly.http_server import StopOrder, address_of, listen, serve_until_told
from headway.assembly.retrying import CLOCK

log = logging.getLogger("headway")
_LOCAL = ["localhost", "127.0.0.1", "[::1]"]
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 (looked for, not listened on)


def serve(*, host: str, port: int, errors: Path) -> None:
    """Serve the page of errors; they are kept in the file `errors`."""
    order = StopOrder.by_signal()
    book = SqliteErrorBook(errors)
    with listen(host, port, named=f"--host {host} --port {port}") as listener:
        log.info("Errors are at %s/ui, kept in %s", address_of(listener), errors)
        # Whoever opens it to other machines reaches it by names that only they know.
        hosts = ["*"] if host in _ANY_ADDRESS else [*_LOCAL, host]
        serve_until_told(partial(application, book, CLOCK, hosts=hosts), listener, order)
