"""The services of the simulated world: orders, the parcels that follow, and an audit of failures.

What a handler does is decided by the seed and by the name of its work, so that another worker, or
the same after a crash, meets the same trouble.
"""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

from headway import DocumentNotFoundError, Event, RetryConfig, Service, Work
from headway.retrying import FloodRule, OutageRule
from headway.runtime.work import nth_id
from tests.chaos.simulation.process import Process

ORDERS, PARCELS, AUDIT = "orders.order.placed", "shipping.parcel.sent", "audit.order.failed"
RETRIES_NOT_YET = 2
MOST_ATTEMPTS = 1 + RETRIES_NOT_YET + 2
"""Two retries on the schedule for documents that are not there yet, two on the one for faults."""

_MOODS = (
    ["well"] * 9
    + ["fails"] * 3
    + ["is cut off"] * 2
    + ["too early"] * 2
    + ["never"] * 2
    + ["poison"] * 2
    + ["slow"] * 2
    + ["careful"] * 4
)


def follower(key: str, index: int = 0, kind: str = "event") -> str:
    """Name an event that follows a piece of work: the same in every attempt."""
    return nth_id(key, index, kind)


class Script:
    """How every piece of work behaves, and a log of what began; both outlive any process."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.begins: Counter[tuple[str, str, str, int]] = Counter()
        """By queue, operation, generation and number of the attempt."""
        self.raised: set[tuple[str, str, str]] = set()
        """Runs whose handler raised something that no attempt will help."""
        self._deaths: Counter[str] = Counter()
        self._runs: Counter[str] = Counter()
        dice = random.Random(seed)
        self.outage = OutageRule(distinct=dice.choice((2, 5, 5, 1000, 1000)))
        self.flood = FloodRule(at_least=dice.choice((3, 20, 20, 20)))

    async def act(self, process: Process, queue: str, event: Event, work: Work) -> None:
        """Do the work of a handler: write first, then meet the trouble."""
        process.alive()
        generation = work.key.split("/")[2]
        run = (queue, event.event_id, generation)
        self.begins[*run, work.attempt] += 1
        process.tell("begins", f"{event.event_id[:8]}~{generation[:4]} ({work.attempt})")
        dice = random.Random(f"{self._seed}/{work.key}")
        mood, times = dice.choice(_MOODS), dice.randint(1, 4)
        self._write(work, queue, event, careful=mood == "careful")
        if mood == "careful":
            await self._count_carefully(work)
        if mood == "slow":
            await process.wait(timedelta(seconds=dice.random() * 40))
        if mood == "poison" and self._deaths[work.key] < times + 2:
            self._deaths[work.key] += 1
            process.die("poison")
        if mood == "never":
            self.raised.add(run)
            raise ValueError("this order makes no sense")
        # Whoever is parked stays at the same attempt: an outage ends by itself, not by attempts.
        self._runs[work.key] += 1
        if (self._runs[work.key] if mood == "is cut off" else work.attempt) <= times:
            _trouble(mood)

    def _write(self, work: Work, queue: str, event: Event, *, careful: bool) -> None:
        parcels = event.data["parcels"] if queue == ORDERS else 0
        for _ in range(parcels):
            work.publish("ParcelSent", {"order": event.data["order"]})
        work.documents("effects").add(
            {
                "queue": queue,
                "operation": event.event_id,
                "sent": [follower(work.key, index) for index in range(parcels)],
                "careful": careful,
            }
        )
        work.documents("counts").increment(f"{queue}/{event.event_id}", "times")

    async def _count_carefully(self, work: Work) -> None:
        """Read, add one, and write only if nobody else has written meanwhile."""
        (stock,) = await work.documents("stock").require("apples")
        taken = stock["taken"]
        work.documents("stock").update("apples", {"taken": taken + 1}, expect={"taken": taken})


def _trouble(mood: str) -> None:
    match mood:
        case "fails":
            raise RuntimeError("an error that no rule knows")
        case "is cut off":
            raise ConnectionResetError("the warehouse hung up")
        case "too early":
            raise DocumentNotFoundError("orders", ["o"])
        case _:
            pass


def services(process: Process, script: Script) -> list[Service]:
    """Give the services as one process has them."""
    rules: dict[str, Any] = {
        "retry": RetryConfig(max_attempts=RETRIES_NOT_YET),
        "outage": script.outage,
        "flood": script.flood,
    }
    orders = Service("orders", **rules)
    shipping = Service("shipping", **rules)
    audit = Service("audit", **rules)

    @orders.on("OrderPlaced", failed="OrderFailed", dedup="order")
    async def place(event: Event, work: Work) -> None:
        await script.act(process, ORDERS, event, work)

    @shipping.on("ParcelSent")
    async def ship(event: Event, work: Work) -> None:
        await script.act(process, PARCELS, event, work)

    @audit.on("OrderFailed")
    async def take_down(event: Event, work: Work) -> None:
        await script.act(process, AUDIT, event, work)

    return [orders, shipping, audit]
