"""Options that several commands share."""

from typing import Annotated

import typer

from headway.apps.cli.logs import LogFormat, LogLevel
from headway.core.errors import ConfigurationError


def not_empty(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    """Refuse an option that was given without a value: mostly a variable that is not set."""
    source = ctx.get_parameter_source(param.name or "")
    is_given = source is not None and source.name == "COMMANDLINE"
    if is_given and value is not None and not value.strip():
        raise ConfigurationError(
            f"Invalid {param.opts[0]} {value!r}: it is empty. Is a variable unset? Give a value, "
            "or leave the option out."
        )
    return value


BusOption = Annotated[
    str | None,
    typer.Option(
        "--bus",
        metavar="URL",
        help="The engine. [default: HEADWAY_BUS, or sqlite:///headway.db]",
        callback=not_empty,
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        metavar="NUMBER",
        help="Serve /metrics on this port of localhost. [default: do not]",
    ),
]
MetricsHostOption = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Address to serve /metrics on.")
]
LogFormatOption = Annotated[
    LogFormat, typer.Option(help="JSON lines, or short ones; auto: by the terminal.")
]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        case_sensitive=False,
        metavar="LEVEL",
        help="Least level of log lines: debug, info, warning, error, critical. "
        "[default: HEADWAY_LOG_LEVEL, or info]",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="A list of objects, for machines.")]
RawOption = Annotated[
    bool, typer.Option("--raw", help="As it is stored, with passwords, keys and tokens.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
ReasonOption = Annotated[
    str,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Why you change this, for the history.",
        callback=not_empty,
    ),
]
HistoryLimitOption = Annotated[
    int, typer.Option("--limit", min=1, metavar="NUMBER", help="At most so many, newest first.")
]
YesOption = Annotated[bool, typer.Option("--yes", "--confirm", help="Do not ask.")]
