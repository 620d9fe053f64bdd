"""Where everything in the pipeline is: documents by their state, events on their way, letters."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headway import Lifecycle, connect
from headway.systems.consensus.lifecycles import LIFECYCLES

_ALL = 100_000_000
FAILED_QUEUES = (
    "archive.ingestion.failed",
    "parsing.failed",
    "chunking.failed",
    "embedding.generation.failed",
    "orchestration.failed",
    "summarization.failed",
    "report.delivery.failed",
)
"""In the order in which an archive passes the services that write letters there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionStatus:
    """How many documents of a collection are in each state, by its name: `pending`, `processed`."""

    collection: str
    states: Mapping[str, int]

    @property
    def documents(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStatus:
    """The letters in a failed queue."""

    queue: str
    letters: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All of it."""

    collections: Sequence[CollectionStatus]
    waiting: Mapping[str, int]
    """Events in the queues of the services, whatever they wait for; only queues with any."""
    failed: Sequence[FailedStatus]

    @property
    def is_at_rest(self) -> bool:
        """Say whether nothing is on its way any more."""
        return not self.waiting


async def read_status(url: str | None = None) -> Status:
    """Ask the engine of a URL, or the one that the settings name."""
    async with connect(url) as headway:
        collections = [
            CollectionStatus(
                collection=each.collection,
                # Every document is read: the public API counts none without.
                states=_states(each, await headway.find(each.collection, limit=_ALL)),
            )
            for each in LIFECYCLES
        ]
        summaries = len(await headway.find("summaries", limit=_ALL))
        queues = {each.name: each for each in await headway.failed.list()}
        count = await headway.count()
    made = CollectionStatus(collection="summaries", states={"processed": summaries})
    return Status(
        collections=[*collections, made],
        waiting={each.queue: each.waiting for each in count.queues if each.waiting},
        failed=[
            FailedStatus(queue=name, letters=queues[name].letters, oldest=queues[name].oldest)
            for name in FAILED_QUEUES
            if name in queues
        ],
    )


def _states(lifecycle: Lifecycle, documents: Sequence[Mapping[str, object]]) -> dict[str, int]:
    return dict(Counter(lifecycle.state(each).value for each in documents))
