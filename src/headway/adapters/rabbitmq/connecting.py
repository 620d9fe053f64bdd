"""The parameters of a connection, from its URL, and why there is none."""

import copy
import shlex
import socket
import ssl
from collections.abc import Iterator

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout
from pika.exceptions import (
    AuthenticationError,
    ConnectionClosedByBroker,
    ConnectionOpenAborted,
    IncompatibleProtocolError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from headway.core.errors import ConfigurationError

HEARTBEAT = 10
"""Seconds. A connection whose other end is gone without a word is noticed within three of them."""
_CONNECTED_WITHIN = 5.0
"""Seconds until the broker has to have accepted a connection and the login."""
_WORKER_CONNECTED_WITHIN = 15.0
"""The same for workers, which try again: a broker that restarts has many of them to greet."""
_NOT_ALLOWED = 530
_LIMIT = "limit"
_CURE = "HEADWAY_BUS, or RABBITMQ_HOST and RABBITMQ_PORT"


def parameters(url: str, heartbeat: int = HEARTBEAT) -> pika.ConnectionParameters:
    """Read the URL of a broker. It has no options: settings with options are refused before."""
    found = pika.URLParameters(url)
    found.heartbeat = heartbeat
    found.connection_attempts = 1
    found.socket_timeout = found.stack_timeout = _CONNECTED_WITHIN
    found.client_properties = {"connection_name": "headway"}
    return found


def unhurried(how: pika.ConnectionParameters) -> pika.ConnectionParameters:
    """Give the parameters for a connection that is tried again until it is there."""
    found = copy.copy(how)
    found.stack_timeout = _WORKER_CONNECTED_WITHIN
    return found


def full(address: str) -> str:
    """Say that a broker has a resource alarm."""
    return (
        f"RabbitMQ at {address} takes no messages, because its memory or disk alarm is on: free "
        "memory or disk space there"
    )


def refusal(
    error: BaseException, how: pika.ConnectionParameters
) -> ConfigurationError | ConnectionError:
    """Say why there is no connection, and what to do about it.

    ConfigurationError: the broker refuses this login or virtual host, and will until a person
    changes something. ConnectionError: another try may succeed.
    """
    address, user = f"{how.host}:{how.port}", how.credentials.username
    is_login = isinstance(error, ProbableAuthenticationError)
    if isinstance(error, AuthenticationError) or (is_login and _was_refused(error)):
        return ConfigurationError(
            f"RabbitMQ at {address} does not accept the login of user {user!r}: check user and "
            "password in HEADWAY_BUS, or RABBITMQ_USERNAME and RABBITMQ_PASSWORD"
        )
    if _is_about_the_vhost(error):
        return _without_vhost(str(error), how)
    reason = words(error)
    causes = tuple(_causes(error))
    if any(isinstance(each, socket.gaierror) for each in causes):
        why = f"the name of the host cannot be resolved ({reason}). Check {_CURE}"
    elif any(isinstance(each, ConnectionRefusedError) for each in causes):
        why = f"nothing listens there ({reason}). Start RabbitMQ, or correct {_CURE}"
    elif any(isinstance(each, ssl.SSLError) for each in causes):
        why = (
            f"the TLS handshake failed ({reason}). Use amqps:// for a TLS port (5671) and amqp:// "
            "for any other, and check the certificate"
        )
    elif isinstance(error, IncompatibleProtocolError):
        why = f"something listens there, and hangs up on AMQP. {_OTHER_PORTS}"
    elif isinstance(error, ProbableAuthenticationError | ProbableAccessDeniedError):
        why = f"it closed the connection during the login ({reason}). It may be restarting"
    elif isinstance(error, AMQPConnectorStackTimeout | ConnectionOpenAborted):
        why = (
            f"something listens there, and did not answer in AMQP within {how.stack_timeout:g} s. "
            f"{_OTHER_PORTS}"
        )
    else:
        why = f"it does not answer ({reason}). Start RabbitMQ, or correct {_CURE}"
    return ConnectionError(f"RabbitMQ at {address} is not available: {why}")


_OTHER_PORTS = (
    "Is it the port of the management (15672), or of TLS (5671, which needs amqps://)? RabbitMQ "
    f"speaks AMQP at 5672. Check {_CURE}"
)


def _was_refused(error: BaseException) -> bool:
    """Tell a refusal by the broker from a broker that died: pika takes both for a refusal."""
    return ConnectionClosedByBroker.__name__ in str(error)


def _is_about_the_vhost(error: BaseException) -> bool:
    is_denied = (isinstance(error, ProbableAccessDeniedError) and _was_refused(error)) or (
        isinstance(error, ConnectionClosedByBroker) and error.reply_code == _NOT_ALLOWED
    )
    # So many connections are allowed, and others have them: they may end.
    return is_denied and _LIMIT not in str(error)


def _without_vhost(said: str, how: pika.ConnectionParameters) -> ConfigurationError:
    vhost, user = how.virtual_host, how.credentials.username
    named = f"RabbitMQ at {how.host}:{how.port}"
    cure = "check the path in HEADWAY_BUS, or RABBITMQ_VHOST"
    quoted = shlex.quote(vhost)
    if "refused for user" in said:
        return ConfigurationError(
            f"{named} does not let user {user!r} into the virtual host {vhost!r}: {cure}, or allow "
            f"it: rabbitmqctl set_permissions -p {quoted} {shlex.quote(user)} '.*' '.*' '.*'"
        )
    return ConfigurationError(
        f"{named} has no virtual host {vhost!r}: {cure}, or create it: rabbitmqctl add_vhost "
        f"{quoted}"
    )


def words(error: BaseException) -> str:
    """Say in a few words why a connection failed: pika wraps the reason several times."""
    *_, inner = _causes(error)
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return " ".join(str(inner).split()) or type(inner).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Give an error, and what it was raised for, from the outside in."""
    inner: BaseException | None = error
    while inner is not None:
        yield inner
        inside = [*inner.args, getattr(inner, "exception", None), *getattr(inner, "exceptions", ())]
        deeper = [each for each in inside if isinstance(each, BaseException)]
        inner = deeper[-1] if deeper else None
