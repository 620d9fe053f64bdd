"""The parameters of a connection, from its URL."""

import pika

HEARTBEAT = 10
"""Seconds. A connection whose other end is gone without a word is noticed within three of them."""


def parameters(url: str, heartbeat: int = HEARTBEAT) -> pika.ConnectionParameters:
    """Read the URL of a broker, which has no options: whoever reads settings refuses them."""
    found = pika.URLParameters(url)
    found.heartbeat = heartbeat
    found.connection_attempts = 1
    found.client_properties = {"connection_name": "headway"}
    return found


def full(address: str) -> str:
    """Say that a broker has a resource alarm."""
    return (
        f"RabbitMQ at {address} takes no messages, because its memory or disk alarm is on: free "
        "memory or disk space there"
    )


def words(error: BaseException) -> str:
    """Say in a few words why a connection failed: pika wraps the reason several times."""
    inner = error
    while True:
        causes = [*inner.args, getattr(inner, "exception", None), *getattr(inner, "exceptions", ())]
        deeper = [cause for cause in causes if isinstance(cause, BaseException)]
        if not deeper:
            break
        inner = deeper[-1]
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return " ".join(str(inner).split()) or type(inner).__name__
