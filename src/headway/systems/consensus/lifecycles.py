"""How the documents of each collection say where they are.

A lease of a minute lets a sweep take over the work of a worker that died, without waiting a day.
"""

from datetime import timedelta

from headway import Lifecycle

_LEASE = timedelta(minutes=1)

ARCHIVES = Lifecycle("archives", lease=_LEASE)
SLICES = Lifecycle("slices", lease=_LEASE)
"""Parts of an archive, each small enough for one commit."""
MESSAGES = Lifecycle("messages", lease=_LEASE)
CHUNKS = Lifecycle("chunks", flag="embedding_generated", lease=_LEASE)
THREADS = Lifecycle("threads", lease=_LEASE)

SUMMARIES = Lifecycle("summaries", lease=_LEASE)
"""Processed when the page is made; one that is not the thread's any more needs none."""

LIFECYCLES = (ARCHIVES, SLICES, MESSAGES, CHUNKS, THREADS, SUMMARIES)
