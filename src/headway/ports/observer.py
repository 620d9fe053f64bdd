"""Who is told what happened."""

from typing import Protocol

from headway.core.facts import Fact


class Observer(Protocol):
    """Hears facts. It must be quick, and it must not raise: the work goes on either way."""

    def tell(self, fact: Fact) -> None: ...
