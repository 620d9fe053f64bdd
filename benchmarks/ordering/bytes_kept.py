"""What a key and a held result take in the server's memory."""

from benchmarks.measure import Table
from benchmarks.ordering.by_headway import AT_ONCE, Ordered
from benchmarks.ordering.results import Monitors

_MORE = 3
"""Held behind the first, as many as a gap of three minutes lets come with a check each minute."""


def memory_of(url: str, keys: int) -> Table:
    """Fill idle keys, hold one result of each, then three more; then let what was missing come."""
    ordered = Ordered(url, Monitors(keys))
    monitors = ordered.monitors
    try:
        # The script and the first buffers are not the keys'.
        ordered.in_turn(monitors.next(1), AT_ONCE)
        start = _used(ordered)
        ordered.in_turn(monitors.next(keys - 1), AT_ONCE)
        idle = _used(ordered)
        alone = ordered.size_of(monitors.keys[0])[0]
        # All keys have had as many, so the next turn begins with the first.
        monitors.skip()
        ordered.hold(monitors.next(keys))
        one = _used(ordered)
        state, backlog = ordered.size_of(monitors.keys[0])
        ordered.hold(monitors.next(_MORE * keys))
        more = _used(ordered)
        missing = monitors.skipped(1 + _MORE)
        ordered.drain(missing, behind=1 + _MORE)
        ordered.check()
    finally:
        ordered.close()
    table = Table(f"Ordering, bytes in Redis, {keys:,} keys", "", "")
    payload = len(missing[0].payload)
    each = (idle - start) / (keys - 1)
    table.notes.append(f"an idle key: {each:.0f}, tables included (MEMORY USAGE {alone})")
    told = f"(MEMORY USAGE: state {state}, backlog {backlog})"
    table.notes.append(f"the first held result, itself {payload}: {(one - idle) / keys:.0f} {told}")
    table.notes.append(f"each further one: {(more - one) / keys / _MORE:.0f}")
    return table


def _used(ordered: Ordered) -> int:
    """Give the bytes that the server has allocated, without what passes through it."""
    info = ordered.client_call("info", "memory")
    passing = ("mem_aof_buffer", "mem_clients_normal")
    return int(info["used_memory"]) - sum(int(info[name]) for name in passing)
