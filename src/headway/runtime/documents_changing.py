"""Carry out what was decided about documents: first see what is meant, then change it.

Both walks go page by page. Whatever is not any more as it was read is left alone by the store.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headway.core.decision import Decision, archive_of, not_stuck, refusal, reset, scheduled
from headway.core.document import STATUS
from headway.core.lifecycle import Lifecycle, State, permanent_failure
from headway.core.prospect import prospect
from headway.core.sweep import SweepRule
from headway.core.writes import ID, Document
from headway.ports.documents import Documents
from headway.ports.engine import Sweeping
from headway.runtime.documents_choosing import PAGE, Choice, checked, pages, usual_states
from headway.runtime.documents_report import DocumentsReport, OnReport

_AWAY = {Decision.PURGE, Decision.ARCHIVE}
"""What takes a document away; the others leave it where it is, or bring it back."""


class Changing:
    """One decision about the documents of one collection."""

    def __init__(
        self,
        documents: Documents,
        sweeping: Sweeping,
        rule: SweepRule,
        choice: Choice,
        report: DocumentsReport,
    ) -> None:
        self._documents = documents
        self._desk = sweeping.desk
        self._candidates = sweeping.candidates
        self._rule = rule
        self._choice = _completed(choice, report.decision)
        self._report = report
        is_restore = report.decision is Decision.RESTORE  # of which states, nobody has to know
        report.selection = (choice if is_restore else self._choice).words()
        self._archive = archive_of(rule.collection)

    @property
    def _lifecycle(self) -> Lifecycle:
        """Of the documents where they are now."""
        lifecycle = self._rule.lifecycle
        if self._report.decision is Decision.RESTORE:
            return replace(lifecycle, collection=self._archive)
        return lifecycle

    @property
    def _moves_to(self) -> str | None:
        match self._report.decision:
            case Decision.ARCHIVE:
                return self._archive
            case Decision.RESTORE:
                return self._rule.collection
            case _:
                return None

    async def plan(self, on_progress: OnReport | None) -> None:
        """See which documents are meant, and of them which can be changed."""
        chosen: list[str] | None = [] if self._choice.limit is not None else None
        async for page in self._pages():
            for document in await self._fit(page):
                if self._report.chosen == self._choice.limit:
                    break
                self._choose(document)
                if chosen is not None:
                    chosen.append(str(document[ID]))
            if on_progress is not None:
                on_progress(self._report)
            if self._report.chosen == self._choice.limit:
                break
        self._report.planned = True
        if self._choice.ids is not None:
            self._report.missing = await self._missing(self._choice.ids)
        if chosen:
            # Exactly these, and none that moves up when one of them changes meanwhile.
            self._choice = replace(self._choice, ids=chosen, limit=None)

    async def _missing(self, ids: Sequence[str]) -> Sequence[str]:
        """Give the ids that are not in the collection, whatever else was selected by."""
        found: set[str] = set()
        for start in range(0, len(ids), PAGE):
            some = await self._documents.fetch(
                self._lifecycle.collection, ids[start : start + PAGE]
            )
            found.update(str(each[ID]) for each in some.values())
        return [one for one in ids if one not in found]

    async def carry_out(self, on_progress: OnReport | None) -> None:
        """Change them; what has changed meanwhile stays as it is."""
        if self._report.chosen:
            async for page in self._pages():
                fit = [each for each in page if self._refusal(each) is None]
                if fit:
                    self._report.done += len(await self._apply(fit))
                if on_progress is not None:
                    on_progress(self._report)
        self._report.complete = True

    def _pages(self) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        return pages(self._documents, self._desk, self._lifecycle, self._choice, self._report.began)

    async def _fit(self, page: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        to = self._moves_to
        ids = [str(each[ID]) for each in page]
        taken = {} if to is None else await self._documents.fetch(to, ids)
        fit = []
        for document in page:
            reason = self._refusal(document)
            if reason is None and str(document[ID]) in taken:
                reason = f"there is one with its id in {to}: keep one of the two"
            if reason is None:
                fit.append(document)
            else:
                self._report.refuse(document, reason)
        return fit

    def _refusal(self, document: Mapping[str, Any]) -> str | None:
        decision = self._report.decision
        if self._choice.stuck and decision in _AWAY:
            return not_stuck(decision, document, self._rule, self._report.began)
        return refusal(decision, document, self._rule.lifecycle)

    def _choose(self, document: Mapping[str, Any]) -> None:
        report = self._report
        state = self._rule.lifecycle.state(document).value
        permanently = " permanently" * (permanent_failure(document) is not None)
        report.choose(document, f"{state}{permanently}")
        if report.decision is Decision.RETRY and report.at is not None:
            due = prospect({**document, **scheduled(report.at)}, self._rule, report.began).due
            report.later += due is None or due > max(report.at, report.began)

    async def _apply(self, fit: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        desk, collection, lifecycle = self._desk, self._rule.collection, self._rule.lifecycle
        documents = [dict(each) for each in fit]
        at = self._report.at
        if self._choice.stuck:
            documents = await self._given_up(documents)
        match self._report.decision:
            case Decision.RESET:
                return await desk.change(collection, documents, reset(lifecycle, at))
            case Decision.RETRY:
                return await desk.change(collection, documents, scheduled(at or self._report.began))
            case Decision.PURGE:
                return await desk.remove(collection, documents)
            case Decision.ARCHIVE:
                return await desk.move(collection, documents, self._archive)
            case Decision.RESTORE:
                # In this order: whatever is back in the collection is pending from the first
                # moment, and what a crash leaves in the archive is found there by the next try.
                ready = await desk.change(self._archive, documents, reset(lifecycle, at))
                pending = [
                    {**each, STATUS: State.PENDING.value}
                    for each in documents
                    if str(each[ID]) in ready
                ]
                return await desk.move(self._archive, pending, collection)

    async def _given_up(self, documents: list[Document]) -> list[Document]:
        """Give up what is only stuck, so that nobody begins with it while it is taken away.

        Only where it is in all that matters as it was read: whoever has begun with it keeps it.
        """
        stuck = [each for each in documents if not self._is_given_up(each)]
        gone = await self._candidates.give_up(self._rule, stuck, self._report.began)
        word = self._rule.lifecycle.given_up_word
        return [each for each in documents if self._is_given_up(each)] + [
            {**each, STATUS: word} for each in stuck if str(each[ID]) in gone
        ]

    def _is_given_up(self, document: Mapping[str, Any]) -> bool:
        return self._rule.lifecycle.state(document) is State.GIVEN_UP


def _completed(choice: Choice, decision: Decision) -> Choice:
    """Give a choice with the states that are meant if none were named."""
    choice = checked(choice, decision)
    if choice.ids or choice.states:
        return choice
    return replace(choice, states=usual_states(decision))
