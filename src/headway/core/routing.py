"""Names of queues, made from the names of services and event types."""

import re

from headway.core.errors import ConfigurationError

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def routing_key(event_type: str) -> str:
    """Write an event type as a routing key.

    >>> routing_key("JSONParsed"), routing_key("SummarizationRequested")
    ('json.parsed', 'summarization.requested')
    """
    return ".".join(_WORD.findall(event_type)).lower() or event_type


def queue_name(service: str, event_type: str) -> str:
    """Name the queue in which a service receives one type of event."""
    return f"{service}.{routing_key(event_type)}"


def failed_queue_name(service: str) -> str:
    """Name the queue in which the letters of a service are kept."""
    return f"{service}.failed"


def checked_name(kind: str, name: object, about: str = "") -> str:
    """Refuse a name that no engine, label or command line would take."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"Invalid {kind}={name!r:.80}{about}: use letters, digits, dots, dashes and "
            "underscores, at most 100, beginning with a letter or a digit"
        )
    return name
