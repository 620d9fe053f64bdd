"""What is stuck in a collection, what ended without success, and what a sweep would do about it."""

from bisect import insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headway.core.document import (
    ATTEMPT_COUNT,
    CLAIM_TOKEN,
    LAST_ATTEMPT_TIME,
    LAST_ERROR,
    LEASE_TOKEN,
    count,
    moment,
    past,
)
from headway.core.lifecycle import Lifecycle, State, permanent_failure
from headway.core.prospect import Prospect, prospect
from headway.core.stuck import is_stuck
from headway.core.sweep import GiveUp, Leave, Requeue, SweepRule, Why
from headway.core.writes import ID, Document
from headway.ports.candidates import View, view_of_failed
from headway.ports.engine import Sweeping
from headway.runtime.documents_choosing import PAGE, error_type
from headway.runtime.documents_report import add_kind
from headway.runtime.sweep_events import rebuilt
from headway.runtime.sweep_targets import Target

_NEVER = datetime.min.replace(tzinfo=UTC)

UNFIT = "no event can be made of it"
UNSWEPT = "nobody sweeps it"
MOST_FOREIGN = 10_000
"""So many are counted: each has to be looked at."""
_PAGE = 2_000
"""Where no sweep has made its indexes yet, a page reads all there is; so there are few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One document: where it stands, and what awaits it."""

    document_id: str
    state: State
    attempts: int
    max_attempts: int
    last_attempt: datetime | None
    created: datetime | None = None
    """When it was made, where it says so."""
    prospect: Prospect
    last_error: Any
    permanent: Mapping[str, Any] | None = None
    """By which rule and in which version it failed permanently, if it did."""
    unfit: str = ""
    """Why no event can be made of it; it is due, and a sweep leaves it alone all the same."""
    unswept: bool = False
    """No handler gets what is stuck in its collection."""

    @property
    def sweep(self) -> str:
        """Say in a word what a sweep would do with it now."""
        if self.unfit or self.unswept:
            return "leave"
        match self.prospect.judgement:
            case Requeue():
                return "requeue"
            case GiveUp():
                return "give up"
            case Leave():
                return "leave"

    @property
    def why(self) -> str:
        """Say why it would be left alone; nothing, if it would not be."""
        if self.unswept:
            return UNSWEPT
        if self.unfit:
            return UNFIT
        judgement = self.prospect.judgement
        return judgement.why.value if isinstance(judgement, Leave) else ""


@dataclass(slots=True, kw_only=True)
class StuckReport:
    """What is stuck, given up, and failed permanently: counted, and the first of each."""

    collection: str
    stuck: int = 0
    given_up: int = 0
    permanent: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """What a sweep would do with the stuck: requeue, give up, or why it would leave them."""
    errors: Counter[str] = field(default_factory=Counter)
    """Last errors of the stuck, by type."""
    given_up_errors: Counter[str] = field(default_factory=Counter)
    permanent_errors: Counter[str] = field(default_factory=Counter)
    young: int = 0
    """Never attempted, and too young to be called stuck."""
    foreign: int = 0
    """With a status that is not one of ours, or no documents; counted up to `MOST_FOREIGN`."""
    first_stuck: list[Standing] = field(default_factory=list)
    """The oldest first: by the last attempt, or by when it was made, where there was none."""
    first_given_up: list[Standing] = field(default_factory=list)
    first_permanent: list[Standing] = field(default_factory=list)


async def look(
    sweeping: Sweeping,
    rule: SweepRule,
    now: datetime,
    *,
    limit: int,
    target: Target | None = None,
    unswept: bool = False,
    on_progress: Callable[[int, int], object] | None = None,
) -> StuckReport:
    """Count what is stuck, given up, and failed permanently; name the first, up to a limit.

    Where a target is given, the events of what is due are made as a sweep makes them, and not sent.
    Nothing is made in the store, not even the indexes of a sweep: the name may be a mistake.
    """
    report = StuckReport(collection=rule.collection)
    tally = await sweeping.candidates.tally(rule, now)
    seen = 0
    async for page in _candidates(sweeping, rule, now):
        for document in page:
            standing = replace(_standing(document, rule, now, target), unswept=unswept)
            _take_in(report, standing, document, limit, stuck=is_stuck(document, rule, now))
        seen += len(page)
        if on_progress is not None:
            on_progress(seen, max(seen, tally.stuck + tally.given_up + tally.permanent))
    report.foreign = await _foreign(sweeping, rule.lifecycle)
    return report


async def _foreign(sweeping: Sweeping, lifecycle: Lifecycle) -> int:
    found = 0
    async for page in sweeping.desk.browse(lifecycle, [State.FOREIGN], page=PAGE):
        found += len(page)
        if found >= MOST_FOREIGN:
            return MOST_FOREIGN
    return found


async def _candidates(
    sweeping: Sweeping, rule: SweepRule, now: datetime
) -> AsyncIterator[Sequence[Document]]:
    """Give every document that may be stuck, was given up or failed permanently, once."""
    for view in View:
        scan = sweeping.candidates.scan(rule, view, now, newest_first=False, page=_PAGE)
        async for page in scan:
            yield [each for each in page if _home(each, rule) is view]
    async for page in sweeping.desk.browse(rule.lifecycle, [State.GIVEN_UP], page=PAGE):
        yield page


def _home(document: Mapping[str, Any], rule: SweepRule) -> View | None:
    """Give the one view in which a document is counted, for it may be in several; None: in none."""
    state = rule.lifecycle.state(document)
    if state not in {State.PENDING, State.FAILED}:
        return None
    if state is State.FAILED:
        return view_of_failed(document, rule)
    if document.get(CLAIM_TOKEN) is not None:
        return View.CLAIM_OVER
    return View.UNMOVED if document.get(LEASE_TOKEN) is None else View.LEASE_OVER


def _standing(
    document: Document, rule: SweepRule, now: datetime, target: Target | None
) -> Standing:
    ahead = prospect(document, rule, now)
    return Standing(
        document_id=str(document[ID]),
        state=rule.lifecycle.state(document),
        attempts=count(document, ATTEMPT_COUNT),
        max_attempts=rule.lifecycle.most_attempts,
        last_attempt=moment(document.get(LAST_ATTEMPT_TIME)),
        created=past(document.get(rule.lifecycle.created), now),
        prospect=ahead,
        last_error=document.get(LAST_ERROR),
        permanent=permanent_failure(document),
        unfit=_unfit(document, ahead, target, now),
    )


def _unfit(document: Document, ahead: Prospect, target: Target | None, now: datetime) -> str:
    if target is None or not isinstance(ahead.judgement, Requeue):
        return ""
    try:
        rebuilt(target, document, ahead.judgement, now)
    except BaseException as error:  # noqa: BLE001 (code and types of the user's own)
        return type(error).__name__
    return ""


def _take_in(
    report: StuckReport, standing: Standing, document: Document, limit: int, *, stuck: bool
) -> None:
    if standing.state is State.GIVEN_UP:
        report.given_up += 1
        add_kind(report.given_up_errors, error_type(document))
        listed = report.first_given_up
    elif standing.prospect.judgement == Leave(Why.PERMANENT):
        report.permanent += 1
        add_kind(report.permanent_errors, error_type(document))
        listed = report.first_permanent
    elif not stuck:
        report.young += standing.prospect.judgement == Leave(Why.YOUNG)
        return
    else:
        report.stuck += 1
        report.reasons[standing.why or standing.sweep] += 1
        add_kind(report.errors, error_type(document))
        listed = report.first_stuck
    insort(listed, standing, key=_age)
    del listed[limit:]


def _age(standing: Standing) -> datetime:
    return standing.last_attempt or standing.created or _NEVER
