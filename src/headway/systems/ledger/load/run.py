"""One run of load from its preparation to its figures."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headway.systems.ledger.load.plan import LoadPlan
from headway.systems.ledger.load.proof import faults
from headway.systems.ledger.load.sending import Delivery, Senders

_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the senders saw, what the server counted, and what does not agree."""

    sent: int
    stored: int
    stored_at_once: int
    """Of those, at the first send."""
    statuses: dict[int, int]
    conflicts: int
    """Attempts that lost against another transaction, by the server's own count."""
    retries: int
    """Attempts that the server made after a failed one."""
    p50_ms: float
    p99_ms: float
    seconds: float
    faults: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not self.faults

    @property
    def success_rate(self) -> float:
        return self.stored / self.sent

    @property
    def at_once_rate(self) -> float:
        return self.stored_at_once / self.sent

    def as_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {
            "success_rate": round(self.success_rate, 4),
            "at_once_rate": round(self.at_once_rate, 4),
            "exact": self.exact,
        }


async def run_load(
    url: str,
    plan: LoadPlan,
    *,
    clients: int,
    honour_retry_after: bool = False,
    on_answer: Callable[[], None] = lambda: None,
) -> Report:
    """Send a plan to the ledger at `url` and prove the books afterwards."""
    # Idle connections are given up before the server does so, after five seconds: a request on one
    # that is just being closed gets no answer, and nobody knows what became of it.
    limits = httpx.Limits(
        max_connections=clients, max_keepalive_connections=clients, keepalive_expiry=2
    )
    async with httpx.AsyncClient(base_url=url, timeout=_SECONDS, limits=limits) as http:
        try:
            await http.get("/health")
        except httpx.TransportError as error:
            raise ConnectionError(
                f"no ledger answers at {url}: start one with 'headway ledger serve', "
                "or name its address with --url"
            ) from error
        prepared = await Senders(http=http, clients=1, honour_retry_after=True).send_all(
            plan.prepare
        )
        before = await _counted(http)
        began = time.perf_counter()
        deliveries = await Senders(
            http=http, clients=clients, honour_retry_after=honour_retry_after
        ).send_all(plan.events, on_answer)
        seconds = time.perf_counter() - began
        counted = await _counted(http) - before
        found = await faults(http, plan.name, [*prepared, *deliveries])
    return _report(deliveries, counted, seconds, found)


def _report(
    deliveries: Sequence[Delivery], counted: Counter[str], seconds: float, found: tuple[str, ...]
) -> Report:
    stored = [delivery for delivery in deliveries if delivery.stored]
    latencies = sorted(delivery.seconds * 1000 for delivery in deliveries)
    return Report(
        sent=len(deliveries),
        stored=len(stored),
        stored_at_once=sum(delivery.sends == 1 for delivery in stored),
        statuses=dict(Counter(delivery.status for delivery in deliveries)),
        conflicts=counted["conflicts"],
        retries=counted["retries"],
        p50_ms=_percentile(latencies, 0.50),
        p99_ms=_percentile(latencies, 0.99),
        seconds=round(seconds, 2),
        faults=found,
    )


def _percentile(ordered: Sequence[float], part: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 1)


async def _counted(http: httpx.AsyncClient) -> Counter[str]:
    """Read the server's own counters of failed attempts and of retries."""
    answer = await http.get("/metrics")
    counted: Counter[str] = Counter()
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            conflict = sample.labels.get("error_type") == "OC000_TRANSACTION_CONFLICT"
            if sample.name == "headway_retries_total":
                counted["retries"] += int(sample.value)
                counted["conflicts"] += int(sample.value) * conflict
            elif sample.name == "headway_gave_up_total":
                counted["conflicts"] += int(sample.value) * conflict
    return counted
