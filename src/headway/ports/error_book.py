"""Where reports of errors are kept for people to read."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from headway.core.error_report import ErrorFilter, ErrorReport, ErrorStats, KeptError


class ErrorBook(Protocol):
    """Keeps the newest reports, and lets go of the oldest. Any thread may call it."""

    def add(self, report: ErrorReport, error_id: str, now: datetime) -> None:
        """Keep a report; when this returns, it is on disk.

        One with an outcome other than `retrying` settles the outcome of earlier reports about the
        same event.
        """
        ...

    def ids(self, which: ErrorFilter, *, limit: int, offset: int) -> tuple[Sequence[str], int]:
        """Give the ids of some reports, newest first, and how many reports match in all.

        A report may be large: get them one by one.
        """
        ...

    def get(self, error_id: str) -> KeptError | None: ...

    def stats(self) -> ErrorStats: ...

    def close(self) -> None: ...
