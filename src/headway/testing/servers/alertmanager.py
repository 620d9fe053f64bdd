"""Alertmanager, which passes the alerts of Prometheus on to people."""

import json
from typing import Any

from headway.testing.servers.loopback import HOST, answers_ok
from headway.testing.servers.server import Server, missing_program

_KEEPS_ALERTS_TO_ITSELF = {"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}


class Alertmanager(Server):
    """Alertmanager with the given configuration; by default it shows alerts and notifies no one."""

    name = "Alertmanager"

    def __init__(self, *, configuration: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._configuration = configuration or _KEEPS_ALERTS_TO_ITSELF

    @classmethod
    def _missing(cls) -> str | None:
        return missing_program(cls.name, "prometheus-alertmanager", "prometheus-alertmanager")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _prepare(self) -> None:
        # JSON is YAML too, and needs no library.
        (self.folder.path / "alertmanager.yml").write_text(json.dumps(self._configuration))

    def _command(self) -> list[str]:
        return [
            "prometheus-alertmanager",
            f"--config.file={self.folder.path / 'alertmanager.yml'}",
            f"--storage.path={self.folder.path / 'data'}",
            f"--web.listen-address={HOST}:{self.port}",
            "--cluster.listen-address=",  # empty, or it opens port 9094 to the world
        ]

    def _is_ready(self) -> bool:
        return answers_ok(self.port, "/-/ready")
