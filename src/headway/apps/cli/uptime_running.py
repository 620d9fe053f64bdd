"""How `headway uptime` runs: a file, Kafka, or the bus."""

import asyncio
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

import typer

from headway.adapters.system.clock import CLOCK
from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.screen import bar, many
from headway.apps.cli.uptime_waiting import until_none_is_held
from headway.assembly.settings import hand_down
from headway.assembly.supervising import Supervisor
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.core.sequence_fates import Disposition
from headway.systems.uptime.meeting import meet_sequences
from headway.systems.uptime.saying import say_if_no_order_is_kept
from headway.systems.uptime.settings import UptimeSettings

_LOG = logging.getLogger("headway")
_WORDS: dict[str, str] = {Disposition.PASSED: "processed without their order"}


def from_file(settings: UptimeSettings, raws: Iterable[bytes], *, workers: int, batch: int) -> None:
    """Take all results of a file, and wait until none is held any more."""
    from headway.systems.uptime.embedded import Embedded  # noqa: PLC0415 (a fast start of others)

    _begin(settings)
    done = 0

    def more(results: int) -> None:
        nonlocal done
        done += results
        move(done, done)

    with Embedded(settings, workers=workers, batch=batch, on_batch=more) as pool:
        with bar("taking results") as move:
            report = pool.feed(raws)
        # Whoever had to go on without the order has waited for the engine already.
        patience = timedelta() if report.fates[Disposition.PASSED] else settings.patience
        all_released = asyncio.run(until_none_is_held(settings, patience))
    took = many(report.results, "result")
    typer.echo(f"Took {took}: {_in_the_end(report.fates, all_released)}.")


def from_kafka(settings: UptimeSettings, *, workers: int, batch: int) -> None:
    """Read the topic until told to stop."""
    try:
        from headway.systems.uptime.kafka import run_kafka  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        raise _needs(missing) from missing
    _begin(settings)
    run_kafka(settings, processes=workers, batch=batch)
    _say_stopped()


def from_bus(settings: UptimeSettings, *, workers: int) -> None:
    """Take results from the bus until told to stop."""
    from headway.systems.uptime.service import run_on_bus  # noqa: PLC0415 (a fast start of others)

    if workers == 1:
        _begin(settings)
        asyncio.run(run_on_bus(settings))
        _say_stopped()
        return
    asyncio.run(meet_sequences(settings))  # what each worker would refuse is refused once
    hand_down(settings.in_words())
    command = [sys.executable, "-P", "-m", "headway.apps.cli", "uptime", "run", "--workers", "1"]
    if not asyncio.run(Supervisor(command, workers, CLOCK).run()):
        raise typer.Exit(NOT_AS_PROMISED)
    _say_stopped()


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


def _begin(settings: UptimeSettings) -> None:
    """Say what whoever starts this should know, before any result is taken."""
    say_if_no_order_is_kept(settings.features().backlog_retry)
    asyncio.run(meet_sequences(settings))


def _in_the_end(fates: Counter[str], all_released: bool) -> str:
    """Say what became of results; those that were held are applied once nothing is held."""
    numbers = Counter({_WORDS.get(fate, fate.replace("_", " ")): fates[fate] for fate in fates})
    held = numbers["held"] if all_released else 0
    if held:
        del numbers["held"]
        applied = numbers.pop("applied", 0) + held
        numbers[f"applied ({held} of them after a wait)"] = applied
    return ", ".join(f"{numbers[word]} {word}" for word in sorted(numbers)) or "none"


def _say_stopped() -> None:
    _LOG.info("Stopped, as told (process %d)", os.getpid())


def _needs(missing: ModuleNotFoundError) -> ConfigurationError:
    return ConfigurationError(f"Kafka needs {missing.name}: {cure('arroyo')}")
