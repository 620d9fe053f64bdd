"""Real sweeps, Pushgateway, Prometheus and Alertmanager: what is pushed, and what comes of it."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headway.testing.engines import open_engine
from headway.testing.ports import instant
from headway.testing.servers import Alertmanager, Prometheus, Pushgateway, wait_until
from headway.testing.servers.loopback import HOST, free_port, http_request
from tests.chaos.running import HEADWAY, Site
from tests.deploy.expressions import RETRIES, targets
from tests.deploy.test_alerts_for_real import Watch, watching

pytestmark = [
    pytest.mark.server("prometheus"),
    pytest.mark.server("pushgateway"),
    pytest.mark.server("alertmanager"),
    pytest.mark.timeout(120),
]

REQUEUED = 'retry_job_documents_requeued_total{collection="messages"}'
SOON = timedelta(seconds=20)
# Panels of what did not happen in this test.
_EMPTY = {"Left alone, by reason A"}


@dataclass(frozen=True)
class Swept(Site):
    """A file with messages in it, and the service that works on them."""

    gateway: str = ""

    @property
    def environment(self) -> dict[str, str]:
        pushing = {
            "METRICS_BACKEND": "prometheus_pushgateway",
            "PUSHGATEWAY_URL": self.gateway,
        }
        return {
            **super().environment,
            "HEADWAY_SERVICES": "chunking:chunking",
            **(pushing if self.gateway else {}),
        }

    async def make(self) -> None:
        engine = open_engine(self.url)
        await engine.open([])
        await engine.close()

    def put(self, first: int, number: int, **fields: object) -> None:
        """Insert messages as another program would."""
        for n in range(first, first + number):
            body = json.dumps({"_id": f"m{n}", "text": "some words", **fields})
            self.query(
                "insert into headway_documents (collection, id, body) values ('messages', ?, ?)",
                f"m{n}",
                body,
            )

    def sweep(self) -> str:
        run = self.headway("sweep", "--once")
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stderr


def value(prometheus: Prometheus, expression: str) -> float | None:
    found = prometheus.query(expression)
    assert len(found) <= 1, f"{expression} gives {found}"
    return float(found[0]["value"][1]) if found else None


async def test_three_runs_by_hand_add_up_and_an_alert_fires_and_ends(tmp_path: Path) -> None:
    with (
        Alertmanager() as manager,
        Pushgateway() as gateway,
        watching(tmp_path, {"pushgateway": gateway.url}, alertmanager=manager.url) as watch,
    ):
        site = Swept(tmp_path, gateway=gateway.url)
        await site.make()
        site.sweep()
        _until(watch, REQUEUED, 0)
        # Each by a process of its own, of which nothing is left when the next one counts.
        added = 0
        for run in (1, 2, 3):
            site.put(10 * run, run, status="pending", attemptCount=0)
            site.sweep()
            added += run
            _until(watch, REQUEUED, added)
        risen = value(watch.prometheus, f"round(increase({REQUEUED}[1m]))")
        assert risen == 1 + 2 + 3
        assert value(watch.prometheus, "retry_job_duration_seconds_count") == 4
        assert value(watch.prometheus, 'retry_job_runs_total{status="success"}') == 4

        now = instant(datetime.now(UTC))
        site.put(100, 51, status="failed", attemptCount=1, lastAttemptTime=now)
        site.sweep()
        said = watch.until_fires("StuckDocumentsWarning", collection="messages", tier="2")
        _first_command_answers(site, said, "51")
        assert wait_until(lambda: "StuckDocumentsWarning" in _held(manager), SOON)

        site.query(
            "update headway_documents set body = json_set(body, '$.status', 'processed') "
            "where body like '%\"failed\"%'"
        )
        site.sweep()
        watch.until(lambda alerts: not alerts, "nothing fires")
        assert wait_until(lambda: not _held(manager), SOON)
        titles = {title for title, query in targets(RETRIES) if not watch.prometheus.query(query)}
        assert titles <= _EMPTY


def test_a_pushgateway_that_is_away_ends_no_sweep_and_its_password_is_not_said(
    tmp_path: Path,
) -> None:
    site = Swept(tmp_path, gateway=f"http://me:s3cret@{HOST}:{free_port()}")
    site.database.touch()
    said = site.sweep()
    assert "did not take the metrics of this sweep" in said
    assert '"level": "WARNING"' in said
    assert "s3cret" not in said
    assert "me:" not in said


async def test_a_sweeper_that_runs_shows_the_same_on_its_own_page(tmp_path: Path) -> None:
    site, port = Swept(tmp_path), free_port()
    await site.make()
    site.put(1, 2, status="pending", attemptCount=0)
    site.sweep()
    site.put(10, 3, status="failed_max_retries", attemptCount=3)
    for _ in range(2):  # a new process goes on where the last one ended
        with _sweeping(site, port):
            assert wait_until(lambda: "last_run_timestamp" in _page(port, "/metrics"), SOON)
            page = _page(port, "/metrics")
            assert re.search(r"^retry_job_documents_requeued_total\{.*\} 2\.0$", page, re.MULTILINE)
            assert re.search(
                r'^retry_job_failed_documents\{collection="messages"\} 3\.0$', page, re.MULTILINE
            )
            assert "retry_job_database_up 1.0" in page
            # It is no worker, and the alerts about workers must not take it for one.
            assert "headway_engine_up" not in page
            assert json.loads(_page(port, "/health"))["status"] == "ok"
    runs = re.findall(r'^retry_job_runs_total\{status="success"\} (\S+)$', page, re.MULTILINE)
    assert float(runs[0]) >= 3


@contextmanager
def _sweeping(site: Swept, port: int) -> Iterator[None]:
    process = subprocess.Popen(
        [*HEADWAY, "sweep", "--metrics-port", str(port), "--no-leader"],
        env=site.environment,
        cwd=site.folder,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def _page(port: int, path: str) -> str:
    try:
        return http_request("GET", port, path)[1].decode()
    except OSError:  # it has not begun yet
        return ""


def _until(watch: Watch, expression: str, wanted: float) -> None:
    assert wait_until(lambda: value(watch.prometheus, expression) == wanted, SOON), (
        f"{expression} is {watch.prometheus.query(expression)} and not {wanted}"
    )


def _first_command_answers(site: Swept, said: str, word: str) -> None:
    command = said.partition("First: headway ")[2]
    answered = site.headway(*command.split())
    assert answered.returncode == 0, answered.stderr
    assert word in answered.stdout


def _held(manager: Alertmanager) -> set[str]:
    _, body = http_request("GET", manager.port, "/api/v2/alerts")
    return {alert["labels"]["alertname"] for alert in json.loads(body)}
