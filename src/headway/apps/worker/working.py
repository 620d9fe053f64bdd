"""Carry out an order in this process."""

import asyncio
import logging
from datetime import timedelta

from headway.apps.cli.logs import write_logs
from headway.apps.worker.order import Order
from headway.assembly.collecting import collect_seldom
from headway.assembly.loading import load_services
from headway.assembly.serving import Metrics, serve_here
from headway.core.worker_settings import WorkerSettings

_STDIN = 0


def work(order: Order) -> None:
    """Run services until told to stop."""
    write_logs(order.log_format)
    logging.captureWarnings(capture=True)  # of Python: a coroutine that a handler never awaited
    services = load_services(order.services)
    metrics = None
    if order.metrics_port is not None:
        metrics = Metrics(host=order.metrics_host, port=order.metrics_port)
    settings = WorkerSettings(
        concurrency=order.concurrency,
        prefetch=order.prefetch,
        grace=timedelta(seconds=order.grace),
        requeue_at_start=order.requeue_at_start,
    )
    collect_seldom()
    asyncio.run(
        serve_here(
            services,
            bus=order.bus,
            settings=settings,
            metrics=metrics,
            as_long_as_open=_STDIN if order.as_long_as_stdin else None,
        )
    )
