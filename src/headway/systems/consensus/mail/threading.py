"""Which messages belong together: by what they refer to, or else by subject.

A thread is named by the id of the message that began it. So the same thread has the same name in
every archive that holds a part of it, and in any order of reading.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headway.systems.consensus.mail.fields import base_subject

_SHORTEST_SUBJECT = 4


@dataclass(frozen=True, slots=True)
class Link:
    """What is known of a message's place among others."""

    message_id: str
    refers_to: Sequence[str]
    """Ids of earlier messages of the thread, the oldest first."""
    subject: str


def find_roots(links: Sequence[Link]) -> list[str]:
    """Give for each message the id of the one that began its thread. Rings of references end."""
    parents = _parents(links)
    _join_by_subject(links, parents)
    known: dict[str, str] = {}
    return [_root(link.message_id, parents, known) for link in links]


def _parents(links: Iterable[Link]) -> dict[str, str]:
    """Give the message that each one answers, as far as anybody says so."""
    links = list(links)
    present = {link.message_id for link in links}
    parents: dict[str, str] = {}
    for link in links:
        if link.refers_to and link.refers_to[-1] != link.message_id:
            parents.setdefault(link.message_id, link.refers_to[-1])
    for link in links:
        for older, newer in pairwise(link.refers_to):
            # A message that is here speaks for itself; of others, its answers tell.
            if newer not in present and newer != older:
                parents.setdefault(newer, older)
    return parents


def _join_by_subject(links: Iterable[Link], parents: dict[str, str]) -> None:
    """Let replies that refer to nothing follow the message before them with their subject."""
    first: dict[str, str] = {}
    latest: dict[str, str] = {}
    orphans: list[tuple[str, str, str | None]] = []
    for link in links:
        if link.message_id in parents:
            continue
        base, is_reply = base_subject(link.subject)
        if len(base) < _SHORTEST_SUBJECT:
            continue
        if is_reply:
            orphans.append((link.message_id, base, latest.get(base)))
        else:
            latest[base] = link.message_id
            first.setdefault(base, link.message_id)
    for message_id, base, before in orphans:
        # If none came before, one that comes later, for archives are seldom in order; or else the
        # first of the replies.
        beginning = before or first.setdefault(base, message_id)
        if beginning != message_id:
            parents.setdefault(message_id, beginning)


def _root(message_id: str, parents: dict[str, str], known: dict[str, str]) -> str:
    way: list[str] = []
    on_the_way: set[str] = set()
    at = message_id
    while at not in known and at not in on_the_way and at in parents:
        way.append(at)
        on_the_way.add(at)
        at = parents[at]
    # In a ring nobody was first: the least id is taken, from wherever one comes in.
    root = known.get(at) or (min(way[way.index(at) :]) if at in on_the_way else at)
    for each in way:
        known[each] = root
    return root
