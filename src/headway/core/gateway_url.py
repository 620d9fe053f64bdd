"""The URL of a Pushgateway, read; the login is kept apart from what may be shown."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from headway.core.errors import ConfigurationError
from headway.core.secrets import shown_url

_CURE = (
    "use http://HOST:PORT or https://HOST, with USER:PASSWORD@ before the host where it asks; in "
    "a password a / is written as %2F, a # as %23 and a ? as %3F"
)


@dataclass(frozen=True, slots=True)
class GatewayUrl:
    """Where a Pushgateway is, and the login to it."""

    address: str
    """Without the login: this may be shown."""
    user: str = ""
    password: str = field(default="", repr=False)


def read_gateway_url(name: str, url: str) -> GatewayUrl:
    """Read the URL of a Pushgateway, or refuse it under the name of its setting.

    >>> read_gateway_url("PUSHGATEWAY_URL", "http://me:s3cret@gateway:9091/")
    GatewayUrl(address='http://gateway:9091', user='me')
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise _refused(name, url, "it is no URL, or its port is no number") from None
    if parts.scheme not in {"http", "https"}:
        raise _refused(name, url, "it does not begin with http:// or https://")
    if not parts.hostname:
        raise _refused(name, url, "it names no host")
    if parts.query or parts.fragment or "@" in parts.path:
        raise _refused(name, url, "behind the host there is more than a path")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    at = host if port is None else f"{host}:{port}"
    address = f"{parts.scheme}://{at}{parts.path.rstrip('/')}"
    return GatewayUrl(address, unquote(parts.username or ""), unquote(parts.password or ""))


def _refused(name: str, url: str, wrong: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={shown_url(url)!r} is not accepted: {wrong}; {_CURE}")
