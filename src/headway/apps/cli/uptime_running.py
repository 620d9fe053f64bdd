"""How `headway uptime` runs: a file, Kafka, or the bus."""

import asyncio
import os
import sys
from collections.abc import Iterable
from datetime import timedelta

import typer

from headway.apps.cli.screen import bar
from headway.assembly.retrying import CLOCK
from headway.assembly.sequencing import open_sequences
from headway.assembly.supervising import Supervisor
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.systems.uptime.opening import FAMILY
from headway.systems.uptime.settings import UptimeSettings

_LOOK_EVERY = timedelta(milliseconds=200)


def from_file(settings: UptimeSettings, raws: Iterable[bytes], *, workers: int, batch: int) -> None:
    """Take all results of a file, and wait until none is held any more."""
    from headway.systems.uptime.embedded import Embedded  # noqa: PLC0415 (a fast start of others)

    done = 0

    def more(results: int) -> None:
        nonlocal done
        done += results
        move(done, done)

    with (
        bar("taking results") as move,
        Embedded(settings, workers=workers, batch=batch, on_batch=more) as pool,
    ):
        report = pool.feed(raws)
        asyncio.run(_until_none_is_held(settings))
    fates = ", ".join(f"{number} {fate}" for fate, number in sorted(report.fates.items()))
    typer.echo(f"Took {report.results} results: {fates or 'none'}.")


def from_kafka(settings: UptimeSettings, *, workers: int, batch: int) -> None:
    """Read the topic until told to stop."""
    try:
        from headway.systems.uptime.kafka import run_kafka  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        raise _needs(missing) from missing
    run_kafka(settings, processes=workers, batch=batch)


def from_bus(settings: UptimeSettings, *, workers: int) -> None:
    """Take results from the bus until told to stop."""
    from headway.systems.uptime.service import run_on_bus  # noqa: PLC0415 (a fast start of others)

    if workers == 1:
        asyncio.run(run_on_bus(settings))
        return
    # The settings go by the environment: a URL may hold a password, and a command line is public.
    os.environ.update(settings.in_words())  # noqa: TID251 (set for the children, not read)
    command = [sys.executable, "-m", "headway.apps.cli", "uptime", "run", "--workers", "1"]
    asyncio.run(Supervisor(command, workers, CLOCK).run())


def feed(settings: UptimeSettings, raws: Iterable[bytes]) -> int:
    """Put results into Kafka, or on the bus; say how many."""
    number = 0

    def stored(results: int) -> None:
        nonlocal number
        number += results
        move(number, number)

    with bar("feeding") as move:
        if settings.kafka_servers:
            try:
                from headway.systems.uptime.kafka_feed import produce  # noqa: PLC0415 (an extra)
            except ModuleNotFoundError as missing:
                raise _needs(missing) from missing
            produce(settings, raws, stored)
        else:
            from headway.systems.uptime.service import publish_results  # noqa: PLC0415

            asyncio.run(publish_results(settings, raws, stored))
    return number


async def _until_none_is_held(settings: UptimeSettings) -> None:
    sequences = open_sequences(settings.sequences_url, family=FAMILY, settings=settings.order())
    try:
        while (await sequences.waiting(0))[0]:
            await CLOCK.wait(_LOOK_EVERY)
    finally:
        await sequences.close()


def _needs(missing: ModuleNotFoundError) -> ConfigurationError:
    return ConfigurationError(f"Kafka needs {missing.name}: {cure('arroyo')}")
