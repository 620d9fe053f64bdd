"""Serve the pages until told to stop."""

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from headway.adapters.sqlite.error_book import SqliteErrorBook
from headway.adapters.system.clock import CLOCK
from headway.apps.web.application import application
from headway.assembly.http_guard import is_local
from headway.assembly.http_server import StopOrder, address_of, listen, serve_until_told
from headway.assembly.settings import UI_TOKEN
from headway.core.errors import ConfigurationError

log = logging.getLogger("headway")

_CONNECTIONS = 100


def serve(
    *, host: str, port: int, errors: Path, token: str | None = None, hosts: Iterable[str] = ()
) -> None:
    """Serve the page of errors; they are kept in the file `errors`."""
    if token is None and not is_local(host):
        raise ConfigurationError(
            f"--host {host} lets other machines read and report errors without a token. Set "
            f"{UI_TOKEN} (make one with: openssl rand -hex 16), or listen on 127.0.0.1."
        )
    order = StopOrder.by_signal()
    book = SqliteErrorBook(errors)
    with listen(host, port, named=f"--host {host} --port {port}") as listener:
        log.info("Errors are at %s/ui, kept in %s", address_of(listener), errors)
        made = partial(application, book, CLOCK, hosts=(host, *hosts), token=token)
        serve_until_told(made, listener, order, connections=_CONNECTIONS)
