"""Who is told of errors, as ERROR_REPORTER_TYPE says."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headway.adapters.reporting.http import URL, HttpReporter
from headway.adapters.reporting.log import LogReporter
from headway.adapters.reporting.silent import NoReporter
from headway.adapters.system.clock import CLOCK
from headway.assembly.settings import bus_url, environment, ui_token
from headway.core.errors import ConfigurationError
from headway.core.secrets import shown_url
from headway.ports.reporter import ErrorReporter
from headway.runtime.reporting import Reporting

SETTING = "ERROR_REPORTER_TYPE"
ADDRESS = "ERROR_REPORTER_URL"
DEFAULT = "noop"
"""Nothing is sent to a place that the user did not name."""
TYPES = ("http", "log", "noop")


def error_reporter() -> ErrorReporter:
    """Give what takes reports of errors; it never holds up the work.

    By default nothing is reported. With ERROR_REPORTER_TYPE=http, or with ERROR_REPORTER_URL alone,
    reports go to the page of errors (`headway ui`) there; `log` is the logger `headway.errors`.
    """
    return reporter_beside(None)


def reporter_beside(bus: str | None) -> ErrorReporter:
    """Give it for what runs on this bus, which its reports name; None: the one that is set."""
    settings = environment()
    match reporter_type(settings):
        case "noop":
            return NoReporter()
        case "log":
            return Reporting(LogReporter())
        case _:
            url = settings.get(ADDRESS, "").strip() or URL
            return Reporting(
                HttpReporter(CLOCK, url, origin=_origin(bus), token=ui_token(settings))
            )


def reporter_type(settings: Mapping[str, str]) -> str:
    """Read ERROR_REPORTER_TYPE; an address alone means `http`."""
    meant = "http" if settings.get(ADDRESS, "").strip() else DEFAULT
    given = settings.get(SETTING, "").strip() or meant
    if given.lower() not in TYPES:
        raise ConfigurationError(f"Invalid {SETTING}={given!r}. Use one of: {', '.join(TYPES)}.")
    return given.lower()


def _origin(bus: str | None) -> dict[str, str]:
    """Say where the reports come from; a file that is the bus is named from the folder."""
    origin = {"host": socket.gethostname()}
    # Who runs on a bus says what is wrong with it; whoever only reports needs none, and no folder.
    with suppress(OSError):
        origin["folder"] = str(Path.cwd())
    with suppress(ConfigurationError):
        origin["bus"] = shown_url(bus or bus_url())
    return origin
