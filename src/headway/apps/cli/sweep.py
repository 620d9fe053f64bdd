"""`headway sweep`: send the events of stuck documents again."""

from typing import Annotated

import typer

from headway.apps.cli.logs import LogFormat, use_level
from headway.apps.cli.options import (
    BusOption,
    DryRunOption,
    LogFormatOption,
    LogLevelOption,
    MetricsHostOption,
    MetricsPortOption,
)
from headway.apps.cli.stopping import nothing_begun

_SERVICES = (
    "The services, as MODULE:SERVICE; a MODULE alone stands for all of its own. "
    "[default: HEADWAY_SERVICES]"
)


def sweep(  # noqa: PLR0917 (typer gives them by name)
    services: Annotated[
        list[str] | None, typer.Argument(metavar="[MODULE:SERVICE]...", help=_SERVICES)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Sweep one time, and end.")] = False,
    dry_run: DryRunOption = False,
    collection: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this collection; can be given again."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="Send at most so many of each collection in one run. [default: RETRY_JOB_LIMIT, "
            "or 10000]",
        ),
    ] = None,
    no_leader: Annotated[
        bool,
        typer.Option(
            "--no-leader", help="Sweep even if another one leads; claims keep them apart."
        ),
    ] = False,
    bus: BusOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="For each run a list of objects, for machines.")
    ] = False,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevelOption = None,
) -> None:
    """Find stuck documents and send their events again; give up what has had all its attempts.

    At every RETRY_JOB_INTERVAL_SECONDS, until told to stop (SIGTERM, Ctrl-C); with --once, one
    time. --dry-run changes nothing, and says what would be done and why.

    Exit code 0: done; 1: something went wrong in the run (--once), and it says what; 2: it could
    not begin; 130: told to stop before the one run was over.
    """
    with nothing_begun():
        use_level(log_level)
        from headway.apps.cli.sweeping import Orders, carry_out  # noqa: PLC0415 (a fast start)

    carry_out(
        Orders(
            services=services or (),
            collections=collection or (),
            once=once,
            dry_run=dry_run,
            limit=limit,
            leader=not no_leader,
            bus=bus,
            machine=as_json,
            metrics_host=metrics_host,
            metrics_port=metrics_port,
            log_format=log_format,
        )
    )
