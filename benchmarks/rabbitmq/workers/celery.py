"""Celery with its solo pool, which acknowledges before a task has run unless told otherwise."""

import sys
import threading
from typing import Any

from celery import Celery
from celery.worker import state

from benchmarks.rabbitmq.broker import QUEUE, wait_for_depth
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import LINGER, PAYLOAD, Tally

_OPTIONS = ["--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat"]
AT_LEAST_ONCE = "at-least-once"


def main(url: str, count: int, acknowledged: str) -> None:
    tally = Tally(count)
    app = Celery("bench", broker=url)
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=acknowledged == AT_LEAST_ONCE,
        task_default_queue=QUEUE,
        task_default_queue_type="quorum",
        task_default_exchange_type="topic",
        worker_prefetch_multiplier=100,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,  # they would become log lines, our report among them
    )

    def stop() -> None:
        state.should_stop = 0

    @app.task  # type: ignore[untyped-decorator]
    def handle(_data: dict[str, Any]) -> None:
        if tally.one():
            threading.Timer(LINGER, stop).start()

    for _ in range(count):
        handle.delay(PAYLOAD)
    wait_for_depth(url, count)
    app.worker_main(["--quiet", "worker", "--loglevel=ERROR", *_OPTIONS])
    report(each=tally.each)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
