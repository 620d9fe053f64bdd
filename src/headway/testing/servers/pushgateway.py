"""Pushgateway, which holds metrics of short jobs until Prometheus fetches them."""

from headway.testing.servers.loopback import HOST, answers_ok
from headway.testing.servers.server import Server, missing_program


class Pushgateway(Server):
    """Pushgateway in memory: a restart forgets what was pushed, as it does in production."""

    name = "Pushgateway"

    @classmethod
    def _missing(cls) -> str | None:
        return missing_program(cls.name, "prometheus-pushgateway", "prometheus-pushgateway")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _command(self) -> list[str]:
        return ["prometheus-pushgateway", f"--web.listen-address={HOST}:{self.port}"]

    def _is_ready(self) -> bool:
        return answers_ok(self.port, "/-/ready")
