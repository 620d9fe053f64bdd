"""Celery for the consumer: the application, its one task, and what sends it."""

from functools import cache

from celery import Celery
from celery.signals import worker_process_shutdown

from headway import ConfigurationError
from headway.clock import CLOCK
from headway.systems.uptime.celery_scheduler import CeleryScheduler
from headway.systems.uptime.hosting import Host, host_of, progress_in
from headway.systems.uptime.settings import PREFIX, UptimeSettings

PROCESS_UPTIME_BACKLOG = "headway.systems.uptime.process_uptime_backlog"
_REDIS_OPTIONS = {
    # A task that waits longer than this would be given to a second worker.
    "visibility_timeout": 3600,
    # One that hangs would be waited for without end, also by a process that is told to stop.
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
}
"""Seconds."""


@cache  # an application is for the whole life of a process
def celery_app(settings: UptimeSettings) -> Celery:
    """Give the application with its one task; nothing is connected yet."""
    if not settings.celery_broker:
        raise ConfigurationError(
            f"{PREFIX}CELERY_BROKER is not set: use redis://HOST:PORT/NUMBER or "
            "amqp://USER:PASSWORD@HOST:PORT/VHOST"
        )
    scheme = settings.celery_broker.partition("://")[0]
    app = Celery("headway-uptime", broker=settings.celery_broker, set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_default_queue="headway-uptime",
        # A worker that dies in the middle leaves the task to another.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=2,
        broker_transport_options=_REDIS_OPTIONS if "redis" in scheme else {},
    )

    def process_uptime_backlog(subscription_id: str) -> None:
        opened(settings).look(subscription_id)

    def close(**_: object) -> None:
        if opened.cache_info().currsize:  # a process that had no task opened nothing
            opened(settings).close()

    worker_process_shutdown.connect(close, weak=False)
    # Not shared: it would be given to every other application in the process.
    app.task(name=PROCESS_UPTIME_BACKLOG, shared=False)(process_uptime_backlog)
    return app


@cache  # one for the whole life of a worker process
def opened(settings: UptimeSettings) -> Host:
    """Give the consumer of a worker, which never reads results: it asks Kafka how far others are.

    Else a backlog of the readers would look like results that are missing.
    """
    if settings.kafka_servers:
        from headway.systems.uptime.kafka import ASK_EVERY, progress_of  # noqa: PLC0415 (an extra)

        progress = progress_of(settings)
        progress.ask()
        progress.keep_asking(ASK_EVERY)
        progress_in(settings).ask = progress
    return host_of(settings)


def scheduler_of(settings: UptimeSettings) -> CeleryScheduler:
    """Give what sends the task."""
    return CeleryScheduler(celery_app(settings).tasks[PROCESS_UPTIME_BACKLOG], CLOCK)
