"""RabbitMQ with its management and metrics, one virtual host for each test."""

import json
import secrets
import shutil
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from headway.testing.servers.loopback import HOST, accepts, answers_ok, free_port, http_request
from headway.testing.servers.process import Process, wait_until
from headway.testing.servers.server import Server, ServerError

# The programs behind the ones on the PATH: those change to the user rabbitmq and write to /var/log.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_ERLANG = Path("/usr/lib/erlang/lib")
_LOGIN = "guest:guest"
_LARGEST_MESSAGE = 134_217_728

# Without the retention policies, the depths that management shows are five seconds old. What was
# being dead-lettered when the broker was killed is tried again after three minutes, if not told.
_ADVANCED = """[{rabbit, [{quorum_tick_interval, 500},
  {dead_letter_worker_publisher_confirm_timeout, 5000}]},
 {rabbitmq_management, [{management_db_cache_multiplier, 0}, {sample_retention_policies,
  [{global, [{60, 1}]}, {basic, [{60, 1}]}, {detailed, [{60, 1}]}]}]}].
"""


class RabbitMQ(Server):
    """A RabbitMQ node of its own, with a port mapper (epmd) of its own."""

    name = "RabbitMQ"

    def __init__(self) -> None:
        super().__init__()
        self.management_port = free_port()
        self.metrics_port = free_port()
        self._cluster_port = free_port()
        self._mapper_port = free_port()
        self._mapper: Process | None = None
        self._node = f"node{self.port}@localhost"

    @classmethod
    def _missing(cls) -> str | None:
        if not _PROGRAM.exists() or shutil.which("epmd") is None:
            return f"{cls.name} is not installed. Install it: apt-get install rabbitmq-server"
        return None

    @property
    def url(self) -> str:
        return self._url("%2F")

    @property
    def metrics_url(self) -> str:
        """The metrics of each queue, for Prometheus."""
        return f"http://{HOST}:{self.metrics_port}/metrics/per-object"

    def create_vhost(self) -> str:
        """Make an empty virtual host and give its URL."""
        name = f"test_{secrets.token_hex(6)}"
        self._ask("PUT", f"/api/vhosts/{name}", "{}")
        self.allow_reading(self._url(name))
        return self._url(name)

    def allow_reading(self, vhost_url: str, pattern: str = ".*") -> None:
        """Let clients read from the queues whose names match, and do everything else."""
        vhost = vhost_url.rpartition("/")[2]
        rights = json.dumps({"configure": ".*", "write": ".*", "read": pattern})
        self._ask("PUT", f"/api/permissions/{vhost}/guest", rights)

    def create_user(self, url: str, *, configure: str, write: str, read: str) -> str:
        """Make a user with these rights in a virtual host, and give the URL for it."""
        name, vhost = f"user_{secrets.token_hex(6)}", url.rpartition("/")[2]
        self._ask("PUT", f"/api/users/{name}", json.dumps({"password": name, "tags": ""}))
        rights = json.dumps({"configure": configure, "write": write, "read": read})
        self._ask("PUT", f"/api/permissions/{vhost}/{name}", rights)
        return url.replace(_LOGIN, f"{name}:{name}")

    def set_password(self, url: str, password: str) -> None:
        """Change the password of the user that a URL names."""
        name = url.partition("://")[2].partition(":")[0]
        self._ask("PUT", f"/api/users/{name}", json.dumps({"password": password, "tags": ""}))

    def set_policy(self, vhost_url: str, pattern: str, **definition: int) -> None:
        """Set a policy for the queues whose names match, as an operator does."""
        vhost = vhost_url.rpartition("/")[2]
        settings = {name.replace("_", "-"): value for name, value in definition.items()}
        policy = {"pattern": pattern, "definition": settings, "apply-to": "queues"}
        self._ask("PUT", f"/api/policies/{vhost}/operator", json.dumps(policy))

    def queue_types(self, vhost_url: str) -> dict[str, str]:
        """Give the type of every queue: quorum, classic or stream."""
        path = f"/api/queues/{vhost_url.rpartition('/')[2]}?columns=name,type"
        _, said = http_request("GET", self.management_port, path, login=_LOGIN)
        return {each["name"]: each["type"] for each in json.loads(said)}

    def delete_vhost(self, url: str) -> None:
        """Remove a virtual host with all that is in it: a broker carries only so many queues."""
        self._ask("DELETE", f"/api/vhosts/{url.rpartition('/')[2]}")

    def close_connections(self) -> int:
        """Close every client's connection by force, as an operator may; say how many."""
        _, said = http_request("GET", self.management_port, "/api/connections", login=_LOGIN)
        names = [each["name"] for each in json.loads(said)]
        for name in names:
            path = f"/api/connections/{quote(name, safe='')}"
            http_request("DELETE", self.management_port, path, login=_LOGIN)
        return len(names)

    def delete_queue(self, vhost_url: str, queue: str) -> None:
        """Remove a queue with all that is in it."""
        vhost = vhost_url.rpartition("/")[2]
        self._ask("DELETE", f"/api/queues/{vhost}/{quote(queue, safe='')}")

    def run_out_of_memory(self) -> None:
        """Raise the memory alarm: connections that publish are blocked until `recover_memory`."""
        self._call("vm_memory_monitor set_vm_memory_high_watermark [0.000001]")

    def recover_memory(self) -> None:
        self._call("vm_memory_monitor set_vm_memory_high_watermark [0.6]")

    def run_out_of_disk(self) -> None:
        """Raise the disk alarm: connections that publish are blocked until `recover_disk`."""
        self._call(f"rabbit_disk_monitor set_disk_free_limit [{10**18}]")

    def recover_disk(self) -> None:
        self._call(f"rabbit_disk_monitor set_disk_free_limit [{50 * 10**6}]")

    def limit_messages(self, largest: int = _LARGEST_MESSAGE) -> None:
        """Set the size up to which new channels take messages; without one, as it was."""
        self._call(f"application set_env [rabbit,max_message_size,{largest}]")

    def _call(self, function: str) -> None:
        """Have the node call a function, as rabbitmqctl does, which takes seconds to start."""
        (program,) = _ERLANG.glob("erl_interface-*/bin/erl_call")
        cookie = self._file(".erlang.cookie").read_text()
        said = self._run([str(program), "-sname", self._node, "-c", cookie, "-a", function])
        if said.strip() != "ok":
            raise ServerError(f"{self.name} answered {function!r} with {said}")

    def wait_for_quorum_queue(self, vhost_url: str, queue: str) -> None:
        """Wait until a kill no longer loses a quorum queue that was declared a moment ago.

        RabbitMQ writes the names of its quorum queues to disk some time after it has answered. A
        queue that misses there comes back empty and without a leader, confirmed messages or not.
        """
        entry = f"{vhost_url.rpartition('/')[2]}_{queue}".encode()
        names = self._file("mnesia") / "node" / "quorum" / self._node / "names.dets"
        if not wait_until(lambda: entry in names.read_bytes(), self._ready_within):
            raise self._error(f"did not write queue {queue!r} to disk within {self._ready_within}")

    def start(self) -> None:
        # Without a mapper that answers, Erlang would start one as a daemon that stays.
        if self._mapper is None or not self._mapper.is_running():
            self._mapper = self._spawn(["epmd", "-port", str(self._mapper_port), "-address", HOST])
            if not wait_until(lambda: accepts(self._mapper_port), self._ready_within):
                raise self._error(f"got no port mapper on port {self._mapper_port}")
        super().start()

    def kill(self) -> None:
        super().kill()
        if self._mapper is not None:
            self._mapper.kill()

    def pids(self) -> list[int]:
        return super().pids() + ([] if self._mapper is None else self._mapper.tree())

    def _url(self, vhost: str) -> str:
        return f"amqp://{_LOGIN}@{HOST}:{self.port}/{vhost}"

    def _ask(self, method: str, path: str, body: str = "") -> None:
        status, said = http_request(method, self.management_port, path, body=body, login=_LOGIN)
        if status not in {HTTPStatus.CREATED, HTTPStatus.NO_CONTENT}:
            raise ServerError(
                f"{self.name} answered {method} {path} with {status}: {said.decode()}"
            )

    def _prepare(self) -> None:
        cookie = self.folder.path / ".erlang.cookie"
        cookie.touch(mode=0o600)  # Erlang refuses one that others may read
        cookie.write_text(secrets.token_hex(16))
        self._file("enabled_plugins").write_text("[rabbitmq_management,rabbitmq_prometheus].\n")
        self._file("advanced.config").write_text(_ADVANCED)
        self._file("rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {HOST}:{self.port}\n"
            f"management.tcp.ip = {HOST}\nmanagement.tcp.port = {self.management_port}\n"
            f"prometheus.tcp.ip = {HOST}\nprometheus.tcp.port = {self.metrics_port}\n"
            "prometheus.return_per_object_metrics = true\ncollect_statistics_interval = 500\n"
            "disk_free_limit.absolute = 50MB\nlog.console = true\nlog.file = false\n"
        )

    def _command(self) -> list[str]:
        return [str(_PROGRAM)]

    def _is_ready(self) -> bool:
        listening = f"/api/health/checks/port-listener/{self.port}"
        return answers_ok(self.management_port, listening, login=_LOGIN)

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_CONFIG_FILE": str(self._file("rabbitmq.conf")),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self._file("advanced.config")),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._file("enabled_plugins")),
            "RABBITMQ_MNESIA_BASE": str(self._file("mnesia")),
            "RABBITMQ_MNESIA_DIR": str(self._file("mnesia") / "node"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self._file("generated")),
            "RABBITMQ_LOG_BASE": str(self.folder.path),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self._file("pid")),
            "RABBITMQ_DIST_PORT": str(self._cluster_port),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": HOST,
            # Makes the script become Erlang; otherwise a kill hits the shell and Erlang lingers.
            "RUNNING_UNDER_SYSTEMD": "true",
            # Two schedulers that sleep when idle: the tests need the processor too.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def _file(self, name: str) -> Path:
        return self.folder.path / name
