"""Dramatiq with its eight threads. It knows no quorum queues: a private method is overridden."""

import sys
import threading
import time
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from benchmarks.rabbitmq.broker import QUEUE, QUORUM, wait_for_depth
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import LINGER, PAYLOAD, Tally

_THREADS = 8


class QuorumBroker(RabbitmqBroker):  # type: ignore[misc]
    """Dramatiq's broker, with the one argument that it has no option for."""

    def _build_queue_arguments(self, queue_name: str) -> dict[str, Any]:
        return {**super()._build_queue_arguments(queue_name), **QUORUM}


def main(url: str, count: int) -> None:
    tally = Tally(count)
    over = threading.Event()
    broker = QuorumBroker(url=url)
    dramatiq.set_broker(broker)

    @dramatiq.actor(queue_name=QUEUE)  # type: ignore[untyped-decorator]
    def handle(_data: dict[str, Any]) -> None:
        if tally.one():
            over.set()

    for _ in range(count):
        handle.send(PAYLOAD)
    wait_for_depth(url, count)
    worker = dramatiq.Worker(broker, worker_threads=_THREADS)
    worker.start()
    over.wait()
    time.sleep(LINGER)
    worker.stop()
    broker.close()
    report(each=tally.each)


main(sys.argv[1], int(sys.argv[2]))
