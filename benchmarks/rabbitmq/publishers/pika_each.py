"""pika's blocking channel with confirms: a round trip for each event."""

import sys
import time

import pika

from benchmarks.rabbitmq.broker import QUEUE, channel, declare
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import BODY


def main(url: str, count: int) -> None:
    declare(url)
    properties = pika.BasicProperties(delivery_mode=2)
    with channel(url) as publishing:
        publishing.confirm_delivery()
        began = time.perf_counter_ns()
        for _ in range(count):
            publishing.basic_publish("", QUEUE, BODY, properties, mandatory=True)
        report(each=(time.perf_counter_ns() - began) / count)


main(sys.argv[1], int(sys.argv[2]))
