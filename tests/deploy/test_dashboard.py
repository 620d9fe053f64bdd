"""The dashboard that is shipped: made by its generator, and made of metrics that there are."""

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
from tests.deploy.expressions import DASHBOARD, RABBITMQ, ROOT, known, names, panels, targets
from tests.deploy.test_rules import promtool

QUEUE = "shop.order.placed"


def test_the_file_is_what_the_generator_gives() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "deploy" / "dashboards.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_its_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    shown = panels()
    ids = [panel["id"] for panel in shown]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in shown:
        at = panel["gridPos"]
        cells = {
            (at["x"] + right, at["y"] + down) for right in range(at["w"]) for down in range(at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_it_has_the_four_rows_and_the_two_choices() -> None:
    rows = [panel["title"] for panel in panels() if panel["type"] == "row"]
    assert rows == ["What waits", "What flows", "What ended badly", "Who works"]
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    assert [one["name"] for one in variables] == ["datasource", "service", "queue"]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels())))
    assert used == {"datasource", "service", "queue", "__rate_interval"}


@pytest.mark.parametrize(("title", "expression"), targets(), ids=[title for title, _ in targets()])
def test_an_expression_names_metrics_that_there_are_and_rates_no_gauge(
    title: str, expression: str
) -> None:
    named = names(expression)
    assert named
    assert named <= known()
    rated = re.findall(r"\b(?:i?rate|increase)\(([\w:]+)", expression)
    assert all(metric.endswith(("_total", "_bucket")) for metric in rated)
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
