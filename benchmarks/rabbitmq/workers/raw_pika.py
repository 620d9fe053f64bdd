"""The limit: pika with nothing around it, an acknowledgement for each hundred events."""

import sys
import time
from typing import Any

import pika

from benchmarks.rabbitmq.broker import QUEUE, channel, declare, wait_for_depth
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import BODY, LINGER, Tally

_PREFETCH = 1_000
_ACKED_TOGETHER = 100


def main(url: str, count: int) -> None:
    declare(url)
    properties = pika.BasicProperties(delivery_mode=2)
    with channel(url) as filling:
        for _ in range(count):
            filling.basic_publish("", QUEUE, BODY, properties)
    wait_for_depth(url, count)
    tally = Tally(count)
    with channel(url) as consuming:
        consuming.basic_qos(prefetch_count=_PREFETCH)

        def handle(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
            last = tally.one()
            if method.delivery_tag % _ACKED_TOGETHER == 0 or last:
                consuming.basic_ack(method.delivery_tag, multiple=True)
            if last:
                consuming.stop_consuming()

        consuming.basic_consume(QUEUE, handle)
        consuming.start_consuming()
        tally.ended = time.perf_counter_ns()
        consuming.connection.sleep(LINGER)
    report(each=tally.each)


main(sys.argv[1], int(sys.argv[2]))
