"""One event on its way through its attempts: what it met so far, and what follows."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headway.core.action import DeadLetter, Reason, RetryLater
from headway.core.facts import (
    DeadLettered,
    EventRecovered,
    EventRetryScheduled,
    GaveUp,
    Processed,
)
from headway.core.failure import Diagnosis, Failure, Verdict, note, words
from headway.core.letter import Letter, write_letter
from headway.core.policy import RetryPolicy, decide
from headway.core.routing import failed_queue_name, queue_name
from headway.core.secrets import hidden
from headway.core.showing import function_name, shown
from headway.core.traces import trace
from headway.core.travel import Travel, record
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.observer import Observer
from headway.ports.reporter import FINAL, OUTCOME, ErrorReporter
from headway.runtime.intake import Intake, headers_of

_LONGEST_ERROR = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """The attempt failed, and another one should follow: keep the event until `due`.

    Store `body` where it waits, with `headers` beside it, and then acknowledge the delivery. When
    it comes again, pass the headers as `travel`.
    """

    due: datetime
    delay: timedelta
    travel: Travel
    body: bytes
    """The event as it came, as JSON: your handler may have changed an object that you passed."""

    @property
    def headers(self) -> dict[str, str]:
        """Give the attempts so far as headers of a message."""
        return headers_of(self.travel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The event ended as a letter, and the letter is stored: acknowledge the delivery."""

    reason: Reason
    letter: Letter


Decision = Delayed | Abandoned
ToDlq = Callable[[Letter], object]
ToPark = Callable[[Delayed], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """Everything that handling an event needs besides the event."""

    service: str
    not_yet: RetryPolicy
    transient: RetryPolicy
    classify: Callable[[BaseException], Diagnosis]
    clock: Clock
    chance: Chance
    observer: Observer
    worker: str = ""
    dlq: ToDlq | None = None
    park: ToPark | None = None
    reporter: ErrorReporter | None = None


class Case:
    """One event on its way through its attempts: what is so far, and what will be told next."""

    def __init__(self, plan: Handling, intake: Intake, handler: Callable[..., Any]) -> None:
        self._plan = plan
        self._handler = handler
        self._intake = intake
        self._travel = intake.travel
        self._began = plan.clock.now()
        self._given = False
        self._fact: EventRetryScheduled | DeadLettered | None = None

    def begin(self) -> Any:
        """Begin an attempt; give the handler's argument, or raise why there is none."""
        self._began = self._plan.clock.now()
        self._travel = self._travel.resumed(self._began)
        if self._intake.malformed is not None:
            raise self._intake.malformed
        if self._given:
            return self._intake.again()
        self._given = True
        return self._intake.given

    def succeeded(self) -> None:
        plan, intake, now = self._plan, self._intake, self._plan.clock.now()
        taken = (now - self._began).total_seconds()
        plan.observer.tell(
            Processed(service=plan.service, event_type=intake.event_type, seconds=(taken,))
        )
        if self._travel.failures:
            plan.observer.tell(
                EventRecovered(
                    service=plan.service,
                    event_type=intake.event_type,
                    idempotency_key=intake.key,
                    retries=self._travel.failures,
                    elapsed=now - self._first_seen,
                    handler=function_name(self._handler),
                )
            )

    def failed(self, error: Exception) -> Decision | None:
        """Classify and decide. None: it is over, and nobody was given to keep a letter."""
        plan, now = self._plan, self._plan.clock.now()
        diagnosis = plan.classify(error)
        failure = Failure(attempt=self._travel.attempt, at=now, error=error, diagnosis=diagnosis)
        policy = plan.not_yet if diagnosis.verdict is Verdict.NOT_YET else plan.transient
        if error is self._intake.malformed:
            return self._dead(Reason.MALFORMED, failure, policy, now)
        first_seen = self._first_seen
        history = self._travel.history_for(diagnosis.verdict, first_seen=first_seen)
        action = decide(policy, history, diagnosis, now=now, draw=plan.chance.draw())
        taken_down = record(failure, worker=plan.worker, traceback=trace(error))
        self._travel = self._travel.failed(taken_down, first_seen=first_seen)
        match action:
            case DeadLetter(reason=reason):
                return self._dead(reason, failure, policy, now)
            case RetryLater(due=due, delay=delay):
                self._fact = EventRetryScheduled(
                    service=plan.service,
                    event_type=self._intake.event_type,
                    idempotency_key=self._intake.key,
                    failure=failure,
                    retry=history.attempts,
                    max_retries=policy.max_attempts - 1,
                    delay=delay,
                    age=now - first_seen - self._travel.parked,
                    ttl=policy.ttl,
                    handler=function_name(self._handler),
                )
                return Delayed(due=due, delay=delay, travel=self._travel, body=self._intake.body)
            case parked:
                raise AssertionError(f"nobody here says that a dependency is down: {parked!r}")

    def tell(self, error: Exception) -> None:
        """Say what has become of the failure, now that it is true."""
        if self._fact is not None:
            self._plan.observer.tell(self._fact)
        if isinstance(self._fact, DeadLettered):
            self._report(error, self._fact.reason)
        self._fact = None  # it holds the exception, with all that its frames hold

    @contextmanager
    def until_kept(self) -> Iterator[None]:
        """Say on an error that the event is kept nowhere else."""
        try:
            yield
        except Exception as error:
            note(
                error,
                f"the event {shown(self._intake.key)} could not be put away: do not acknowledge "
                "it, so that it comes again",
            )
            raise

    @property
    def _first_seen(self) -> datetime:
        return self._travel.first_seen or self._began

    def _dead(
        self, reason: Reason, failure: Failure, policy: RetryPolicy, now: datetime
    ) -> Abandoned | None:
        if self._plan.dlq is None:
            self._gave_up(reason, failure, policy)
            return None
        letter = self._letter(reason, failure.error, now)
        self._fact = DeadLettered(
            service=letter.service_name,
            event_type=letter.event_type,
            idempotency_key=letter.idempotency_key,
            letter_id=letter.letter_id,
            failed_queue=failed_queue_name(letter.service_name),
            reason=reason,
            attempts=self._travel.failures,
            error_type=letter.error_type,
            last_error=letter.last_error,
            elapsed=now - self._first_seen,
            failure=None if reason is Reason.MALFORMED else failure,
            handler="" if reason is Reason.MALFORMED else function_name(self._handler),
        )
        return Abandoned(reason=reason, letter=letter)

    def _letter(self, reason: Reason, error: BaseException, now: datetime) -> Letter:
        intake, error_type = self._intake, type(error).__name__
        service, event_type = self._plan.service, intake.event_type
        return write_letter(
            intake.body,
            queue=queue_name(service, event_type) if event_type else service,
            travel=self._travel,
            idempotency_key=intake.key,
            service=service,
            event_type=event_type,
            reason=reason,
            last_error=hidden(f"{error_type}: {words(error)}")[:_LONGEST_ERROR],
            error_type=error_type,
            now=now,
        )

    def _gave_up(self, reason: Reason, failure: Failure, policy: RetryPolicy) -> None:
        plan, intake = self._plan, self._intake
        plan.observer.tell(
            GaveUp(
                call=plan.service,
                failure=failure,
                max_attempts=policy.max_attempts,
                reason=reason,
                context={
                    "service": plan.service,
                    "event_type": shown(intake.event_type),
                    "idempotency_key": shown(intake.key),
                    "handler": function_name(self._handler),
                },
            )
        )
        note(
            failure.error,
            f"headway gave up the event {shown(intake.key)} at attempt {failure.attempt} "
            f"({reason}): {failure.diagnosis.because}; no letter was kept, because no dlq= was "
            "given",
        )
        self._report(failure.error, reason)

    def _report(self, error: BaseException, reason: Reason) -> None:
        if self._plan.reporter is None:
            return
        context = {
            "service": self._plan.service,
            "event_type": self._intake.event_type,
            "idempotency_key": self._intake.key,
            "retry_count": max(self._travel.failures - 1, 0),
            "reason": str(reason),
            OUTCOME: FINAL,
            "event": self._intake.again() if self._given else self._intake.given,
        }
        try:
            self._plan.reporter.report(error, context)
        except Exception:  # what becomes of the event is settled already
            logging.getLogger("headway").exception("reporter %r failed", self._plan.reporter)
