import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
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
    Server,
    ServerError,
    wait_until,
)
from headway.testing.servers.folder import OwnedFolder, remove_abandoned_folders
from headway.testing.servers.loopback import answers_ok, http_request
from headway.testing.servers.process import Process, is_alive

SOON = timedelta(seconds=20)


def test_psycopg_reads_what_it_wrote(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE t (v text)")
        connection.execute("INSERT INTO t VALUES ('grün')")
        assert connection.execute("SELECT v FROM t").fetchone() == ("grün",)


async def test_asyncpg_reads_what_it_wrote(postgres_database: str) -> None:
    connection = await asyncpg.connect(postgres_database)
    try:
        await connection.execute("CREATE TABLE t (v int)")
        await connection.execute("INSERT INTO t VALUES ($1)", 7)
        assert await connection.fetchval("SELECT v FROM t") == 7
    finally:
        await connection.close()


def test_each_test_gets_a_database_of_its_own(postgres_server: PostgreSQL) -> None:
    one, other = postgres_server.create_database(), postgres_server.create_database()
    with psycopg.connect(one) as connection:
        connection.execute("CREATE TABLE t ()")
    with psycopg.connect(other) as connection:
        assert connection.execute("SELECT to_regclass('t')").fetchone() == (None,)


def test_postgres_takes_settings() -> None:
    settings = {"max_prepared_transactions": "3"}
    with PostgreSQL(options=settings) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SHOW max_prepared_transactions").fetchone() == ("3",)


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


def test_redis_reads_what_it_wrote_in_its_own_database(redis_server: Redis) -> None:
    one, other = redis_server.create_database(), redis_server.create_database()
    with redis.Redis.from_url(one) as client, redis.Redis.from_url(other) as stranger:
        client.set("k", "v")
        assert client.get("k") == b"v"
        assert stranger.get("k") is None


@pytest.mark.server("redis")
def test_redis_keeps_what_was_answered() -> None:
    with Redis() as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("k", "v")
        for end in (server.kill, server.stop):
            end()
            server.start()
            with redis.Redis.from_url(server.url) as client:
                assert client.get("k") == b"v"


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


def test_rabbitmq_has_management_and_metrics(rabbitmq_server: RabbitMQ) -> None:
    rabbitmq_server.create_vhost()
    status, body = http_request(
        "GET", rabbitmq_server.management_port, "/api/vhosts", login="guest:guest"
    )
    assert (status, b"test_" in body) == (200, True)
    assert answers_ok(rabbitmq_server.metrics_port, "/metrics/per-object")


def test_mongodb_has_transactions(mongodb_database: str) -> None:
    with pymongo.MongoClient[dict[str, Any]](mongodb_database) as client:
        things = client.get_default_database()["things"]
        with client.start_session() as session:
            with session.start_transaction():
                things.insert_one({"_id": 1}, session=session)
            with session.start_transaction():
                things.insert_one({"_id": 2}, session=session)
                session.abort_transaction()
        assert [thing["_id"] for thing in things.find()] == [1]


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


def test_prometheus_says_which_query_it_refused(prometheus_server: Prometheus) -> None:
    with pytest.raises(ServerError, match=r"Prometheus answered 'sum\(' with 400: .*parse error"):
        prometheus_server.query("sum(")


@pytest.mark.server("alertmanager")
def test_alertmanager_starts_again() -> None:
    with Alertmanager() as server:
        for end in (server.kill, server.stop):
            end()
            assert not answers_ok(server.port, "/-/ready")
            server.start()
            assert answers_ok(server.port, "/-/ready")


@pytest.mark.server("redis")
def test_nothing_is_left_of_a_server_that_was_closed() -> None:
    with Redis() as server:
        pids, folder = server.pids(), server.folder.path
        assert folder.is_dir()
        assert all(map(is_alive, pids))
    assert pids
    assert not any(map(is_alive, pids))
    assert not folder.exists()


@pytest.mark.server("redis")
def test_a_server_that_runs_is_not_started_again() -> None:
    with Redis() as server:
        with pytest.raises(ServerError, match="Redis runs already"):
            server.start()
        assert answers(server)


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
def test_a_server_that_never_gets_ready_is_killed() -> None:
    class NeverReady(Redis):
        _ready_within = timedelta(milliseconds=200)

        def _is_ready(self) -> bool:
            return False

    server = NeverReady()
    with pytest.raises(ServerError, match=r"was not ready within 0:00:00\.2"):
        server.start()
    assert server.pids() == []
    server.close()


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        assert wait_until(lambda: not is_alive(child.pid), SOON)
        assert Path(f"/proc/{child.pid}").exists()


def test_a_missing_program_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert "util-linux" in str(Redis.missing())
    with pytest.raises(ServerError, match="apt-get install"):
        Redis()


def test_a_server_must_be_started_in_the_main_thread(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            Process(["true"], log=tmp_path / "log", environment={})
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=start, name="helper")
    thread.start()
    thread.join()
    assert "'helper': it would be killed when that thread ends" in str(errors[0])


def test_a_folder_is_removed_once_its_owner_is_gone(tmp_path: Path) -> None:
    mine = OwnedFolder("test")
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWN_A_FOLDER], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        theirs = Path(owner.stdout.readline().strip())
        remove_abandoned_folders()
        assert theirs.is_dir()
        owner.kill()
    remove_abandoned_folders()
    assert not theirs.exists()
    assert mine.path.is_dir()
    mine.remove()
    assert not mine.path.exists()


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


_OWN_A_FOLDER = """
import signal
from headway.testing.servers.folder import OwnedFolder
print(OwnedFolder("test").path, flush=True)
signal.pause()
"""

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


def answers(server: Server) -> bool:
    with redis.Redis.from_url(server.url) as client:
        return bool(client.ping())
