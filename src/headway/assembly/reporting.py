"""Who is told of errors, as ERROR_REPORTER_TYPE says."""

from headway.adapters.reporting.http import URL, HttpReporter
from headway.adapters.reporting.log import LogReporter
from headway.adapters.reporting.silent import NoReporter
from headway.assembly.retrying import CLOCK
from headway.assembly.settings import environment
from headway.core.errors import ConfigurationError
from headway.ports.reporter import ErrorReporter
from headway.runtime.reporting import Reporting

SETTING = "ERROR_REPORTER_TYPE"
ADDRESS = "ERROR_REPORTER_URL"
DEFAULT = "http"


def error_reporter() -> ErrorReporter:
    """Give what takes reports of errors; it never holds up the work.

    ERROR_REPORTER_TYPE is `http`, the default: reports go to the page of errors (`headway ui`) at
    ERROR_REPORTER_URL. Or it is `log`, for the logger `headway.errors`, or `noop`.
    """
    settings = environment()
    given = settings.get(SETTING, "").strip() or DEFAULT
    match given.lower():
        case "noop":
            return NoReporter()
        case "log":
            return Reporting(LogReporter())
        case "http":
            return Reporting(HttpReporter(CLOCK, settings.get(ADDRESS, "").strip() or URL))
    raise ConfigurationError(f"{SETTING}={given!r} is not accepted: use http, log or noop")
