"""URLs of buses, stores, sequences and a Pushgateway: what is read, and what is refused.

No refusal and no value shows a password.
"""

from collections.abc import Callable
from urllib.parse import quote

import pytest

from headway import ConfigurationError
from headway.core.engine_url import AmqpUrl, read_broker, read_mongodb
from headway.settings import (
    MongoUrl,
    PostgresUrl,
    SqliteUrl,
    SweepSettings,
    read_engine_url,
    read_sequences_url,
    read_store_url,
)

Read = Callable[[str, str], object]


def refusal(read: Read, name: str, url: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        read(name, url)
    assert "s3cret" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://broker", AmqpUrl("broker", 5672)),
        ("amqp://broker/", AmqpUrl("broker", 5672)),
        ("amqps://broker", AmqpUrl("broker", 5671, tls=True)),
        ("amqp://broker:99/shop", AmqpUrl("broker", 99, "shop")),
        ("amqp://a%40b:c%2Fd@broker/a%2Fb", AmqpUrl("broker", 5672, "a/b", "a@b", "c/d")),
        ("amqp://[::1]/%2F", AmqpUrl("::1", 5672)),
        ("sqlite:///a.db?synchronous=normal", SqliteUrl("a.db", "normal")),
    ],
)
def test_the_url_of_a_bus_is_read(url: str, expected: AmqpUrl | SqliteUrl) -> None:
    assert read_engine_url("HEADWAY_BUS", url) == expected
    if isinstance(expected, AmqpUrl):
        assert read_engine_url("HEADWAY_BUS", str(expected)) == expected


BROKERS = {
    "amqp://": "names no host",
    "amqp:///shop": "names no host",
    "amqp://broker:0": "its port",
    "amqp://broker:70000": "its port",
    "amqp://broker:amqp": "its port",
    "amqp://broker//": "%2F",
    "amqp://user@broker": "no password",
    "amqp://broker?heartbeat=5": "'heartbeat'",
    "amqp://broker#x": "'x'",
    "amqp://user:top/s3cret@broker": "%2F",
    "amqp://user:top#s3cret@broker": "%23",
    "kafka://broker": "'kafka'",
    "mongodb://host/app": "HEADWAY_STORE",
    "postgresql://me:s3cret@host/app": "HEADWAY_STORE",
    "bob:s3cret@broker": "",
    "s3cret": "",
    "s3cret@x.db": "",
    "bob:s3cret.db": "",
}
STORES = {
    f"{scheme}://{rest}": why
    for scheme in ("mongodb", "postgresql")
    for rest, why in {
        "host": "names no database",
        "host/": "names no database",
        "/app": "names no host",
        "host:99999/app": "its port",
        "host:x/app": "its port",
        "me:top/s3cret@host/app": "%2F",
        "me:top#s3cret@host/app": "%23",
        "host/a/b": "'a/b'",
    }.items()
} | {
    "mongodb://host/my%20app": "'my app'",
    "cassandra://host/app": "'cassandra'",
    "amqp://broker": "sqlite",
}
SEQUENCES = {"redis://h/0#1": "%23", "redis://h/0#": "%23"}


@pytest.mark.parametrize(
    ("read", "url", "why"),
    [
        *((read_engine_url, url, why) for url, why in BROKERS.items()),
        *((read_store_url, url, why) for url, why in STORES.items()),
        *((read_sequences_url, url, why) for url, why in SEQUENCES.items()),
    ],
)
def test_what_is_wrong_with_a_url_is_named(read: Read, url: str, why: str) -> None:
    said = refusal(read, "HEADWAY_URL", url)
    assert said.startswith("Invalid HEADWAY_URL '")
    assert why in said


FILES = {
    "sqlite:data.db": "three slashes",
    "sqlite:/data.db": "three slashes",
    "sqlite:///data#1.db": "%23",
    "sqlite:///data.db#": "%23",
    "sqlite:///data?1.db": "%3F",
    "sqlite:///data?": "%3F",
    "sqlite:///data.db?mode=ro": "'mode'",
    "sqlite:///data\n.db": "a line break",
    "sqlite:///data%FF.db": "UTF-8",
    "sqlite:///data%00.db": "names no file",
}


@pytest.mark.parametrize(("url", "why"), FILES.items())
@pytest.mark.parametrize("read", [read_engine_url, read_store_url, read_sequences_url])
def test_a_url_that_would_name_another_file_is_refused(read: Read, url: str, why: str) -> None:
    assert why in refusal(read, "HEADWAY_BUS", url)


@pytest.mark.parametrize("name", ["data#1.db", "data?1.db", "a b%.db", "é@x.db"])
def test_any_name_of_a_file_can_be_written(name: str) -> None:
    assert read_store_url("HEADWAY_STORE", f"sqlite:///{quote(name)}") == SqliteUrl(name)


@pytest.mark.parametrize("path", ["x.db", "/data/x.db", "data/x.sqlite3"])
def test_a_path_alone_is_refused_with_its_url(path: str) -> None:
    assert f"sqlite:///{path}" in refusal(read_engine_url, "--bus", path)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///a.db", SqliteUrl("a.db")),
        ("mongodb://host/app", MongoUrl),
        ("mongodb://me:a%2Fb@one:1,two:2,[::1]:3/app?replicaSet=rs0&authSource=x", MongoUrl),
        ("mongodb+srv://me:s3cret@cluster.example/app", MongoUrl),
        ("postgresql://me:s3cret@host:5432/app?sslmode=require", PostgresUrl),
        ("postgres://host/app", PostgresUrl),
        ("postgres://host/my%20app", PostgresUrl("my app", "postgres://host/my%20app")),
        ("postgresql:///app?host=/tmp", PostgresUrl),
    ],
)
def test_the_url_of_a_store_is_read(url: str, expected: object) -> None:
    read = read_store_url("HEADWAY_STORE", url)
    assert read == (expected("app", url) if isinstance(expected, type) else expected)
    assert "s3cret" not in repr(read)


def test_a_broker_may_be_named_by_the_variables_of_its_image() -> None:
    assert read_broker({"RABBITMQ_PORT": "5672"}) is None
    assert read_broker({"RABBITMQ_HOST": "messagebus"}) == AmqpUrl("messagebus", 5672)
    login = {"RABBITMQ_USERNAME": "me", "RABBITMQ_PASSWORD": "top/s3cret"}
    given = {"RABBITMQ_HOST": "x", "RABBITMQ_PORT": "99", "RABBITMQ_VHOST": "shop", **login}
    assert read_broker(given) == AmqpUrl("x", 99, "shop", "me", "top/s3cret")
    assert "s3cret" not in repr(read_broker(given))
    user = read_broker({"RABBITMQ_HOST": "x", "RABBITMQ_USER": "me"})
    assert user == AmqpUrl("x", 5672, user="me")


def test_mongodb_may_be_named_by_the_variables_of_its_image() -> None:
    assert read_mongodb({"MONGODB_DATABASE": "app"}) is None
    given = {"MONGODB_HOST": "documentdb", "MONGODB_DATABASE": "copilot"}
    assert read_mongodb(given) == MongoUrl("copilot", "mongodb://documentdb:27017/copilot")
    login = {"MONGODB_PORT": "99", "MONGODB_USERNAME": "a@b", "MONGODB_PASSWORD": "top/s3cret"}
    found = read_mongodb({**given, **login})
    assert found is not None
    assert found.url == "mongodb://a%40b:top%2Fs3cret@documentdb:99/copilot?authSource=admin"
    assert read_store_url("HEADWAY_STORE", found.url) == found


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("RABBITMQ_HOST", "amqp://me:s3cret@broker", "HEADWAY_BUS"),
        ("RABBITMQ_PORT", "tcp://10.0.0.1:5672", "Kubernetes"),
        ("RABBITMQ_PORT", "0", "65535"),
        ("MONGODB_HOST", "mongodb://me:s3cret@host/app", "HEADWAY_STORE"),
        ("MONGODB_PORT", "tcp://10.0.0.1:27017", "HEADWAY_STORE"),
        ("MONGODB_DATABASE", "", "MONGODB_DATABASE=''"),
        ("MONGODB_DATABASE", "a.b", "MONGODB_DATABASE='a.b'"),
        ("MONGODB_USERNAME", "me", "MONGODB_PASSWORD"),
        ("MONGODB_PASSWORD", "s3cret", "MONGODB_USERNAME"),
    ],
)
def test_what_is_wrong_with_the_variables_is_named(name: str, value: str, named: str) -> None:
    given = {"RABBITMQ_HOST": "h", "MONGODB_HOST": "h", "MONGODB_DATABASE": "app", name: value}
    with pytest.raises(ConfigurationError, match=named) as refused:
        (read_broker if "RABBITMQ" in name else read_mongodb)(given)
    assert name in str(refused.value)
    assert "s3cret" not in str(refused.value)


def gateway(name: str, url: str) -> object:
    found = SweepSettings.from_mapping({"METRICS_BACKEND": "prometheus_pushgateway", name: url})
    assert found.gateway is not None
    assert "s3cret" not in repr(found.gateway)
    return found.gateway.address, found.gateway.user, found.gateway.password


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://pushgateway:9091", ("http://pushgateway:9091", "", "")),
        (" http://pushgateway:9091/ ", ("http://pushgateway:9091", "", "")),
        ("https://host/prefix/", ("https://host/prefix", "", "")),
        ("http://me:s3cret%2Fb@host:9091", ("http://host:9091", "me", "s3cret/b")),
        ("http://[::1]:9091", ("http://[::1]:9091", "", "")),
    ],
)
def test_the_url_of_a_pushgateway_is_read(url: str, expected: tuple[str, str, str]) -> None:
    assert gateway("PUSHGATEWAY_URL", url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("pushgateway:9091", "http"),
        ("ftp://me:s3cret@host", "http"),
        ("http://", "names no host"),
        ("http://me:s3cret@host:port", "its port"),
        ("http://me:s3cret?@host", "%3F"),
        ("http://me:123/s3cret@host", "more than a path"),
        ("http://host/?a=s3cret@host", "more than a path"),
        ("http://[me:s3cret@host", "no URL"),
    ],
)
def test_a_pushgateway_that_cannot_be_used_is_refused(url: str, why: str) -> None:
    said = refusal(gateway, "PUSHGATEWAY_URL", url)
    assert said.startswith("PUSHGATEWAY_URL='")
    assert why in said
