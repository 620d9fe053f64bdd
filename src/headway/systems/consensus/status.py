"""Where everything in the pipeline is: documents by their state, events on their way, letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headway import connect
from headway.systems.consensus.lifecycles import LIFECYCLES, THREADS

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
_ALL = 10_000_000


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
    without_text: int = 0
    """Threads that are finished without a summary: their messages are empty."""
    duplicates: int = 0
    """Messages that were passed over, for their archive has them twice, by all that names them."""
    differing: int = 0
    """Those of them whose text is another one."""

    @property
    def is_at_rest(self) -> bool:
        """Say whether nothing is on its way any more."""
        return not self.waiting


async def read_status(url: str | None = None) -> Status:
    """Ask the engine of a URL, or the one that the settings name."""
    async with connect(url) as headway:
        depths = await headway.depths()  # first: where nothing waits, all that follows is final
        collections = [
            CollectionStatus(collection=each.collection, states=await headway.tally(each))
            for each in LIFECYCLES
        ]
        queues = {each.name: each for each in await headway.failed.list()}
        empty = {"status": THREADS.processed, "summary_id": None}
        without_text = await headway.count("threads", empty)
        archives = await headway.find("archives", {"has_duplicates": True}, limit=_ALL)
    return Status(
        collections=collections,
        waiting={each.queue: each.waiting for each in depths.queues if each.waiting},
        failed=[
            FailedStatus(queue=name, letters=queues[name].letters, oldest=queues[name].oldest)
            for name in FAILED_QUEUES
            if name in queues
        ],
        without_text=without_text,
        duplicates=sum(int(each.get("duplicate_count") or 0) for each in archives),
        differing=sum(int(each.get("differing_count") or 0) for each in archives),
    )
