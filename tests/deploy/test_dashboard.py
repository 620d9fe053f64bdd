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
    BOARDS,
    EVENTS,
    FAILED,
    RABBITMQ,
    RETRIES,
    ROOT,
    UPTIME,
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


@pytest.mark.parametrize("board", BOARDS)
def test_its_panels_have_ids_of_their_own_and_do_not_overlap(board: str) -> None:
    shown = panels(board)
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


@pytest.mark.parametrize(
    ("board", "rows", "choices"),
    [
        (
            EVENTS,
            ["What waits", "What flows", "What ended badly", "Who works"],
            ["service", "queue"],
        ),
        (
            RETRIES,
            ["What is stuck", "What sweeps do about it", "The sweeper"],
            ["collection"],
        ),
        (FAILED, ["What waits for a decision", "What comes to it"], ["service", "queue"]),
        (
            UPTIME,
            ["What is held", "How waits end", "What is taken for missed", "What comes"],
            [],
        ),
    ],
)
def test_it_has_its_rows_and_its_choices(board: str, rows: list[str], choices: list[str]) -> None:
    shown = panels(board)
    assert [panel["title"] for panel in shown if panel["type"] == "row"] == rows
    variables = json.loads(BOARDS[board].read_text())["templating"]["list"]
    assert [one["name"] for one in variables] == ["datasource", *choices]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(shown)))
    assert used == {"datasource", *choices, "__rate_interval"}


def test_every_board_is_known_by_its_title_and_its_file() -> None:
    found = {json.loads(file.read_text())["title"]: name for name, file in BOARDS.items()}
    assert found == {
        "Headway events": EVENTS,
        "Retry Policy Monitoring": RETRIES,
        "Failed Queues": FAILED,
        "Uptime backlog": UPTIME,
    }


def test_the_five_panels_that_the_document_asks_for_are_there() -> None:
    shown = {panel["title"]: panel for panel in panels(RETRIES)}
    stuck = shown["Stuck Documents"]
    assert stuck["type"] == "gauge"
    steps = stuck["fieldConfig"]["defaults"]["thresholds"]["steps"]
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


@pytest.mark.parametrize("board", BOARDS)
def test_what_is_shown_of_now_is_now_and_unknown_is_a_word(board: str) -> None:
    for panel in panels(board):
        if panel["type"] not in {"gauge", "stat"}:
            continue
        assert panel["options"]["reduceOptions"]["calcs"] == ["last"]
        assert all(target["instant"] for target in panel["targets"])
        first = panel["fieldConfig"]["defaults"]["mappings"][0]
        assert first["options"]["match"] == "null+nan"
        assert first["options"]["result"]["text"] == "unknown"


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
