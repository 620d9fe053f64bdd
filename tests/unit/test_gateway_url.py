"""The URL of a Pushgateway: what is taken, and that a login is never shown."""

import pytest

from headway import ConfigurationError
from headway.core.gateway_url import GatewayUrl, read_gateway_url


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://pushgateway:9091", GatewayUrl("http://pushgateway:9091")),
        (" http://pushgateway:9091/ ", GatewayUrl("http://pushgateway:9091")),
        ("https://host/prefix/", GatewayUrl("https://host/prefix")),
        ("http://me:a%2Fb@host:9091", GatewayUrl("http://host:9091", "me", "a/b")),
        ("http://[::1]:9091", GatewayUrl("http://[::1]:9091")),
    ],
)
def test_a_url_is_read(url: str, read: GatewayUrl) -> None:
    assert read_gateway_url("PUSHGATEWAY_URL", url) == read


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("pushgateway:9091", "does not begin with http"),
        ("ftp://me:s3cret@host", "does not begin with http"),
        ("http://", "names no host"),
        ("http://me:s3cret@host:port", "its port is no number"),
        ("http://me:s3cret?@host", "a ? as %3F"),
        ("http://me:123/s3cret@host", "more than a path"),
        ("http://host/?a=s3cret@host", "more than a path"),
        ("http://[me:s3cret@host", "it is no URL"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name_and_without_its_password(
    url: str, why: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_gateway_url("PUSHGATEWAY_URL", url)
    said = str(refused.value)
    assert said.startswith("PUSHGATEWAY_URL='")
    assert why in said
    assert "use http://HOST:PORT" in said
    assert "s3cret" not in said


def test_a_password_is_not_in_its_words() -> None:
    read = read_gateway_url("PUSHGATEWAY_URL", "http://me:s3cret@host")
    assert read.password == "s3cret"
    assert "s3cret" not in repr(read)
