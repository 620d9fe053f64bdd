"""A document whose event failed permanently is not swept again, on every store."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headway import Lifecycle, PermanentError, RetryPolicy, Service
from headway.facts import SweepEnded
from headway.operations import Choice, Decision, FailedQueues, StoredDocuments
from headway.retrying import DEFAULT_CLASSIFIER, TRANSIENT, Verdict, rules_for
from headway.testing.engines import Publisher
from headway.testing.ports import Document, SweepRule
from tests.behaviour.sweeps import DAY, HOUR, Yard, working

SECOND = timedelta(seconds=1)


class DeclinedError(Exception):
    """The bank's answer, which stays the same."""


class ExpiredError(PermanentError, ConnectionError):
    """Another answer, which needs no rule, whatever else it is."""


OWN_RULE = rules_for([DeclinedError], Verdict.PERMANENT, name="shop.declined")


class Till:
    """A service that charges cards, in one version after another."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.charged: list[str] = []
        """The versions that ran."""
        self.error: Exception | None = DeclinedError("insufficient funds")
        self.lifecycle = Lifecycle("cards", max_attempts=5)

    def service(self, version: str = "1") -> Service:
        service = Service(
            "till",
            version=version,
            # Virtual seconds pass while a real worker starts: a short grace could end meanwhile.
            version_grace=11 * HOUR,
            classifier=DEFAULT_CLASSIFIER.before([OWN_RULE]),
            transient=RetryPolicy(max_attempts=1, backoff=TRANSIENT.backoff),
            lifecycles=[self.lifecycle],
        )

        @service.on("CardPresented", documents=("cards", "card"))
        async def charge(event: Any, work: Any) -> None:
            self.charged.append(version)
            if self.error is not None:
                raise self.error

        return service

    async def present(self) -> None:
        """Have the first event of a card fail, or not."""
        await self.yard.engine.open(self.service().queues())
        await self.yard.put("cards", {"_id": "c", "status": "pending", "attemptCount": 0})
        await self.publish()
        await self.work()

    async def publish(self) -> None:
        publisher = Publisher(self.yard.engine.bus, self.yard.clock, self.yard.chance)
        await publisher.publish("CardPresented", {"card": "c"})

    async def work(self, version: str = "1") -> None:
        """Let a worker do what is there."""
        engine = self.yard.new_engine()
        async with asyncio.timeout(60), working(self.yard, self.service(version), engine=engine):
            while not await self.is_idle(version):
                await self.yard.clock.wait(SECOND)

    async def is_idle(self, version: str) -> bool:
        """Say whether a worker of this version has begun, and nothing is left to do."""
        (queue,) = self.service(version).queues()
        live = await self.yard.engine.bus.live_versions(queue.name)
        return version in live and not (await self.yard.engine.places.depths()).waiting

    async def days(self, number: int, version: str = "1", swept_by: str = "") -> SweepEnded:
        """Sweep twice a day beside a worker, and let one do what comes of it; give the last run."""
        for half in range(2 * number + 1):
            if half:
                self.yard.clock.advance(DAY / 2)
            await self.work(version)
            ended = await self.yard.sweep(self.service(swept_by or version))
            if ended.collections[0].requeued:
                await self.work(version)
        return ended

    async def card(self) -> Document:
        return await self.yard.get("cards", "c")

    async def dead_letters(self) -> int:
        queues = await self.yard.engine.letters.queues()
        return sum(each.letters for each in queues if each.name == "till.failed")

    @property
    def stored(self) -> StoredDocuments:
        (target,) = self.yard.sweeper(self.service()).targets
        return StoredDocuments(
            self.yard.engine,
            self.yard.clock,
            self.yard.chance,
            rule_of=lambda _collection: SweepRule(lifecycle=self.lifecycle),
            target_of=lambda _collection: target,
        )


@pytest.fixture
def till(yard: Yard) -> Till:
    return Till(yard)


async def test_a_declined_card_is_charged_once_however_often_it_is_swept(till: Till) -> None:
    await till.present()
    card = await till.card()
    assert (card["status"], card["attemptCount"]) == ("failed", 1)
    assert card["permanentFailure"] == {"rule": "shop.declined", "version": "1"}
    assert card["lastError"]["type"] == "DeclinedError"
    ended = await till.days(4)
    assert till.charged == ["1"]
    assert await till.dead_letters() == 1
    (swept,) = ended.collections
    assert swept.tally is not None
    assert (swept.tally.stuck, swept.tally.permanent, swept.tally.given_up) == (0, 1, 0)
    assert (swept.tally.oldest, swept.skipped) == (None, {})
    await till.days(3, "2")
    assert till.charged == ["1"], "a rule of the user's own is an answer in every version"
    assert await till.card() == card


async def test_a_permanent_error_is_an_answer_without_a_rule(quick: Yard) -> None:
    till = Till(quick)
    till.error = ExpiredError("the card has expired")
    await till.present()
    card = await till.card()
    assert card["permanentFailure"] == {"rule": "headway.permanent", "version": "1"}
    await till.days(3)
    await till.days(3, "2")
    assert (till.charged, await till.dead_letters()) == (["1"], 1)


async def test_a_key_error_of_a_bad_deploy_runs_again_once_under_the_next_version(
    till: Till,
) -> None:
    till.error = KeyError("amount")
    await till.present()
    assert (await till.card())["permanentFailure"] == {"rule": "python.programming", "version": "1"}
    await till.days(3)
    assert till.charged == ["1"], "under the same version never"
    await till.work("2")
    ended = await till.yard.sweep(till.service("2"))
    assert ended.collections[0].requeued == 0, "a worker of the bad version may take it as well"
    till.yard.clock.advance(12 * HOUR)
    await till.work("2")
    ended = await till.yard.sweep(till.service("2"))
    (swept,) = ended.collections
    assert swept.requeued == 1
    await till.work("2")
    assert (await till.card())["permanentFailure"]["version"] == "2"
    await till.days(3, "2")
    assert till.charged == ["1", "2"]
    till.error = None
    await till.days(1, "3")
    assert till.charged == ["1", "2", "3"]
    card = await till.card()
    assert (card["status"], card.get("permanentFailure")) == ("processed", None)


async def test_a_sweeper_of_a_version_that_no_worker_runs_spends_no_attempt(quick: Yard) -> None:
    till = Till(quick)
    till.error = KeyError("amount")
    await till.present()
    card = await till.card()
    ended = await till.days(2, "1", swept_by="2")
    (swept,) = ended.collections
    assert swept.tally is not None
    assert (swept.tally.stuck, swept.tally.permanent) == (0, 1)
    assert till.charged == ["1"]
    assert await till.card() == card
    till.yard.clock.advance(DAY)  # no worker lives any more
    ended = await till.yard.sweep(till.service("2"))
    assert ended.collections[0].requeued == 0
    await till.days(1, "2", swept_by="1")
    assert till.charged == ["1", "2"], "what the workers run counts, and not what the sweeper is"


class Card(msgspec.Struct):
    card: str
    amount: int


async def test_a_document_whose_event_is_refused_by_its_type_is_not_swept_again(
    quick: Yard,
) -> None:
    class Typed(Till):
        def service(self, version: str = "1") -> Service:
            service = Service("till", version=version)

            @service.on(
                "CardPresented",
                documents=("cards", "card"),
                data=Card,
                rebuild=lambda card: {"card": card["_id"], "amount": 1},
            )
            async def charge(event: Any, work: Any) -> None:
                self.charged.append(version)

            return service

    till = Typed(quick)
    await till.present()
    card = await till.card()
    assert (card["status"], card["attemptCount"]) == ("failed", 1)
    assert card["permanentFailure"] == {"rule": "data", "version": "1"}
    for version in ("1", "2"):
        await till.days(2, version)
    assert (till.charged, await till.dead_letters()) == ([], 1)
    assert await till.card() == card


# What lets it run again


async def test_a_requeued_dead_letter_runs_again_and_success_clears_the_failure(
    till: Till,
) -> None:
    await till.present()
    failed = FailedQueues(till.yard.engine, till.yard.clock, till.yard.chance)
    report = await failed.requeue("till.failed")
    assert (report.done, await till.dead_letters()) == (1, 0)
    await till.work()
    assert till.charged == ["1", "1"]
    assert (await till.card())["permanentFailure"] == {"rule": "shop.declined", "version": "1"}
    assert await till.dead_letters() == 1
    till.error = None
    assert (await failed.requeue("till.failed")).done == 1
    await till.work()
    card = await till.card()
    assert (card["status"], card.get("permanentFailure")) == ("processed", None)


@pytest.mark.parametrize("decision", [Decision.RETRY, Decision.RESET])
async def test_an_operator_has_it_swept_again(till: Till, decision: Decision) -> None:
    await till.present()
    till.yard.clock.advance(12 * HOUR)
    at = till.yard.now if decision is Decision.RETRY else None
    report = await till.stored.decide(decision, "cards", Choice(ids=["c"]), at=at)
    assert (report.done, report.states) == (1, {"failed permanently": 1})
    assert (await till.card()).get("permanentFailure") is None
    till.error = None
    await till.days(1)
    assert till.charged == ["1", "1"]
    assert (await till.card())["status"] == "processed"


async def test_what_failed_permanently_is_listed_apart_until_another_version_runs(
    quick: Yard,
) -> None:
    till = Till(quick)
    till.error = KeyError("amount")
    await till.present()
    tried = {"attemptCount": 1, "lastAttemptTime": quick.ago(HOUR)}
    await quick.put("cards", {"_id": "busy", "status": "failed", **tried})
    report = await till.stored.stuck("cards")
    assert (report.stuck, report.permanent, report.given_up) == (1, 1, 0)
    assert [each.document_id for each in report.first_stuck] == ["busy"]
    (standing,) = report.first_permanent
    assert (standing.document_id, standing.sweep) == ("c", "leave")
    assert standing.permanent == {"rule": "python.programming", "version": "1"}
    assert report.permanent_errors == {"KeyError": 1}
    quick.clock.advance(DAY)
    await till.work("2")
    report = await till.stored.stuck("cards")
    assert (report.stuck, report.permanent, report.reasons) == (2, 0, {"requeue": 2})
