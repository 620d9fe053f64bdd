"""A real Prometheus with the rules that are shipped, on a real worker and a real RabbitMQ."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.testing.proxy import Proxy
from headway.testing.servers import Prometheus, RabbitMQ, wait_until
from headway.testing.servers.loopback import HOST, free_port, http_request
from tests.chaos.broker import BrokerSite
from tests.chaos.running import Site
from tests.deploy.expressions import EVENTS, FAILED, RULES, targets

pytestmark = [pytest.mark.server("prometheus"), pytest.mark.timeout(240)]

QUEUE = "orders.order.placed"
# Panels of what did not happen in these tests, in which nothing is swept either.
_EMPTY = {
    "Retries A",
    "Retries B",
    "Duplicates A",
    "Down, paused, not answering A",
    "Down, paused, not answering B",
    "Failed documents A",
}


class Watch:
    """Prometheus with the rules, in a hurry."""

    def __init__(self, prometheus: Prometheus) -> None:
        self.prometheus = prometheus

    def alerts(self) -> list[dict[str, Any]]:
        _, body = http_request("GET", self.prometheus.port, "/api/v1/alerts")
        found: list[dict[str, Any]] = json.loads(body)["data"]["alerts"]
        return [alert for alert in found if alert["state"] == "firing"]

    def until(self, fact: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        if not wait_until(lambda: fact(self.alerts()), timedelta(seconds=60)):
            shown = [alert["labels"] for alert in self.alerts()]
            pytest.fail(f"{what}: not within 60 s; firing are {shown}")

    def until_quiet(self) -> None:
        reached = "headway_worker_reached_timestamp_seconds"
        assert wait_until(lambda: bool(self.prometheus.query(reached)), timedelta(seconds=60))
        self.until(lambda alerts: not alerts, "nothing fires")

    def until_fires(self, name: str, **labels: str) -> str:
        """Wait for an alert and give its description."""
        wanted = {"alertname": name, **labels}.items()
        self.until(
            lambda alerts: any(wanted <= alert["labels"].items() for alert in alerts),
            f"{name} {labels}",
        )
        said: str = next(
            alert["annotations"]["description"]
            for alert in self.alerts()
            if wanted <= alert["labels"].items()
        )
        assert "<no value>" not in said
        return said


@contextmanager
def watching(
    folder: Path,
    jobs: dict[str, str],
    *,
    silent: int = 60,
    seconds: int = 1,
    alertmanager: str | None = None,
) -> Iterator[Watch]:
    """Watch some targets every so many seconds; what takes minutes by the rules takes one here.

    The rules of sweeps are for a Pushgateway, and the others for workers: one says the other away.
    """
    swept = "pushgateway" in jobs
    files = [file for file in RULES if (file.name == "retry_policy.yml") is swept]
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    for rule in (rule for group in groups for rule in group["rules"]):
        if rule.get("for", "").endswith(("m", "h") if swept else "m"):
            rule["for"] = "1s"
        rule["expr"] = rule["expr"].replace("[6h:5m]", "[5m:1s]")
        if rule.get("alert") == "HeadwayWorkerSilent":
            assert rule["expr"].endswith("> 60")
            rule["expr"] = rule["expr"].replace("> 60", f"> {silent}")
    file = folder / "rules.yml"
    file.write_text(json.dumps({"groups": groups}))
    with Prometheus(
        targets=jobs,
        rule_files=[file],
        interval=timedelta(seconds=seconds),
        alertmanager=alertmanager,
    ) as prometheus:
        yield Watch(prometheus)


async def test_a_letter_and_a_stopped_worker_are_noticed_on_sqlite(tmp_path: Path) -> None:
    site, port = Site(tmp_path), free_port()
    with watching(tmp_path, {"headway": f"http://{HOST}:{port}"}) as watch:
        with site.running("shop", "--metrics-port", str(port)):
            site.wait_for_workers(1)
            watch.until_quiet()
            await site.publish("OrderPlaced", [{"order": 1}, {"kind": "bad"}])
            _letter_is_noticed(site, watch)
        watch.until_fires("HeadwayWorkerDown", instance=f"{HOST}:{port}")
        watch.until_fires("HeadwayNothingWatched")


@pytest.mark.server("rabbitmq")
async def test_a_letter_a_stopped_worker_and_a_full_broker_are_noticed_on_rabbitmq(
    tmp_path: Path, rabbitmq_server: RabbitMQ, rabbitmq_vhost: str
) -> None:
    site, port = BrokerSite(tmp_path, broker=rabbitmq_vhost), free_port()
    vhost = rabbitmq_vhost.rpartition("/")[2]
    jobs = {"headway": f"http://{HOST}:{port}", "rabbitmq": rabbitmq_server.metrics_url}
    with watching(tmp_path, jobs) as watch:
        with site.running("shop", "--metrics-port", str(port)):
            watch.until_quiet()
            events = [("e-1", {"order": 1}), ("e-2", {"kind": "bad"})]
            await site.publish_named("OrderPlaced", events)
            _letter_is_noticed(site, watch, vhost=vhost)
            _panels_show_something(watch, "Workers B")  # RabbitMQ does not tell
        watch.until_fires("HeadwayWorkerDown", instance=f"{HOST}:{port}")
        await site.publish_named("OrderPlaced", [("e-3", {"order": 3})])
        watch.until_fires("HeadwayQueueWithoutConsumers", queue=QUEUE, vhost=vhost)
        with _no_memory_left(rabbitmq_server):
            watch.until_fires("HeadwayBrokerBlocksPublishing")


@pytest.mark.chaos
@pytest.mark.server("rabbitmq")
async def test_a_worker_that_nothing_reaches_is_noticed(
    tmp_path: Path, rabbitmq_server: RabbitMQ, rabbitmq_vhost: str
) -> None:
    port = free_port()
    jobs = {"headway": f"http://{HOST}:{port}"}
    with (
        Proxy(*rabbitmq_server.address) as proxy,
        # A worker that cannot ask its engine says so after five seconds: a scrape has to wait.
        watching(tmp_path, jobs, silent=15, seconds=7) as watch,
    ):
        site = BrokerSite(tmp_path, broker=proxy.through(rabbitmq_vhost))
        with site.running("shop", "--metrics-port", str(port), "--grace", "1"):
            watch.until_quiet()
            proxy.black_hole()
            for service in ("orders", "mailer"):
                said = watch.until_fires("HeadwayWorkerSilent", service=service)
                assert f"curl http://{HOST}:{port}/health" in said
            watch.until_fires("HeadwayEngineDown")
            proxy.heal()
            watch.until_quiet()


def _letter_is_noticed(site: Site, watch: Watch, **labels: str) -> None:
    said = watch.until_fires("HeadwayLettersArriving", queue="orders.failed", **labels)
    before, _, command = said.partition("First: headway ")
    assert before.startswith("orders.failed holds 1 more")
    inspected = site.headway(*command.split())
    assert inspected.returncode == 0
    assert "bad order" in inspected.stdout


def _panels_show_something(watch: Watch, *unknown: str) -> None:
    asked = targets(EVENTS, FAILED)
    empty = {title for title, query in asked if not watch.prometheus.query(query)}
    assert empty <= {*_EMPTY, *unknown}


@contextmanager
def _no_memory_left(server: RabbitMQ) -> Iterator[None]:
    def limit(share: str) -> None:
        subprocess.run(
            [
                "/usr/lib/rabbitmq/bin/rabbitmqctl",
                "--node",
                server._node,
                "set_vm_memory_high_watermark",
                share,
            ],
            env=os.environ | server._environment(),
            capture_output=True,
            check=True,
        )

    limit("0.00001")
    try:
        yield
    finally:
        limit("0.4")
