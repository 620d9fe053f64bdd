"""Who is told of errors, as ERROR_REPORTER_TYPE says."""

from headway.adapters.reporting.log import LogReporter
from headway.adapters.reporting.silent import NoReporter
from headway.assembly.settings import environment
from headway.core.errors import ConfigurationError
from headway.ports.reporter import ErrorReporter
from headway.runtime.reporting import Reporting

SETTING = "ERROR_REPORTER_TYPE"


def error_reporter() -> ErrorReporter:
    """Give what takes reports of errors; it never holds up the work.

    ERROR_REPORTER_TYPE is `log`, for the logger `headway.errors`, or `noop`, the default.
    """
    given = environment().get(SETTING, "").strip()
    match given.lower():
        case "" | "noop":
            return NoReporter()
        case "log":
            return Reporting(LogReporter())
        case "http":
            why = "its server comes with the pipeline; until then use log, or noop"
        case _:
            why = "use log, or noop"
    raise ConfigurationError(f"{SETTING}={given!r} is not accepted: {why}")
