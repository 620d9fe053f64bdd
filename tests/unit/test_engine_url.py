from collections.abc import Callable
from urllib.parse import quote

import pytest

from headway import ConfigurationError
from headway.core.engine_url import AmqpUrl, StoreUrl, read_broker, read_mongodb
from headway.settings import (
    MongoUrl,
    PostgresUrl,
    SqliteUrl,
    read_engine_url,
    read_sequences_url,
    read_store_url,
)


@pytest.mark.parametrize(
    ("url", "read"),
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
def test_urls_of_buses(url: str, read: AmqpUrl | SqliteUrl) -> None:
    assert read_engine_url("HEADWAY_BUS", url) == read
    if isinstance(read, AmqpUrl):
        assert read_engine_url("HEADWAY_BUS", str(read)) == read


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("amqp://", "it names no host"),
        ("amqp:///shop", "it names no host"),
        ("amqp://broker:0", "its port is no number from 1 to 65535"),
        ("amqp://broker:70000", "its port is no number from 1 to 65535"),
        ("amqp://broker:amqp", "its port is no number from 1 to 65535"),
        ("amqp://broker//", "a virtual host with a slash in its name is written with %2F"),
        ("amqp://user@broker", "it names a user and no password"),
        ("amqp://broker?heartbeat=5", "'heartbeat' is no option of a broker"),
        ("amqp://broker#x", "'x' is no option of a broker"),
        ("amqp://user:top/secret@broker", "a / in a password is written as %2F"),
        ("amqp://user:top#secret@broker", "a # as %23"),
    ],
)
def test_what_is_wrong_with_the_url_of_a_broker_is_said(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_engine_url("HEADWAY_BUS", url)
    said = str(refused.value)
    assert said.startswith("Invalid HEADWAY_BUS 'amqp://")
    assert why in said
    assert "se amqp://USER:PASSWORD@HOST:PORT/VHOST" in said
    assert "secret" not in said


FILES = {
    "sqlite:data.db": "three slashes are needed before the name of a file",
    "sqlite:/data.db": "three slashes are needed before the name of a file",
    "sqlite:///data#1.db": "a # is written as %23",
    "sqlite:///data.db#": "a # is written as %23",
    "sqlite:///data?1.db": "a ? is written as %3F",
    "sqlite:///data?": "a ? as %3F",
    "sqlite:///data.db?mode=ro": "'mode' is no option (there is: synchronous)",
    "sqlite:///data\n.db": "a line break",
    "sqlite:///data%FF.db": "is not UTF-8",
    "sqlite:///data%00.db": "it names no file",
}


@pytest.mark.parametrize(("url", "why"), FILES.items())
@pytest.mark.parametrize("read", [read_engine_url, read_store_url, read_sequences_url])
def test_a_url_that_would_name_another_file_is_refused(
    read: Callable[[str, str], object], url: str, why: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read("HEADWAY_BUS", url)
    assert why in str(refused.value)
    assert "Use sqlite:///FILE" in str(refused.value)


def test_any_name_of_a_file_can_be_written() -> None:
    for name in ("data#1.db", "data?1.db", "a b%.db", "é@x.db"):
        assert read_store_url("HEADWAY_STORE", f"sqlite:///{quote(name)}") == SqliteUrl(name)


@pytest.mark.parametrize("url", ["redis://h/0#1", "redis://h/0#"])
def test_what_redis_would_not_be_told_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="a # as %23"):
        read_sequences_url("HEADWAY_SEQUENCES", url)


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(read_engine_url("HEADWAY_BUS", "amqp://user:secret@broker"))


def test_an_engine_that_nobody_knows_is_told_those_that_are_known() -> None:
    with pytest.raises(
        ConfigurationError, match=r"unsupported scheme 'kafka'.*sqlite:///.*amqp://"
    ):
        read_engine_url("HEADWAY_BUS", "kafka://broker")


@pytest.mark.parametrize("path", ["x.db", "/data/x.db", "data/x.sqlite3"])
def test_a_path_alone_is_told_as_a_url(path: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_engine_url("--bus", path)
    assert str(refused.value) == f"Invalid --bus {path!r}: it is not a URL. Use sqlite:///{path}."


@pytest.mark.parametrize("text", ["bob:s3cret@broker", "s3cret", "s3cret@x.db", "bob:s3cret.db"])
def test_what_may_be_a_password_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_engine_url("--bus", text)
    assert "s3cret" not in str(refused.value)


def test_a_broker_is_no_store() -> None:
    assert read_store_url("HEADWAY_STORE", "sqlite:///a.db") == SqliteUrl("a.db")
    with pytest.raises(ConfigurationError, match=r"HEADWAY_STORE .* keeps no records\. Use sqlite"):
        read_store_url("HEADWAY_STORE", "amqp://broker")


def test_a_broker_by_the_names_of_the_documents() -> None:
    assert read_broker({"RABBITMQ_PORT": "5672"}) is None
    assert read_broker({"RABBITMQ_HOST": "messagebus"}) == AmqpUrl("messagebus", 5672)
    given = {
        "RABBITMQ_HOST": "messagebus",
        "RABBITMQ_PORT": "99",
        "RABBITMQ_USERNAME": "me",
        "RABBITMQ_PASSWORD": "top/secret",
        "RABBITMQ_VHOST": "shop",
    }
    assert read_broker(given) == AmqpUrl("messagebus", 99, "shop", "me", "top/secret")
    assert read_broker({"RABBITMQ_HOST": "x", "RABBITMQ_USER": "me"}) == AmqpUrl(
        "x", 5672, user="me"
    )


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("RABBITMQ_HOST", "amqp://me:secret@broker", "a whole URL goes into HEADWAY_BUS"),
        ("RABBITMQ_PORT", "tcp://10.0.0.1:5672", "where Kubernetes sets it by itself"),
        ("RABBITMQ_PORT", "0", "use a number from 1 to 65535"),
    ],
)
def test_what_is_wrong_with_them_is_said(name: str, value: str, cure: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_broker({"RABBITMQ_HOST": "broker", name: value})
    assert str(refused.value).startswith(f"{name}=")
    assert cure in str(refused.value)
    assert "secret" not in str(refused.value)


# Stores


@pytest.mark.parametrize(
    ("url", "database", "kind"),
    [
        ("mongodb://host/app", "app", MongoUrl),
        ("mongodb://me:a%2Fb@one:1,two:2,[::1]:3/app?replicaSet=rs0&authSource=x", "app", MongoUrl),
        ("mongodb+srv://me:secret@cluster.example/app", "app", MongoUrl),
        ("postgresql://me:secret@host:5432/app?sslmode=require", "app", PostgresUrl),
        ("postgres://host/my%20app", "my app", PostgresUrl),
        ("postgresql:///app?host=/tmp", "app", PostgresUrl),
    ],
)
def test_urls_of_stores(url: str, database: str, kind: type[MongoUrl | PostgresUrl]) -> None:
    assert read_store_url("HEADWAY_STORE", url) == kind(database, url)


@pytest.mark.parametrize("scheme", ["mongodb", "postgresql"])
@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("host", "it names no database"),
        ("host/", "it names no database"),
        ("/app", "it names no host"),
        ("host:99999/app", "its port is no number from 1 to 65535"),
        ("host:x/app", "its port is no number from 1 to 65535"),
        ("me:top/secret@host/app", "a / in a password is written as %2F"),
        ("me:top#secret@host/app", "a # as %23"),
        ("host/a/b", "'a/b' is no name of a database"),
    ],
)
def test_what_is_wrong_with_the_url_of_a_store_is_said(scheme: str, rest: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_store_url("HEADWAY_STORE", f"{scheme}://{rest}")
    said = str(refused.value)
    assert said.startswith(f"Invalid HEADWAY_STORE '{scheme}://")
    assert why in said
    assert f"Use {scheme}://USER:PASSWORD@HOST:PORT/DATABASE" in said
    assert "secret" not in said


def test_a_name_that_mongodb_does_not_take_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'my app' is no name of a database"):
        read_store_url("HEADWAY_STORE", "mongodb://host/my%20app")


def test_a_store_that_nobody_knows_is_told_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match=r"'cassandra'.*sqlite:///.*mongodb://.*postgres"):
        read_store_url("HEADWAY_STORE", "cassandra://host/app")


@pytest.mark.parametrize("url", ["mongodb://host/app", "postgresql://me:secret@host/app"])
def test_a_store_is_no_bus(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is a store, and no bus\. Set HEADWAY_STORE"):
        read_engine_url("HEADWAY_BUS", url)


def test_no_password_of_a_store_is_shown() -> None:
    for url in ("mongodb://user:secret@host/app", "postgresql://user:secret@host/app"):
        store: StoreUrl = read_store_url("HEADWAY_STORE", url)
        assert "secret" not in repr(store)


def test_mongodb_by_the_names_of_the_documents() -> None:
    assert read_mongodb({"MONGODB_DATABASE": "app"}) is None
    given = {"MONGODB_HOST": "documentdb", "MONGODB_DATABASE": "copilot"}
    assert read_mongodb(given) == MongoUrl("copilot", "mongodb://documentdb:27017/copilot")
    login = {"MONGODB_PORT": "99", "MONGODB_USERNAME": "a@b", "MONGODB_PASSWORD": "top/secret"}
    found = read_mongodb({**given, **login})
    assert found is not None
    assert found.url == ("mongodb://a%40b:top%2Fsecret@documentdb:99/copilot?authSource=admin")
    assert read_store_url("HEADWAY_STORE", found.url) == found


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"MONGODB_HOST": "mongodb://me:secret@host/app"}, "a whole URL goes into HEADWAY_STORE"),
        ({"MONGODB_PORT": "tcp://10.0.0.1:27017"}, "use HEADWAY_STORE=mongodb://"),
        ({"MONGODB_DATABASE": ""}, "MONGODB_DATABASE='' is not accepted"),
        ({"MONGODB_DATABASE": "a.b"}, "MONGODB_DATABASE='a.b' is not accepted"),
        ({"MONGODB_USERNAME": "me"}, "MONGODB_PASSWORD is not set"),
        ({"MONGODB_PASSWORD": "secret"}, "MONGODB_USERNAME is not set"),
    ],
)
def test_what_is_wrong_with_the_names_of_mongodb_is_said(
    settings: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_mongodb({"MONGODB_HOST": "host", "MONGODB_DATABASE": "app", **settings})
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
