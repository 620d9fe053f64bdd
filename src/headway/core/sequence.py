"""The results of each key in their order: what becomes of one that comes, and of a gap.

A pure machine for one key. One position at a time is in flight, under a token and a lease; what
comes meanwhile, or too early, is held. Completing a position moves the marker and hands out the
next one: the arrival of what is missing drains the key. Time only decides when to stop waiting,
and only for a true gap: never for a position that somebody is at.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec.structs import replace

from headway.core.sequence_answers import (
    Completed,
    Completion,
    Look,
    Looked,
    Offer,
    Offered,
    Outcome,
    Turn,
)
from headway.core.sequence_settings import OnGap, OnLate, SequenceSettings
from headway.core.sequence_state import Flight, Gap, Held, Jump, KeyState, Why
from headway.core.sequence_waiting import attempts_of, look_in


@dataclass(frozen=True, slots=True)
class Sequencer:
    """Decides for one key at a time; every method gives the state that follows and the answer."""

    settings: SequenceSettings = field(default_factory=SequenceSettings)

    def offer(self, state: KeyState, offer: Offer, now: datetime) -> tuple[KeyState, Offered]:
        """Take a result: to be processed now, held, or known already."""
        before = state.count
        state = self._begun(state, offer, now)
        stale = before - state.count
        state, answer = self._repeated(state, offer, now) or self._taken(state, offer, now)
        return state, replace(answer, stale=stale) if stale else answer

    def complete(
        self, state: KeyState, done: Completion, now: datetime
    ) -> tuple[KeyState, Completed]:
        """Take note that work was applied, and hand out what comes next."""
        flight, before = state.flight, state.count
        if flight is None or flight.token != done.token:
            return state, Completed(accepted=False, held=before)
        if flight.position != done.position:  # said before, and answered with other work
            state = self._in_flight(state, flight.position, flight.token, now)
            wait = look_in(state, self.settings, now)
            work = self._handed(state, done.key)
            return state, Completed(
                accepted=True, released=True, work=work, held=before, look_in=wait
            )
        item = state.find(done.position)
        gap = item and state.gap_before(item, fill=True)
        state = replace(state.without(done.position), flight=None)
        if state.is_applied(done.position):
            state = state.retracted(done.position)
        else:
            if gap:
                state = self._remembering(state, gap, now)
            state = state.moved_to(done.position, now)
        stale = before - state.count - (item is not None)
        cleared = before > 0 and not state.held
        state, work = self._hand_out(state, done.key, done.token, now)
        return state, Completed(
            accepted=True,
            released=item is not None,
            work=work,
            held=state.count,
            cleared=cleared,
            stale=stale,
            look_in=look_in(state, self.settings, now),
        )

    def expire(self, state: KeyState, look: Look, now: datetime) -> tuple[KeyState, Looked]:
        """Look at a key: take over what nobody is at any more, and give up what took too long."""
        if not state.held:
            lapsed = state.flight is not None and not state.is_live(now)
            return (replace(state, flight=None) if lapsed else state), Looked()
        if state.flight is not None and state.flight.token == look.token:  # its answer was lost
            state = self._in_flight(state, state.flight.position, look.token, now)
            wait = look_in(state, self.settings, now)
            return state, Looked(self._handed(state, look.key), state.count, look_in=wait)
        state, work, given_up = self._proceed(state, look, now)
        attempt = attempts_of(state, self.settings, now)
        if work is None and given_up is None:
            jump = self._out_of_time(state, look.caught_up, now)
            if jump is not None:
                given_up = jump.why
                state, work = self._give_up(state, jump, look, now)
        wait = look_in(state, self.settings, now)
        return state, Looked(work, state.count, given_up, attempt, wait)

    def give_back(
        self, state: KeyState, offer: Offer, now: datetime, delay: timedelta | None = None
    ) -> tuple[KeyState, timedelta | None]:
        """Take back work that could not be applied; it is held, and handed out after a delay.

        Gives the time until somebody should look, or None if it was not the caller's any more.
        Without a delay of its own it waits as the schedule says, longer at each attempt.
        """
        flight = state.flight
        if flight is None or (flight.token, flight.position) != (offer.token, offer.position):
            return state, None
        item = state.find(offer.position)
        if item is None:
            item = Held(offer.position, offer.step, offer.begins, now, attempts=1)
            if not state.is_applied(offer.position) or self._is_late(state, offer.position, now):
                state = state.with_held(item)
        if delay is None:
            schedule = self.settings.schedule
            delay = schedule[min(max(item.attempts, 1), len(schedule)) - 1]
        state = replace(state, flight=None, paused_until=now + delay)
        return state, look_in(state, self.settings, now) or timedelta()

    def renew(self, state: KeyState, done: Completion, now: datetime) -> tuple[KeyState, bool]:
        """Prolong the lease of work; False: it was not the caller's any more."""
        flight = state.flight
        if flight is None or (flight.token, flight.position) != (done.token, done.position):
            return state, False
        return self._in_flight(state, flight.position, flight.token, now), True

    def drain(self, state: KeyState) -> KeyState:
        """Give up all gaps of a key, because a person said so; the next look hands out."""
        if not state.held:
            return state
        jump = Jump(state.held[-1].position, Why.OPERATOR)
        return replace(state, jump=jump, parked=False, paused_until=None)

    def _begun(self, state: KeyState, offer: Offer, now: datetime) -> KeyState:
        """Give the state with a marker: what the caller says, or all before the first offer."""
        if offer.applied is not None:
            return state.moved_to(offer.applied, now)
        if state.marker is None:
            return replace(state, marker=offer.position - offer.step)
        return state

    def _repeated(
        self, state: KeyState, offer: Offer, now: datetime
    ) -> tuple[KeyState, Offered] | None:
        """Answer an offer whose first answer was lost: its token has work already."""
        flight = state.flight
        if flight is None or flight.token != offer.token:
            return None
        known, held = state.find(offer.position), state.find(flight.position)
        state = self._in_flight(state, flight.position, flight.token, now)
        wait = look_in(state, self.settings, now)
        if held is not None and (known is not None or state.is_applied(offer.position)):
            outcome = Outcome.HELD if known is not None else Outcome.DUPLICATE
            work = self._handed(state, offer.key)
            again = known is not None
            return state, Offered(outcome, work, state.count, again, look_in=wait)
        if flight.position == offer.position:
            late = self._is_late(state, offer.position, now)
            return state, _process(state, offer, wait, late=late)
        return None

    def _taken(self, state: KeyState, offer: Offer, now: datetime) -> tuple[KeyState, Offered]:
        """Answer an offer that is new."""
        known = state.find(offer.position) is not None
        late = self._is_late(state, offer.position, now)
        stale = state.is_applied(offer.position) and not late
        if not (known or stale):
            if not state.is_live(now) and self._comes_first(state, offer, late=late):
                state = self._in_flight(state, offer.position, offer.token, now)
                wait = look_in(state, self.settings, now)
                return state, _process(state, offer, wait, late=late)
            state = state.with_held(Held(offer.position, offer.step, offer.begins, now))
        state, work, given_up = self._proceed(state, offer, now)
        return state, Offered(
            Outcome.DUPLICATE if stale else Outcome.HELD,
            work,
            state.count,
            known,
            given_up,
            look_in(state, self.settings, now),
        )

    def _comes_first(self, state: KeyState, offer: Offer, *, late: bool) -> bool:
        """Say whether it is the turn of what was just offered, with nothing held before it."""
        if state.held and state.held[0].position < offer.position:
            return False
        if late:
            return True
        missing = state.missing_before(offer.position, offer.step, offer.begins)
        return not missing and state.unfinished() is None

    def _proceed(
        self, state: KeyState, asked: Offer | Look, now: datetime
    ) -> tuple[KeyState, Turn | None, Why | None]:
        """Hand out what is ready, or end the wait where too much is held behind a gap."""
        state, work = self._hand_out(state, asked.key, asked.token, now)
        if work is None and self._trips(state, asked.caught_up, now):
            jump = Jump(self._breaks_to(state, asked.caught_up), Why.BREAKER)
            state, work = self._give_up(state, jump, asked, now)
            return state, work, jump.why
        return state, work, None

    def _hand_out(
        self, state: KeyState, key: str, token: str, now: datetime
    ) -> tuple[KeyState, Turn | None]:
        """Give the first held result to a token, if it is its turn and nobody is at the key."""
        if not state.held or state.is_live(now):
            return state, None
        head = state.head()
        if not state.is_ready(head):
            if state.gap_since is None:
                lapsed = state.flight.until if state.flight is not None else now
                state = replace(state, gap_since=lapsed)
            return state, None
        if state.paused_until is not None and now < state.paused_until:
            return state, None
        state = state.with_held(replace(head, attempts=head.attempts + 1))
        state = replace(state, paused_until=None)
        state = self._in_flight(state, head.position, token, now)
        gap = state.gap_before(head, fill=True)
        if gap:
            state = self._remembering(state, gap, now)  # now: whoever gets it may die over it
        return state, self._handed(state, key)

    def _handed(self, state: KeyState, key: str) -> Turn | None:
        """Give the held result that is in flight as work, without what is in it."""
        flight = state.flight
        item = state.find(flight.position) if flight is not None else None
        if flight is None or item is None:
            return None
        late = state.is_applied(item.position)
        gap = state.gap_before(item, fill=self.settings.on_gap is not OnGap.SKIP)
        token = flight.token
        return Turn(key, item.position, b"", token, item.attempts, held=True, late=late, gap=gap)

    def _remembering(self, state: KeyState, gap: Gap, now: datetime) -> KeyState:
        """Remember what is given up; where nothing is taken back, only until it is applied."""
        keeps = self.settings.on_late is OnLate.RETRACT
        return state.remembering(gap, now, now + self.settings.remember if keeps else now)

    def _in_flight(self, state: KeyState, position: int, token: str, now: datetime) -> KeyState:
        return replace(state, flight=Flight(position, token, now + self.settings.lease))

    def _is_late(self, state: KeyState, position: int, now: datetime) -> bool:
        return state.is_applied(position) and state.is_late(position, now)

    def _trips(self, state: KeyState, caught_up: datetime | None, now: datetime) -> bool:
        """Say whether so much is held behind a true gap that waiting must end."""
        held, settings = state.count, self.settings
        if held < settings.breaker or state.is_live(now) or state.parked:
            return False
        if state.gap_since is None or state.is_ready(state.head()):
            return False
        if held >= settings.breaker_at_most:
            return True
        # A result that the source still has, or delivers again, is no gap.
        return not state.was_started(now) and (caught_up is None or caught_up >= state.gap_since)

    def _breaks_to(self, state: KeyState, caught_up: datetime | None) -> int:
        """Say up to where the breaker gives gaps up: before one that the source may still fill."""
        if caught_up is None or state.count >= self.settings.breaker_at_most:
            return state.held[-1].position
        first, *others = state.every()
        to = first.position
        for held in others:
            before = replace(state, marker=to)
            missing = before.missing_before(held.position, held.step, held.begins)
            if missing and held.since > caught_up:
                break
            to = held.position
        return to

    def _out_of_time(
        self, state: KeyState, caught_up: datetime | None, now: datetime
    ) -> Jump | None:
        """Say which gaps are given up because of their age, or that of what is behind them."""
        if state.is_live(now) or state.parked or state.is_ready(state.head()):
            return None
        limit = self.settings.hold_at_most
        old = [held.position for held in state.every() if now - held.since >= limit]
        if old:
            return Jump(old[-1], Why.TOO_OLD)
        since = state.gap_since or now
        reached = now if caught_up is None else min(caught_up, now)
        over = not state.was_started(now) and reached - since >= self.settings.give_up_after
        if over or now - since >= self.settings.gap_at_most:
            return Jump(state.held[0].position, Why.TIMEOUT)
        return None

    def _give_up(
        self, state: KeyState, jump: Jump, asked: Offer | Look, now: datetime
    ) -> tuple[KeyState, Turn | None]:
        if self.settings.on_gap is OnGap.PARK:
            return replace(state, parked=True), None
        return self._hand_out(replace(state, jump=jump), asked.key, asked.token, now)


def _process(state: KeyState, offer: Offer, wait: timedelta | None, *, late: bool) -> Offered:
    work = Turn(offer.key, offer.position, offer.payload, offer.token, late=late)
    return Offered(Outcome.PROCESS, work, state.count, look_in=wait)
