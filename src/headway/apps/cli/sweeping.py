"""What `headway sweep` does."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import typer

from headway.apps.cli.codes import INTERRUPTED, NOT_AS_PROMISED, UNAVAILABLE
from headway.apps.cli.engines import refuse_missing, unreachable
from headway.apps.cli.logs import LogFormat, write_logs
from headway.apps.cli.screen import as_json, bar, say_on_ctrl_c
from headway.apps.cli.stopping import nothing_begun
from headway.apps.cli.sweep_shown import preview_fields, run_fields, show_preview, show_run
from headway.assembly.loading import load_services
from headway.assembly.serving import Metrics
from headway.assembly.settings import SERVICES, named_services, sweep_settings
from headway.assembly.sweeping import Sweeper
from headway.core.catalogue import DEFAULT_CLASSIFIER
from headway.core.errors import ConfigurationError
from headway.core.facts import Fact
from headway.core.sweep_facts import CollectionFailed, SweepEnded
from headway.core.sweep_settings import SweepSettings
from headway.core.sweep_totals import Status
from headway.runtime.service import Service
from headway.runtime.sweep_pages import PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The options of `headway sweep`."""

    services: Sequence[str]
    collections: Sequence[str]
    once: bool
    dry_run: bool
    limit: int | None
    leader: bool
    bus: str | None
    machine: bool
    metrics_host: str
    metrics_port: int | None
    log_format: LogFormat

    @property
    def metrics(self) -> Metrics | None:
        """Where /metrics is to be served."""
        port = self.metrics_port
        return None if port is None else Metrics(host=self.metrics_host, port=port)


def carry_out(orders: Orders) -> None:
    """Sweep once, or again and again, or only look."""
    with nothing_begun():
        settings = _settings(orders)
        services = _services(orders)
        meant = refuse_missing(orders.bus)
    try:
        if orders.dry_run:
            _look(orders, settings, services)
        elif orders.once:
            _sweep_once(orders, settings, services)
        else:
            _sweep(orders, settings, services)
    except ConnectionError as error:
        raise unreachable(meant, error) from error


def _settings(orders: Orders) -> SweepSettings:
    settings = sweep_settings()
    leader = settings.leader and orders.leader
    return replace(settings, leader=leader, limit=orders.limit or settings.limit)


def _services(orders: Orders) -> Sequence[Service]:
    names = orders.services or named_services()
    if not names:
        raise ConfigurationError(
            "whose documents are to be swept is not said: name services as MODULE:SERVICE, or set "
            f"{SERVICES}='MODULE:SERVICE MODULE:SERVICE'"
        )
    return load_services(names)


def _look(orders: Orders, settings: SweepSettings, services: Sequence[Service]) -> None:
    sweeper = Sweeper(*services, bus=orders.bus, settings=settings, collections=orders.collections)
    with say_on_ctrl_c(lambda: "nothing was changed"):
        found = asyncio.run(sweeper.preview())
    if orders.machine:
        typer.echo(as_json([preview_fields(each) for each in found], indent=2))
        return
    for each in found:
        show_preview(each)


def _sweep_once(orders: Orders, settings: SweepSettings, services: Sequence[Service]) -> None:
    write_logs(orders.log_format)
    sweeper: Sweeper | None = None
    engine = _Engine()

    def how_far() -> str:
        if sweeper is None or not sweeper.has_begun:
            return "nothing was begun"
        return "what was sent is in the log; say the same again, and the rest is done too"

    with say_on_ctrl_c(how_far), bar("sweeping") as move:

        def tell(_collection: str, met: int, of: int) -> None:
            if of > PAGE:
                move(met, of)

        sweeper = Sweeper(
            *services,
            bus=orders.bus,
            settings=settings,
            collections=orders.collections,
            observer=engine,
            on_progress=tell if sys.stderr.isatty() else None,
            metrics=orders.metrics,
        )
        ended = asyncio.run(sweeper.sweep_once())
    _show(ended, machine=orders.machine)
    if sweeper.is_stopped:
        typer.echo("stopped: what is not in the table is as it was", err=True)
        raise typer.Exit(INTERRUPTED)
    if ended.status is Status.FAILURE:
        raise typer.Exit(UNAVAILABLE if engine.is_unavailable else NOT_AS_PROMISED)


def _sweep(orders: Orders, settings: SweepSettings, services: Sequence[Service]) -> None:
    """Sweep until told to stop. The log says what happens; a person sees tables besides."""
    write_logs(orders.log_format)
    seen = _Shown(machine=orders.machine) if orders.machine or sys.stdout.isatty() else None
    sweeper = Sweeper(
        *services,
        bus=orders.bus,
        settings=settings,
        collections=orders.collections,
        observer=seen,
        metrics=orders.metrics,
    )
    asyncio.run(sweeper.run())


class _Engine:
    """Hears whether a run failed because the engine did not answer."""

    is_unavailable = False

    def tell(self, fact: Fact) -> None:
        if isinstance(fact, CollectionFailed) and not fact.collection:
            found = DEFAULT_CLASSIFIER.classify(fact.error)
            self.is_unavailable = found.error_type == "CONNECTION_ERROR"


class _Shown:
    """Shows each run when it has ended."""

    def __init__(self, *, machine: bool) -> None:
        self._machine = machine

    def tell(self, fact: Fact) -> None:
        if isinstance(fact, SweepEnded):
            _show(fact, machine=self._machine, on_one_line=True)


def _show(ended: SweepEnded, *, machine: bool, on_one_line: bool = False) -> None:
    if machine:
        typer.echo(as_json(run_fields(ended), indent=0 if on_one_line else 2))
    else:
        show_run(ended)
