"""`headway run`: run services."""

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.logs import LogFormat, use_level, write_logs
from headway.apps.cli.options import (
    BusOption,
    LogFormatOption,
    LogLevelOption,
    MetricsHostOption,
    MetricsPortOption,
)

_SERVICES = "The services, as MODULE:SERVICE; a MODULE alone stands for all of its own."


def run(  # noqa: PLR0917 (typer gives them by name)
    services: Annotated[list[str], typer.Argument(metavar="MODULE:SERVICE...", help=_SERVICES)],
    bus: BusOption = None,
    workers: Annotated[int, typer.Option(min=1, max=256, metavar="NUMBER", help="Processes.")] = 1,
    concurrency: Annotated[
        int,
        typer.Option(min=1, max=10_000, metavar="NUMBER", help="Handlers at once in each process."),
    ] = 10,
    prefetch: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            metavar="NUMBER",
            help="Events that a process takes ahead. [default: by the speed of the handlers]",
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            max=86_400,
            metavar="SECONDS",
            help="How long handlers may go on after the order to stop.",
        ),
    ] = 30.0,
    requeue_at_start: Annotated[
        bool,
        typer.Option(
            "--requeue-at-start", help="Sweep once for stuck documents before taking events."
        ),
    ] = False,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevelOption = None,
) -> None:
    """Run services until told to stop (SIGTERM, Ctrl-C); SIGHUP reloads the retry settings."""
    from headway.apps.worker.order import Order, become, can_become_another, command  # noqa: PLC0415

    use_level(log_level)
    one = Order(
        services=services,
        bus=bus,
        concurrency=concurrency,
        prefetch=prefetch,
        grace=grace,
        requeue_at_start=requeue_at_start,
        metrics_host=metrics_host,
        metrics_port=metrics_port if workers == 1 else None,
        log_format=log_format,
        as_long_as_stdin=workers > 1,
    )
    if workers == 1 and can_become_another():
        become(command(one))
    if workers == 1:
        from headway.apps.worker.working import work  # noqa: PLC0415 (a fast start of others)

        work(one)
        return
    from headway.assembly.loading import load_services  # noqa: PLC0415
    from headway.assembly.serving import Metrics, serve_many  # noqa: PLC0415
    from headway.core.worker_settings import WorkerSettings  # noqa: PLC0415

    write_logs(log_format)
    metrics = None if metrics_port is None else Metrics(host=metrics_host, port=metrics_port)
    words = command(one)
    load_services(services)  # refused here once, and not by every worker
    settings = WorkerSettings(grace=timedelta(seconds=grace))
    patience = settings.longest_stop
    if not asyncio.run(serve_many(words, workers, bus=bus, metrics=metrics, patience=patience)):
        raise typer.Exit(NOT_AS_PROMISED)
