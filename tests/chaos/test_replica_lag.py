"""Events arrive before their documents are visible, because a replica lags behind."""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pymongo import MongoClient

from headway.testing.servers import MongoReplicaSet, RabbitMQ
from tests.chaos.broker import BrokerSite

LAG = timedelta(seconds=2)
PAGES = 200
_RECOVERED = re.compile(
    r"Event processed successfully after (\d+) retry attempts \(total latency: ([\d.]+)s\)"
)


@dataclass(frozen=True)
class LaggingSite(BrokerSite):
    """Documents in a replica set; the handler reads from the member that is late."""

    store: str = ""
    laggard: str = ""

    @property
    def environment(self) -> dict[str, str]:
        more = {"HEADWAY_STORE": self.store, "LAGGARD": self.laggard}
        return {**super().environment, **more}


@pytest.mark.chaos
@pytest.mark.timeout(300)
async def test_a_replica_that_is_two_seconds_behind_makes_no_letter(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with RabbitMQ() as broker, MongoReplicaSet(LAG) as replicas, ExitStack() as stack:
        url = replicas.create_database()
        site = LaggingSite(
            tmp_path,
            broker=broker.create_vhost(),
            store=url,
            laggard=replicas.from_the_laggard(url),
        )
        client: MongoClient[dict[str, Any]] = MongoClient(url)
        stack.enter_context(client)
        database = client.get_default_database()
        with site.running("lagging:lagging", "--concurrency", "20"):
            site.wait(lambda: "Running lagging" in site.log(), "the service has started")
            names = [f"page-{number}" for number in range(PAGES)]
            async with site.publishing() as publish:
                for name in names:
                    database["pages"].insert_many([{"_id": name}, {"_id": f"{name}-verso"}])
                    await publish("PageCame", [(name, {"page": name})])
            site.wait(
                lambda: database["read"].count_documents({}) >= PAGES, "every page was read", 120
            )
        read = Counter(each["page"] for each in database["read"].find())
        assert set(read) == set(names)
        assert set(read.values()) == {1}
        assert site.letters("lagging.failed") == []

        lost = [(int(n), float(seconds)) for n, seconds in _RECOVERED.findall(site.log())]
        # Whoever was not slower than the replica had to wait, and says what that cost.
        assert len(lost) >= 0.9 * PAGES
        record_property(
            "shown",
            f"{len(lost)} of {PAGES} events came before their documents were visible, on a replica "
            f"{LAG.total_seconds():g} s behind: no letter, "
            f"{median(n for n, _ in lost):g} retries and {median(s for _, s in lost):.2f} s lost "
            f"(median; at most {max(n for n, _ in lost)} and {max(s for _, s in lost):.2f} s)",
        )
