"""Where reports of errors are kept for people to read."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from headway.core.error_report import ErrorFilter, ErrorReport, ErrorStats, KeptError


class ErrorBook(Protocol):
    """Keeps the newest reports, and lets go of the oldest. Any thread may call it."""

    def add(self, report: ErrorReport, error_id: str, now: datetime) -> None:
        """Keep a report; when this returns, it is on disk."""
        ...

    def find(
        self, which: ErrorFilter, *, limit: int, offset: int
    ) -> tuple[Sequence[KeptError], int]:
        """Give some of the reports, newest first, and how many there are of them in all."""
        ...

    def get(self, error_id: str) -> KeptError | None: ...

    def stats(self) -> ErrorStats: ...

    def close(self) -> None: ...
