"""Dead letters that were overtaken: shown as superseded, and requeued only if a person insists."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headway import Event, Service, Work
from headway.operations import Choice, Decision, FailedQueues, Letter, StoredDocuments
from headway.retrying import FloodRule
from headway.testing.chance import Seeded
from headway.testing.trial import Trial


class Office:
    """A service that is broken at first, and works on documents."""

    def __init__(self) -> None:
        self.broken = True
        self.ran: list[Any] = []
        self.chunking = Service("chunking", flood=FloodRule(at_least=1_000_000))

        @self.chunking.on("JSONParsed", documents=("messages", "message_doc_ids"))
        async def chunk(event: Any, work: Any) -> None:
            if self.broken:
                raise ValueError("broken")
            self.ran.append(event.data["message_doc_ids"])

        @self.chunking.on("Plain")
        async def plain(event: Any, work: Any) -> None:
            raise ValueError("broken")

        self.trial = Trial(self.chunking)
        self.failed = FailedQueues(self.trial.engine, self.trial.clock, self.trial.chance)

    def put(self, *ids: str, **fields: Any) -> None:
        """Write documents as another client does; fields that are there stay."""
        stored = self.trial.state.documents.setdefault("messages", {})
        for one in ids:
            before = msgspec.json.decode(stored[one]) if one in stored else {"_id": one}
            stored[one] = msgspec.json.encode({**before, **fields})

    def remove(self, one: str) -> None:
        del self.trial.state.documents["messages"][one]

    async def fail(self, *ids: Any, event_type: str = "JSONParsed") -> Letter:
        """Let an event about documents end as a letter."""
        before = {letter.letter_id for letter in await self.letters()}
        await self.trial.publish(event_type, {"message_doc_ids": list(ids)})
        await self.trial.run()
        (letter,) = [one for one in await self.letters() if one.letter_id not in before]
        return letter

    async def letters(self) -> Sequence[Letter]:
        return await self.trial.letters("chunking.failed")

    async def superseded(self) -> set[str]:
        return set(await self.failed.superseded(await self.letters()))


@pytest.fixture
def office() -> Office:
    return Office()


async def test_a_dead_letter_names_the_documents_of_its_event(office: Office) -> None:
    office.put("a", "b")
    letter = await office.fail("a", "b", "not there yet")
    assert (letter.collection, letter.document_ids) == ("messages", ("a", "b", "not there yet"))
    for letter in (await office.fail("a", event_type="Plain"), await office.fail()):
        assert (letter.collection, letter.document_ids) == ("", ())
    assert await office.superseded() == set()


OVERTAKEN: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "both processed": ({"status": "processed"}, {"status": "processed"}, True),
    "both have a newer operation": ({"lastOperation": "x"}, {"lastOperation": "x"}, True),
    "one of each": ({"status": "processed"}, {"lastOperation": "x"}, True),
    "one is still its own": ({"status": "processed"}, {}, False),
    "both are its own": ({}, {}, False),
    "reset by hand": ({"lastOperation": None, "status": "pending"}, {"lastOperation": "x"}, False),
}


@pytest.mark.parametrize("case", OVERTAKEN)
async def test_every_document_must_have_left_the_dead_letter_behind(
    office: Office, case: str
) -> None:
    first, second, expected = OVERTAKEN[case]
    office.put("a", "b")
    letter = await office.fail("a", "b")
    office.put("a", **first)
    office.put("b", **second)
    assert await office.superseded() == ({letter.letter_id} if expected else set())
    assert await office.failed.count_superseded("chunking") == int(expected)


async def test_a_letter_whose_document_is_gone_is_skipped_with_that_reason(office: Office) -> None:
    office.put("a", "b", "other")
    letter = await office.fail("a", "b")
    office.remove("b")
    assert await office.superseded() == set(), "one of its documents still waits for it"
    office.put("a", status="processed")
    assert await office.superseded() == {letter.letter_id}
    assert await office.failed.count_superseded("chunking") == 1
    office.remove("a")
    office.broken = False
    report = await office.failed.requeue("chunking")
    (skipped,) = report.skipped
    assert (report.done, skipped.letter_id) == (0, letter.letter_id)
    assert skipped.reason.startswith("its document is gone")
    report = await office.failed.requeue("chunking", superseded=True)
    assert (report.done, report.skipped) == (1, [])


@pytest.mark.parametrize("decision", [Decision.PURGE, Decision.ARCHIVE])
async def test_what_was_purged_or_archived_is_gone_even_if_it_was_the_last(
    office: Office, decision: Decision
) -> None:
    office.put("a")
    letter = await office.fail("a")
    office.put("a", status="failed_max_retries")
    documents = StoredDocuments(office.trial.engine, office.trial.clock, Seeded(1))
    report = await documents.decide(decision, "messages", Choice(everything=True))
    assert report.done == 1
    reasons = await office.failed.superseded(await office.letters())
    assert list(reasons) == [letter.letter_id]
    assert reasons[letter.letter_id].startswith("its document is gone")


async def test_where_a_store_never_had_the_documents_none_is_gone(office: Office) -> None:
    await office.fail("kept somewhere else")
    assert await office.superseded() == set()


async def test_a_requeue_skips_what_is_superseded_with_the_reason(office: Office) -> None:
    office.put("a", "b", "c")
    kept, sent = await office.fail("a"), await office.fail("b")
    office.put("a", lastOperation="swept")
    dry = await office.failed.requeue("chunking", dry_run=True)
    assert (dry.done, [each.letter_id for each in dry.skipped]) == (1, [kept.letter_id])
    office.broken, began = False, office.trial.clock.now()
    report = await office.failed.requeue("chunking", rate=0.01)
    assert (report.done, len(report.chosen)) == (1, 2)
    assert office.trial.clock.now() == began, "what is skipped does not slow the others down"
    (skipped,) = report.skipped
    assert skipped.letter_id == kept.letter_id
    assert skipped.reason.startswith("superseded: messages a ")
    await office.trial.run()
    assert (office.ran, await office.letters()) == ([list(sent.document_ids)], [kept])
    report = await office.failed.requeue("chunking", superseded=True)
    assert (report.done, report.skipped) == (1, [])
    await office.trial.run()
    assert office.ran == [["b"], ["a"]]
    assert (await office.trial.engine.places.astray(1))[0] == 0


async def test_what_is_processed_would_not_run_so_it_stays_even_if_a_person_insists(
    office: Office,
) -> None:
    office.put("a", "b")
    letter = await office.fail("a", "b")
    office.put("a", "b", status="processed")
    for dry_run in (True, False):
        report = await office.failed.requeue("chunking", superseded=True, dry_run=dry_run)
        assert (report.done, [each.letter_id for each in report.skipped]) == (0, [letter.letter_id])
    await office.trial.run()
    assert await office.letters() == [letter]
    office.put("b", status="pending")
    office.broken = False
    assert (await office.failed.requeue("chunking", superseded=True)).done == 1
    await office.trial.run()
    assert len(office.ran) == 1


async def test_a_letter_whose_work_was_sent_anew_and_done_is_superseded() -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", dedup="order")
    async def handle(event: Event, work: Work) -> None:
        if event.data.get("bad"):
            raise ValueError("bad")
        work.documents("sold").increment("all", "orders")

    trial = Trial(orders)
    for bad in (True, True, False):
        await trial.publish("OrderPlaced", {"order": "a", "bad": bad})
        await trial.run()
    await trial.publish("OrderPlaced", {"order": "b", "bad": True})
    await trial.run()
    queues = FailedQueues(trial.engine, trial.clock, trial.chance)
    letters = await queues.inspect("orders")
    about = {letter.letter_id: letter.original_event["data"]["order"] for letter in letters}
    overtaken = await queues.superseded(letters)
    assert sorted(about[each] for each in overtaken) == ["a", "a"]
    report = await queues.requeue("orders")
    assert (report.done, len(report.skipped)) == (1, 2)
