"""The dashboards that are shipped: made by their generator, of metrics that there are."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote_plus

import pika
import pytest

from headway.testing.servers import RabbitMQ, wait_until
from tests.deploy.expressions import (
    RABBITMQ,
    RETRIES,
    ROOT,
    known,
    names,
    panels,
    targets,
)
from tests.deploy.test_rules import promtool

QUEUE = "shop.order.placed"


def test_the_files_are_what_the_generator_gives() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "deploy" / "dashboards.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_five_panels_that_the_document_asks_for_are_there() -> None:
    shown = {panel["title"]: panel for panel in panels(RETRIES)}
    steps = shown["Stuck Documents"]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in steps] == [None, 50, 200]
    for title, kind, part in (
        ("Stuck Documents", "gauge", "by (collection) (retry_job_stuck_documents"),
        ("Retry Rate", "timeseries", "rate(retry_job_documents_requeued_total"),
        ("Max Retries Exceeded", "stat", "retry_job_documents_max_retries_exceeded_total"),
        ("Backoff Skipped", "timeseries", "retry_job_documents_skipped_backoff_total"),
        ("Job Duration", "heatmap", "retry_job_duration_seconds_bucket"),
    ):
        assert shown[title]["type"] == kind
        (target,) = shown[title]["targets"]
        assert part in target["expr"]


@pytest.mark.parametrize(("title", "expression"), targets(), ids=[title for title, _ in targets()])
def test_an_expression_names_metrics_that_there_are_and_rates_no_gauge(
    title: str, expression: str
) -> None:
    named = names(expression)
    assert named
    assert named <= known()
    rated = re.findall(r"\b(?:i?rate|increase)\(([\w:]+)", expression)
    assert all(metric.endswith(("_total", "_bucket", "_sum")) for metric in rated)
    assert "\\" not in expression  # a dot is [.]: it needs no escaping, in any file


@pytest.mark.server("prometheus")  # promtool comes with it
def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    recorded = [
        {"record": f"panel:{number}", "expr": expression}
        for number, (_, expression) in enumerate(targets())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": recorded}]}))
    code, said = promtool("check", "rules", file)
    assert code == 0, said


@pytest.fixture
def queue_in_use(rabbitmq_server: RabbitMQ, rabbitmq_vhost: str) -> Iterator[str]:
    """A quorum queue with a consumer, of which a message was settled and another was not."""
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_vhost)) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        for _ in range(2):
            channel.basic_publish("", QUEUE, b"{}")
        for method, _, _ in channel.consume(QUEUE):
            if method.delivery_tag == 1:
                channel.basic_ack(1)
            else:
                break
        # Shown only some time after the queue was declared.
        wanted = [name for name, labels in RABBITMQ.items() if labels]
        assert wait_until(
            lambda: all(f"{name}{{" in _lines(rabbitmq_server, QUEUE) for name in wanted),
            timedelta(seconds=20),
        )
        yield quote_plus(rabbitmq_vhost.rpartition("/")[2])


@pytest.mark.server("rabbitmq")
def test_a_real_rabbitmq_shows_the_metrics_that_we_use(
    rabbitmq_server: RabbitMQ, queue_in_use: str
) -> None:
    found = {
        name: set(re.findall(r'(\w+)="', labels))
        for name, labels in re.findall(
            r"^(rabbitmq_\w+)(\{.*\})? ", _page(rabbitmq_server), re.MULTILINE
        )
    }
    assert {name: found.get(name) for name in RABBITMQ} == RABBITMQ
    assert f'vhost="{queue_in_use}"' in _lines(rabbitmq_server, QUEUE)


def _page(server: RabbitMQ) -> str:
    with urllib.request.urlopen(server.metrics_url) as answer:  # noqa: S310
        text: str = answer.read().decode()
    return text


def _lines(server: RabbitMQ, queue: str) -> str:
    return "\n".join(line for line in _page(server).splitlines() if f'queue="{queue}"' in line)
