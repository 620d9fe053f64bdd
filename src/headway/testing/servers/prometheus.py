"""Prometheus with the targets, rules and Alertmanager that a test gives it."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from headway.testing.servers.loopback import HOST, answers_ok, http_request
from headway.testing.servers.server import Server, ServerError, missing_program


class Prometheus(Server):
    """Prometheus; it looks for its targets only five seconds after the start, so start it early."""

    name = "Prometheus"

    def __init__(
        self,
        *,
        targets: Mapping[str, str] | None = None,
        rule_files: Sequence[Path] = (),
        alertmanager: str | None = None,
        interval: timedelta = timedelta(milliseconds=500),
    ) -> None:
        """Take the URL to scrape by name of the job, rule files, and the URL of an Alertmanager."""
        super().__init__()
        self._targets = dict(targets or {})
        self._rule_files = list(rule_files)
        self._alertmanager = alertmanager
        self._interval = interval

    @classmethod
    def _missing(cls) -> str | None:
        return missing_program(cls.name, "prometheus", "prometheus")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression now; each result has `metric` (its labels) and `value`."""
        path = f"/api/v1/query?query={quote(expression)}"
        status, body = http_request("GET", self.port, path)
        if status != HTTPStatus.OK:
            raise ServerError(f"{self.name} answered {expression!r} with {status}: {body.decode()}")
        result: list[dict[str, Any]] = json.loads(body)["data"]["result"]
        return result

    def _prepare(self) -> None:
        # JSON is YAML too, and needs no library.
        (self.folder.path / "prometheus.yml").write_text(json.dumps(self._configuration()))

    def _configuration(self) -> dict[str, Any]:
        interval = f"{self._interval // timedelta(milliseconds=1)}ms"
        managers = [urlsplit(self._alertmanager).netloc] if self._alertmanager else []
        return {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,  # may not be longer than the interval
                "evaluation_interval": interval,
            },
            "rule_files": [str(path.resolve()) for path in self._rule_files],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": managers}]}]},
            "scrape_configs": [_scrape(job, url) for job, url in self._targets.items()],
        }

    def _command(self) -> list[str]:
        return [
            "prometheus",
            f"--config.file={self.folder.path / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder.path / 'data'}",
            f"--web.listen-address={HOST}:{self.port}",
            "--rules.alert.resend-delay=1s",
        ]

    def _is_ready(self) -> bool:
        return answers_ok(self.port, "/-/ready")


def _scrape(job: str, url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "job_name": job,
        "honor_labels": True,  # what was pushed keeps the job and instance it was pushed with
        "metrics_path": parts.path or "/metrics",
        "static_configs": [{"targets": [parts.netloc]}],
    }
