"""Whether so many leases are over at once that it must be the heartbeats, and not the workers.

A store that was slow, or cut off from the workers, lets leases end on documents that are in good
hands. To send them again would run everything twice. So when more than half of all leases ended
since the last run should have been, they are left alone this time. Workers that live renew them
until the next run; what is over then has been over for long, and is rescued.
"""

from datetime import datetime

from headway.core.sweep_facts import LeasesDoubted
from headway.ports.candidates import View
from headway.ports.engine import Sweeping
from headway.runtime.sweep_pages import PAGE, ended_since
from headway.runtime.sweep_targets import Target

BELIEVED = 100
"""So many may always be over: a few workers did die."""


async def doubt(
    target: Target, sweeping: Sweeping, now: datetime, since: datetime
) -> LeasesDoubted | None:
    """Say if leases that ended after `since` are not to be believed."""
    if target.rule.lifecycle.lease is None:
        return None
    over = 0
    pages = sweeping.candidates.scan(
        target.rule, View.LEASE_OVER, now, newest_first=True, page=PAGE
    )
    async for documents in pages:
        over += sum(ended_since(each, since) for each in documents)
    if over <= BELIEVED:
        return None
    leased = await sweeping.candidates.leased(target.rule, now, at_most=over)
    if leased >= over:
        return None
    return LeasesDoubted(collection=target.collection, over=over, leased=leased)
