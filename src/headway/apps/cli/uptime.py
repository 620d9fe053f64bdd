"""`headway uptime`: take results of checks in their order, from Kafka or without any server."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.apps.cli.logs import LogFormat, use_level, write_logs
from headway.apps.cli.options import LogFormatOption, LogLevelOption
from headway.assembly.settings import environment
from headway.systems.uptime.settings import UptimeSettings

app = typer.Typer(help="Uptime: results of checks, taken in their order.", no_args_is_help=True)
_DEFAULTS = UptimeSettings()

StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=f"File of effects. [default: UPTIME_STORE, or {_DEFAULTS.store}]",
    ),
]
SequencesOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where results wait for their turn: redis://... or sqlite:///FILE. "
        "[default: UPTIME_SEQUENCES, or the store's file]",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


def _settings(**given: Any) -> UptimeSettings:
    return UptimeSettings.from_mapping(environment(), **given)


@app.command()
def run(  # noqa: PLR0917 (typer gives them by name)
    workers: Annotated[int, typer.Option(min=1, max=64, metavar="NUMBER", help="Processes.")] = 2,
    batch: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="NUMBER", help="Results taken at once.")
    ] = 50,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Take these results, one JSON object on each line, and end; -: standard input.",
        ),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="SERVERS",
            help="Read the topic UPTIME_KAFKA_TOPIC there. [default: UPTIME_KAFKA_SERVERS]",
        ),
    ] = None,
    percentage: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="NUMBER",
            help="Organizations whose order is kept, besides those that are named. "
            "[default: UPTIME_BACKLOG_RETRY_PERCENTAGE, or 0]",
        ),
    ] = None,
    store: StoreOption = None,
    sequences: SequencesOption = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            metavar="NUMBER",
            help="Serve /metrics on this port of localhost. [default: do not]",
        ),
    ] = None,
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevelOption = None,
) -> None:
    """Take results until told to stop (SIGTERM, Ctrl-C), or until a file is at its end.

    They come from a file, from Kafka, or else from the bus, where `headway uptime feed` puts them.
    """
    from headway.apps.cli import uptime_running as running  # noqa: PLC0415 (a fast start of others)
    from headway.apps.cli.uptime_looking import lines_of  # noqa: PLC0415

    use_level(log_level)
    write_logs(log_format)
    settings = _settings(
        kafka_servers=kafka, percentage=percentage, store=store, sequences=sequences
    )
    lines = None if source is None else filter(bytes.strip, lines_of(source))
    with _metrics(settings, metrics_port):
        if lines is not None:
            running.from_file(settings, lines, workers=workers, batch=batch)
        elif settings.kafka_servers:
            running.from_kafka(settings, workers=workers, batch=batch)
        else:
            running.from_bus(settings, workers=workers)


@app.command()
def feed(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines, one result each; -: standard input.")
    ],
    kafka: Annotated[
        str | None,
        typer.Option(metavar="SERVERS", help="Into Kafka. [default: UPTIME_KAFKA_SERVERS]"),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Put results where `headway uptime run` takes them: into Kafka, or on the bus."""
    from headway.apps.cli import uptime_running as running  # noqa: PLC0415 (a fast start of others)
    from headway.apps.cli.screen import many  # noqa: PLC0415
    from headway.apps.cli.uptime_looking import lines_of  # noqa: PLC0415

    settings = _settings(kafka_servers=kafka, store=store)
    number = running.feed(settings, filter(bytes.strip, lines_of(source)))
    typer.echo(f"Fed {many(number, 'result')}.")


@app.command()
def subscribe(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="JSON lines: a subscription and its detector; -: standard input."
        ),
    ],
    store: StoreOption = None,
) -> None:
    """Write subscriptions and their detectors; how far their results are applied stays."""
    from headway.apps.cli.screen import many  # noqa: PLC0415
    from headway.apps.cli.uptime_looking import lines_of  # noqa: PLC0415
    from headway.systems.uptime.reading import read_subscriptions, save_subscriptions  # noqa: PLC0415

    watched = list(read_subscriptions(lines_of(source)))
    asyncio.run(save_subscriptions(_settings(store=store), watched))
    typer.echo(f"Saved {many(len(watched), 'subscription')}.")


@app.command()
def status(
    store: StoreOption = None, sequences: SequencesOption = None, as_json: JsonOption = False
) -> None:
    """Show the consumer in numbers: what was applied, missed, taken back, and is held."""
    from headway.apps.cli.uptime_looking import read_status  # noqa: PLC0415
    from headway.apps.cli.uptime_shown import show_status  # noqa: PLC0415

    show_status(read_status(_settings(store=store, sequences=sequences)), as_json)


@app.command()
def checks(
    subscription: Annotated[str, typer.Argument(metavar="ID", help="The subscription.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the record of checks of a subscription, misses included, as it was written.

    Exit code 1: there is no such subscription.
    """
    from headway.apps.cli.uptime_looking import read_checks  # noqa: PLC0415
    from headway.apps.cli.uptime_shown import show_checks  # noqa: PLC0415

    show_checks(read_checks(_settings(store=store), subscription), as_json)


@app.command()
def rejected(
    limit: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="At most so many, the latest first.")
    ] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what came and was no result, with the reason; nothing of it was processed."""
    from headway.apps.cli.uptime_looking import read_rejected  # noqa: PLC0415
    from headway.apps.cli.uptime_shown import show_rejected  # noqa: PLC0415

    show_rejected(read_rejected(_settings(store=store), limit), as_json)


def _metrics(settings: UptimeSettings, port: int | None) -> AbstractContextManager[Any]:
    if port is None:
        return nullcontext()
    from headway.systems.uptime.exposition import metrics_page  # noqa: PLC0415 (an extra)

    return metrics_page(settings, host="127.0.0.1", port=port)
