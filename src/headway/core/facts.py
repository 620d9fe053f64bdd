"""What the runtime announces: facts, told after they are settled.

Logs, metrics and tests are all made from the same facts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from headway.core.action import Reason
from headway.core.failure import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """An attempt failed and another one follows after `delay`."""

    call: str
    failure: Failure
    max_attempts: int
    delay: timedelta
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The call succeeded after at least one attempt had failed."""

    call: str
    attempts: int
    elapsed: timedelta
    """From the first failure to the success."""
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp:
    """The call failed for good; its last exception goes to the caller."""

    call: str
    failure: Failure
    max_attempts: int
    reason: Reason
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResolved:
    """A connection was lost during COMMIT, and the database has been asked what became of it."""

    call: str
    operation_id: str
    committed: bool | None
    """None: nobody could be asked, or the caller was cancelled; it stays unknown."""
    context: Mapping[str, str] = field(default_factory=dict)


Fact = RetryScheduled | Recovered | GaveUp | CommitResolved
