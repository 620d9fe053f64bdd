import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pika
import psycopg
import pymongo
import pytest
import redis
from prometheus_client import CollectorRegistry, Gauge, push_to_gateway

from headway.testing.servers import (
    Alertmanager,
    MongoDB,
    PostgreSQL,
    Prometheus,
    Pushgateway,
    RabbitMQ,
    Redis,
    ServerError,
    wait_until,
)
from headway.testing.servers.folder import remove_abandoned_folders
from headway.testing.servers.loopback import http_request
from headway.testing.servers.process import is_alive

SOON = timedelta(seconds=20)


@pytest.mark.server("postgresql")
def test_postgres_keeps_what_was_committed() -> None:
    with PostgreSQL() as server:
        url = server.create_database()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS v")
        for end in (server.kill, server.stop):
            busy = psycopg.connect(url)  # a backend that is there when the server goes
            pids = server.pids()
            end()
            busy.close()
            assert len(pids) > 1
            assert not any(map(is_alive, pids))
            server.start()
            with psycopg.connect(url) as connection:
                assert connection.execute("SELECT v FROM t").fetchone() == (1,)


@pytest.mark.server("redis")
def test_redis_keeps_what_was_answered_and_leaves_nothing_when_it_is_closed() -> None:
    with Redis() as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("k", "v")
        for end in (server.kill, server.stop):
            end()
            server.start()
            with redis.Redis.from_url(server.url) as client:
                assert client.get("k") == b"v"
        with pytest.raises(ServerError, match="Redis runs already"):
            server.start()
        with redis.Redis.from_url(server.create_database()) as another:
            assert another.get("k") is None
        pids, folder = server.pids(), server.folder.path
    assert pids
    assert not any(map(is_alive, pids))
    assert not folder.exists()


def test_rabbitmq_keeps_confirmed_messages_when_killed(rabbitmq_server: RabbitMQ) -> None:
    vhost = rabbitmq_server.create_vhost()
    quorum = {"x-queue-type": "quorum"}
    with pika.BlockingConnection(pika.URLParameters(vhost)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True, arguments=quorum)
        channel.basic_publish("", "q", b"first")
        channel.basic_publish("", "q", b"second")
        method, _, body = channel.basic_get("q")
        channel.basic_ack(method.delivery_tag)
        assert body == b"first"

    rabbitmq_server.wait_for_quorum_queue(vhost, "q")
    rabbitmq_server.kill()
    rabbitmq_server.start()

    with pika.BlockingConnection(pika.URLParameters(vhost)) as connection:
        channel = connection.channel()
        left: list[bytes] = []

        def get_one() -> bool:
            # Right after its start, a quorum queue may not have read its log back yet.
            _, _, body = channel.basic_get("q", auto_ack=True)
            if body is not None:
                left.append(body)
            return b"second" in left

        assert wait_until(get_one, SOON)


@pytest.mark.server("mongodb")
def test_mongodb_keeps_what_was_acknowledged() -> None:
    with MongoDB() as server:
        url = server.create_database()
        with pymongo.MongoClient[dict[str, Any]](url, w="majority", journal=True) as client:
            client.get_default_database()["things"].insert_one({"_id": 1})
        for end in (server.kill, server.stop):
            end()
            server.start()
            with pymongo.MongoClient[dict[str, Any]](url) as client:
                assert client.get_default_database()["things"].count_documents({}) == 1


@pytest.mark.server("alertmanager")
@pytest.mark.server("prometheus")
@pytest.mark.server("pushgateway")
def test_what_is_pushed_reaches_prometheus_and_as_an_alert_alertmanager(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text("groups: [{name: g, rules: [{alert: TooMuch, expr: pushed > 41}]}]")
    registry = CollectorRegistry()
    Gauge("pushed", "What a job pushed", registry=registry).set(42)
    with (
        Alertmanager() as alertmanager,
        Pushgateway() as pushgateway,
        Prometheus(
            targets={"pushgateway": pushgateway.url},
            rule_files=[rules],
            alertmanager=alertmanager.url,
        ) as prometheus,
    ):
        push_to_gateway(pushgateway.url, job="batch", registry=registry)

        def values(expression: str) -> list[str]:
            return [result["value"][1] for result in prometheus.query(expression)]

        assert wait_until(lambda: values('pushed{job="batch"}') == ["42"], SOON)
        assert wait_until(lambda: b"TooMuch" in get(alertmanager.port, "/api/v2/alerts"), SOON)

        pushgateway.kill()
        prometheus.kill()
        prometheus.start()
        assert values("last_over_time(pushed[5m])") == ["42"]
        pushgateway.start()
        assert b"pushed{" not in get(pushgateway.port, "/metrics")


@pytest.mark.server("redis")
def test_a_server_that_cannot_start_shows_its_log_and_leaves_nothing() -> None:
    class Misconfigured(Redis):
        def _command(self) -> list[str]:
            return [*super()._command(), "--no-such-option", "1"]

    server = Misconfigured()
    with pytest.raises(ServerError, match=r"(?s)Redis on port \d+ ended .*no-such-option"), server:
        pass
    assert not server.folder.path.exists()


@pytest.mark.server("redis")
@pytest.mark.server("postgresql")
@pytest.mark.server("rabbitmq")
def test_nothing_is_left_of_servers_whose_owner_was_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWN_SERVERS], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        folders = [Path(folder) for folder in owner.stdout.readline().split()]
        # Redis, PostgreSQL with its helpers, RabbitMQ with its own and its port mapper.
        assert len(pids) > 8
        assert all(map(is_alive, pids))
        owner.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not any(map(is_alive, pids)), SOON)
    assert len(folders) == 3
    remove_abandoned_folders()  # what the next run does first
    assert not any(folder.exists() for folder in folders)


_OWN_SERVERS = """
import signal
from headway.testing.servers import PostgreSQL, RabbitMQ, Redis
with Redis() as redis, PostgreSQL() as postgres, RabbitMQ() as rabbitmq:
    servers = [redis, postgres, rabbitmq]
    print(*(pid for server in servers for pid in server.pids()), flush=True)
    print(*(server.folder.path for server in servers), flush=True)
    signal.pause()
"""


def get(port: int, path: str) -> bytes:
    _, body = http_request("GET", port, path)
    return body
