"""Which failed queue a person means, and what to say if there is none."""

from collections.abc import Mapping, Sequence

from headway.core.errors import ConfigurationError
from headway.core.routing import failed_queue_name
from headway.core.showing import shown
from headway.core.suggestion import nearest

COLLECTIONS: Mapping[str, str] = {
    "archives": "parsing",
    "messages": "chunking",
    "chunks": "embedding",
    "threads": "summarization",
}
"""Who works on the documents of a collection: people name queues by either."""
_SUFFIX = ".failed"


def find_failed_queue(
    meant: str, known: Sequence[str], aliases: Mapping[str, str] = COLLECTIONS
) -> str:
    """Give the failed queue that a name stands for: its own, a service's, or a collection's.

    >>> find_failed_queue("parsing", ["parsing.failed"])
    'parsing.failed'
    >>> find_failed_queue("archives.failed", ["parsing.failed"])
    'parsing.failed'
    """
    service = meant.removesuffix(_SUFFIX)
    for name in (service, aliases.get(service)):
        if name is None:
            continue
        if meant in known:
            return meant
        if failed_queue_name(name) in known:
            return failed_queue_name(name)
        # Such as embedding.generation.failed, if the service has no other.
        own = [queue for queue in known if queue.startswith(f"{name}.")]
        if len(own) == 1:
            return own[0]
    raise ConfigurationError(_unknown(meant, known))


def _unknown(meant: str, known: Sequence[str]) -> str:
    if not known:
        return (
            f"queue={shown(meant)!r} does not exist: this engine has no failed queue yet; it gets "
            "one when a service is started on it: headway run MODULE:SERVICE"
        )
    names = {name.removesuffix(_SUFFIX): name for name in known}
    near = nearest(meant.removesuffix(_SUFFIX), names)
    hint = f"did you mean {names[near]}? There " if near else ""
    return f"queue={shown(meant)!r} does not exist: {hint or 'there '}are: {', '.join(known)}"
