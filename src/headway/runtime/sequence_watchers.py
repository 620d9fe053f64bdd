"""Tell several watchers of sequences, and let none of them disturb the work."""

import logging

from headway.core.sequence_facts import SequenceFact
from headway.ports.resequencing import SequenceWatcher


class SequenceWatchers:
    """Passes every fact on to each; one that raises is reported, and the rest still hear."""

    def __init__(self, *watchers: SequenceWatcher) -> None:
        self._watchers = watchers

    def tell(self, fact: SequenceFact) -> None:
        for watcher in self._watchers:
            try:
                watcher.tell(fact)
            except Exception:  # whoever watches must not decide over the work that is watched
                logging.getLogger("headway").exception("watcher %r failed", watcher)
