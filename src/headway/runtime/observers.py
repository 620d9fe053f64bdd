"""Tell several observers, and let none of them disturb the work."""

import logging

from headway.core.facts import Fact
from headway.ports.observer import Observer


class Observers:
    """Passes every fact on to each; one that raises is reported, and the rest still hear."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def tell(self, fact: Fact) -> None:
        for observer in self._observers:
            try:
                observer.tell(fact)
            except Exception:  # whoever watches must not decide over the work that is watched
                logging.getLogger("headway").exception("observer %r failed", observer)
