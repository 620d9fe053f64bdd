import pytest

from headway.core.engine_url import (
    AmqpUrl,
    SqliteUrl,
    read_broker,
    read_engine_url,
    read_store_url,
)
from headway.core.errors import ConfigurationError


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
    assert said.startswith("HEADWAY_BUS='amqp://")
    assert f"is not accepted: {why}" in said or why in said
    assert "use amqp://USER:PASSWORD@HOST:PORT/VHOST" in said
    assert "secret" not in said


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(read_engine_url("HEADWAY_BUS", "amqp://user:secret@broker"))


def test_an_engine_that_nobody_knows_is_told_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match=r"'kafka' is no engine.*sqlite:///.*amqp://"):
        read_engine_url("HEADWAY_BUS", "kafka://broker")


def test_a_broker_is_no_store() -> None:
    assert read_store_url("HEADWAY_STORE", "sqlite:///a.db") == SqliteUrl("a.db")
    with pytest.raises(ConfigurationError, match=r"HEADWAY_STORE=.* keeps no records; use sqlite"):
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
