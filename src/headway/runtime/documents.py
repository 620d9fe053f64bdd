"""Documents, as an operator works on them: look, reset, schedule, copy, put away, remove.

Every change is conditional: what somebody else has changed in the meantime stays as it is.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from headway.core.decision import Decision, archived_from
from headway.core.document import STATUS
from headway.core.errors import ConfigurationError
from headway.core.lifecycle import Lifecycle, State
from headway.core.showing import shown
from headway.core.sweep import SweepRule
from headway.core.writes import Document
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine, Sweeping
from headway.runtime.documents_changing import Changing
from headway.runtime.documents_choosing import Choice, pages
from headway.runtime.documents_report import DocumentsReport, OnReport
from headway.runtime.documents_stuck import StuckReport, look
from headway.runtime.history import Change, Operator, Subject, checked_reason, read_history
from headway.runtime.sweep_targets import Target, of_live_version

_LOOKED_AT = 100
RuleOf = Callable[[str], SweepRule]
TargetOf = Callable[[str], Target | None]


def usual_rule(collection: str) -> SweepRule:
    """Give the rule of a collection about which nothing was declared."""
    return SweepRule(lifecycle=Lifecycle(collection))


class StoredDocuments:
    """The documents of a store.

    Args:
        engine: Whose store it is.
        clock: For what is due, and when it was decided.
        chance: Names changes in the history.
        who: Who decides, for the history.
        rule_of: Gives the rule, with its lifecycle, of a collection.
        target_of: Gives the handler that gets what is stuck in a collection, where it is known.
        is_swept: Says whether anybody sweeps a collection, as far as that is known.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        chance: Chance,
        *,
        who: str = "a program",
        rule_of: RuleOf = usual_rule,
        target_of: TargetOf = lambda _collection: None,
        is_swept: Callable[[str], bool] = lambda _collection: True,
    ) -> None:
        self._bus = engine.bus
        self._documents = engine.documents
        self._sweeping = _sweeping(engine)
        self._clock = clock
        self._operator = Operator(who, engine.history, clock, chance)
        self.rule_of = rule_of
        self.target_of = target_of
        self.is_swept = is_swept

    async def exists(self, collection: str) -> bool:
        """Say whether there is anything in a collection, even if it cannot be read."""
        found = await self._documents.find(collection, {}, 1)
        return bool(found) or collection in await self.collections()

    async def collections(self) -> Sequence[str]:
        """Name the collections in which there is a document."""
        return await self._sweeping.desk.collections()

    async def likely_flag(self, collection: str) -> str | None:
        """Name the field that may say what is processed, in documents that have no status."""
        found = await self._documents.find(collection, {}, _LOOKED_AT)
        flags = Counter(
            name
            for document in found
            if document.get(STATUS) is None
            for name, value in document.items()
            if isinstance(value, bool)
        )
        return next((name for name, _ in flags.most_common(1)), None)

    async def stuck(
        self,
        collection: str,
        *,
        limit: int = 20,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> StuckReport:
        """Count what is stuck and what was given up; name the first of each, up to a limit."""
        rule, target = self.rule_of(collection), self.target_of(collection)
        if target is not None:
            rule = replace(rule, version=(await of_live_version(target, self._bus)).rule.version)
        return await look(
            self._sweeping,
            rule,
            self._clock.now(),
            limit=limit,
            target=target,
            unswept=not self.is_swept(collection),
            on_progress=on_progress,
        )

    async def export(self, collection: str, choice: Choice) -> AsyncIterator[Document]:
        """Give documents one by one, each once; they stay where and as they are."""
        lifecycle = self.rule_of(collection).lifecycle
        if not choice.ids and not choice.states:
            choice = replace(choice, states=tuple(State))
        given = 0
        async for page in pages(self._documents, self._sweeping.desk, lifecycle, choice, None):
            for document in page:
                if given == choice.limit:
                    return
                given += 1
                yield dict(document)

    async def decide(
        self,
        decision: Decision,
        collection: str,
        choice: Choice,
        *,
        at: datetime | None = None,
        reason: str = "",
        dry_run: bool = False,
        before: OnReport | None = None,
        on_progress: OnReport | None = None,
    ) -> DocumentsReport:
        """Reset, retry, purge, archive or restore documents; each that can be, and no other.

        What failed or was given up since this began is not touched, unless it is named by its id.

        Args:
            decision: What is to become of them.
            collection: Where they are; for a restore, where they are to be.
            choice: Which are meant. Where it names neither ids nor states, they are those that
                were given up; for a retry, those that failed.
            at: Not before then are they tried again; None: by the next sweep.
            reason: Why, for the history.
            dry_run: Only say what would be done.
            before: Called with what is meant before anything is changed; if it raises, nothing is.
            on_progress: Called after each page, while it is looked and while it is changed.
        """
        if decision is Decision.RETRY and at is None:
            raise ConfigurationError("a retry needs the time when it is to be made")
        _refuse_in_archive(decision, collection)
        reason = checked_reason(reason)
        report = DocumentsReport(
            decision=decision,
            collection=collection,
            dry_run=dry_run,
            began=self._clock.now(),
            at=at,
        )
        rule = self.rule_of(collection)
        changing = Changing(self._documents, self._sweeping, rule, choice, report)
        await changing.plan(on_progress)
        if dry_run or not report.chosen:
            report.done, report.complete = report.chosen, True
            return report
        if before is not None:
            before(report)
        change = Change(
            what=decision.value,
            subject=Subject.COLLECTION,
            name=collection,
            selection=report.selection,
            reason=reason,
            facts=report.facts,
        )
        async with self._operator.recorded(change):
            await changing.carry_out(on_progress)
        return report

    async def history(self, limit: int = 20, collection: str | None = None) -> Sequence[Document]:
        """Give the latest changes, the newest first: who, when, what, why, and what came of it."""
        return await read_history(self._operator.history, limit, Subject.COLLECTION, collection)

    async def archivings(self, collection: str, limit: int = 5) -> Sequence[Document]:
        """Give the latest changes by which documents of a collection were put away, likewise."""
        archived = Decision.ARCHIVE.value
        return await read_history(
            self._operator.history, limit, Subject.COLLECTION, collection, what=archived
        )


def _refuse_in_archive(decision: Decision, collection: str) -> None:
    of = archived_from(collection)
    if of is not None and decision is not Decision.PURGE:
        raise ConfigurationError(
            f"{decision} of {shown(collection)} is not accepted: it is the archive of {shown(of)}, "
            f"and nobody sweeps it; bring documents back (headway documents restore {shown(of)}), "
            "or purge them"
        )


def _sweeping(engine: Engine) -> Sweeping:
    if engine.sweeping is None:
        raise ConfigurationError(
            "documents are kept in a store, and this engine has none: set HEADWAY_STORE beside the "
            "broker, such as HEADWAY_STORE=sqlite:///store.db"
        )
    return engine.sweeping
