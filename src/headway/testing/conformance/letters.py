"""What all failed queues do: keep letters, show them, and let a person decide."""

import asyncio
from collections.abc import Sequence
from unittest import SkipTest

import msgspec

from headway.core.errors import ConfigurationError, LetterGoneError
from headway.core.letter import Letter
from headway.core.travel import Travel
from headway.ports.records import Ended
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    PLACED,
    failing,
    key_of,
    letter_for,
    letters_for,
    message,
    nothing_due,
    opened,
    operations,
    publish,
    sent_again,
    take_one,
    unit,
    well_travelled,
)
from headway.testing.conformance.harness import Capability, EngineHarness

NAMES = [f"operation-{number}" for number in range(7)]
FAILED = ORDERS.failed


def names(letters: Sequence[Letter]) -> list[str]:
    return [letter.operation for letter in letters]


class LettersConformance:
    """Letters are kept until somebody decides."""

    async def test_every_declared_failed_queue_is_shown_with_what_is_in_it(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        begun = harness.clock.now()
        await engine.letters.write(FAILED, letters_for(["a", "b"], begun))
        await harness.pass_time(3 * harness.moment)
        await engine.letters.write(FAILED, letters_for(["c"], harness.clock.now()))
        empty, full = await (await opened(harness)).letters.queues()
        assert (empty.name, empty.letters, empty.oldest, empty.newest) == (
            MAILS.failed,
            0,
            None,
            None,
        )
        assert (full.name, full.letters) == (FAILED, 3)
        assert full.oldest is not None
        assert abs(full.oldest - begun) < 2 * harness.moment

    async def test_the_newest_letter_of_a_queue_is_shown_by_its_time(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.NEWEST_LETTER)
        engine = await opened(harness)
        await engine.letters.write(FAILED, letters_for(["a"], harness.clock.now()))
        await harness.pass_time(3 * harness.moment)
        await engine.letters.write(FAILED, letters_for(["b"], harness.clock.now()))
        _, full = await (await opened(harness)).letters.queues()
        assert full.oldest is not None
        assert full.newest is not None
        assert full.newest - full.oldest >= 2 * harness.moment

    async def test_letters_come_out_as_they_went_in(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        now = harness.clock.now()
        letters = [
            letter_for(Travel(operation="empty"), now, body=b""),
            letter_for(Travel(operation="bytes"), now, body=bytes(range(256)) * 100),
            letter_for(well_travelled("far", now), now, body=b'{"a":[1,null,{"b":1.5}]}'),
            letter_for(Travel(operation="ünïcødé ✓", generation="x"), now, body=b' {"a": 1}'),
        ]
        letters[2] = msgspec.structs.replace(
            letters[2], collection="käse", document_ids=("a", "b ✓")
        )
        await engine.letters.write(FAILED, letters)
        found = await engine.letters.read(FAILED, 10)
        assert list(found) == letters
        assert [letter.body for letter in found] == [letter.body for letter in letters]

    async def test_letters_are_read_in_the_order_in_which_they_came_and_stay(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await engine.letters.write(FAILED, letters_for(NAMES[:4], harness.clock.now()))
        await engine.letters.write(FAILED, letters_for(NAMES[4:], harness.clock.now()))
        for _ in range(3):
            assert names(await engine.letters.read(FAILED, 5)) == NAMES[:5]
            assert names(await engine.letters.read(FAILED, 100)) == NAMES
        assert list(await engine.letters.read(MAILS.failed, 100)) == []

    async def test_letters_are_read_page_by_page(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await engine.letters.write(FAILED, letters_for(NAMES, harness.clock.now()))
        read: list[str] = []
        after: str | None = None
        while page := await engine.letters.read(FAILED, 3, after):
            read += names(page)
            after = page[-1].letter_id
        assert read == NAMES

    async def test_fewer_letters_than_asked_for_means_that_there_are_no_more(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        many = [f"operation-{number}" for number in range(1_100)]
        letters = letters_for(many, harness.clock.now())
        await engine.letters.write(FAILED, letters)
        for limit in (1, 2, 999, 1_000, 1_100):
            assert names(await engine.letters.read(FAILED, limit)) == many[:limit]
        assert names(await engine.letters.read(FAILED, 1_101)) == many
        after = letters[49].letter_id
        assert names(await engine.letters.read(FAILED, 1_050, after)) == many[50:]
        assert names(await engine.letters.read(FAILED, 1_051, after)) == many[50:]
        assert list(await engine.letters.read(FAILED, 1, letters[-1].letter_id)) == []

    async def test_what_comes_after_a_letter_that_has_gone_is_not_guessed(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        letters = letters_for(NAMES, harness.clock.now())
        await engine.letters.write(FAILED, letters)
        purged, requeued, there = (letter.letter_id for letter in letters[1:4])
        await engine.letters.remove(FAILED, [purged])
        await engine.letters.requeue(FAILED, requeued, sent_again(letters[2]))
        for queue, after in (
            (FAILED, purged),
            (FAILED, requeued),
            (FAILED, "nobody's"),
            (MAILS.failed, there),
        ):
            (gone,) = await asyncio.gather(
                engine.letters.read(queue, 10, after), return_exceptions=True
            )
            assert isinstance(gone, LetterGoneError)
            assert (gone.queue, gone.letter_id) == (queue, after)
        assert names(await engine.letters.read(FAILED, 10, there)) == NAMES[4:]

    async def test_a_letter_that_is_there_is_not_written_again(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        first, second = letters_for(["a", "b"], harness.clock.now())
        await engine.letters.write(FAILED, [first, first])
        changed = msgspec.structs.replace(first, last_error="something else")
        await (await opened(harness)).letters.write(FAILED, [changed, second])
        assert list(await engine.letters.read(FAILED, 10)) == [first, second]

    async def test_one_letter_id_may_be_in_two_failed_queues(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        (letter,) = letters_for(["a"], harness.clock.now())
        for queue in (FAILED, MAILS.failed):
            await engine.letters.write(queue, [letter])
        assert await engine.letters.remove(FAILED, [letter.letter_id]) == 1
        assert list(await engine.letters.read(MAILS.failed, 10)) == [letter]

    async def test_letters_are_removed_for_good(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        letters = letters_for(NAMES, harness.clock.now())
        await engine.letters.write(FAILED, letters)
        gone = [letters[0].letter_id, letters[2].letter_id]
        assert await engine.letters.remove(FAILED, [*gone, "nobody's"]) == 2
        assert await engine.letters.remove(FAILED, gone) == 0
        assert await engine.letters.remove(FAILED, []) == 0
        left = list(await (await opened(harness)).letters.read(FAILED, 100))
        assert left == [letters[1], *letters[3:]]

    # Sent again

    async def test_a_requeued_letter_is_an_event_again(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        now = harness.clock.now()
        letter = letter_for(Travel(operation="a"), now, body=b"\xff", queue=MAILS.name)
        (other,) = letters_for(["b"], now)
        await engine.letters.write(FAILED, [letter, other])
        again = sent_again(letter)
        assert await engine.letters.requeue(FAILED, letter.letter_id, again) is True
        assert list(await engine.letters.read(FAILED, 10)) == [other]
        delivery = await take_one(harness, await opened(harness), MAILS.name)
        assert (delivery.body, delivery.returns) == (b"\xff", 0)
        assert (delivery.travel.operation, delivery.travel.requeues) == ("a", 1)
        assert delivery.travel.generation == again.travel.generation

    async def test_a_letter_that_is_gone_sends_nothing(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        (letter,) = letters_for(["a"], harness.clock.now())
        again = sent_again(letter)
        assert await engine.letters.requeue(FAILED, letter.letter_id, again) is False
        await engine.letters.write(FAILED, [letter])
        assert await engine.letters.requeue(MAILS.failed, letter.letter_id, again) is False
        assert await engine.letters.requeue(FAILED, letter.letter_id, again) is True
        assert await engine.letters.requeue(FAILED, letter.letter_id, again) is False
        await take_one(harness, engine)
        await nothing_due(harness, engine)

    async def test_of_many_that_requeue_a_letter_one_does(self, harness: EngineHarness) -> None:
        engines = [await opened(harness) for _ in range(3)]
        (letter,) = letters_for(["a"], harness.clock.now())
        await engines[0].letters.write(FAILED, [letter])
        answers = await asyncio.gather(
            *(e.letters.requeue(FAILED, letter.letter_id, sent_again(letter)) for e in engines)
        )
        assert sorted(answers) == [False, False, True]
        await take_one(harness, engines[0])
        await nothing_due(harness, engines[0])

    async def test_a_letter_that_can_not_be_sent_stays(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        (letter,) = letters_for(["a"], harness.clock.now())
        await engine.letters.write(FAILED, [letter])
        astray = message("a", queue="no.such.queue", travel=Travel(operation="a", generation="1"))
        (error,) = await asyncio.gather(
            engine.letters.requeue(FAILED, letter.letter_id, astray), return_exceptions=True
        )
        assert isinstance(error, ConfigurationError)
        assert list(await engine.letters.read(FAILED, 10)) == [letter]

    async def test_a_letter_is_not_sent_to_a_queue_that_had_the_same_operation(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.ACCEPTED)
        engine = await opened(harness)
        await engine.bus.publish([message("both", event_type=PLACED)])
        failed = failing(await take_one(harness, engine), harness.clock.now())
        await engine.finisher.finish([failed])
        letter = failed.letter
        assert letter is not None
        elsewhere = msgspec.structs.replace(sent_again(letter), queue=MAILS.name)
        mail = await take_one(harness, engine, MAILS.name)
        for settled in (False, True):
            if settled:
                await engine.finisher.finish([unit(mail, harness.clock.now())])
            (error,) = await asyncio.gather(
                engine.letters.requeue(FAILED, letter.letter_id, elsewhere), return_exceptions=True
            )
            assert isinstance(error, ConfigurationError)
            assert MAILS.name in str(error)
            assert "'both'" in str(error)
        assert list(await engine.letters.read(FAILED, 10)) == [letter]
        await nothing_due(harness, engine, ORDERS.name, MAILS.name)
        assert await engine.places.astray(5) == (0, [])
        assert await engine.letters.requeue(FAILED, letter.letter_id, sent_again(letter)) is True
        await take_one(harness, engine)

    async def test_a_requeue_that_was_not_recorded_is_recorded_when_its_event_ends(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.RECORDS)
        if Capability.ONE_COMMIT not in harness.lacks:
            raise SkipTest("a requeue and its record are one commit")
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        failed = failing(delivery, harness.clock.now())
        await engine.finisher.finish([failed])
        assert failed.letter is not None
        await engine.bus.publish([sent_again(failed.letter)])
        again = unit(await take_one(harness, engine), harness.clock.now())
        assert [each.outcome for each in await engine.finisher.finish([again])] == ["committed"]
        recorded = await engine.records.find([key_of(delivery)])
        assert [each.ended for each in recorded.values()] == [Ended.REQUEUED]

    async def test_the_record_says_what_a_person_decided(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        ended: dict[str, Ended] = {}
        for name in ("kept", "purged", "requeued", "moved"):
            await publish(engine, name)
            delivery = await take_one(harness, engine)
            failed = failing(delivery, harness.clock.now())
            await engine.finisher.finish([failed])
            letter = failed.letter
            assert letter is not None
            if name == "purged":
                await engine.letters.remove(FAILED, [letter.letter_id])
            elif name == "requeued":
                await engine.letters.requeue(FAILED, letter.letter_id, sent_again(letter))
                assert operations([await take_one(harness, engine)]) == [name]
            elif name == "moved":
                elsewhere = msgspec.structs.replace(sent_again(letter), queue=MAILS.name)
                await engine.letters.requeue(FAILED, letter.letter_id, elsewhere)
                assert operations([await take_one(harness, engine, MAILS.name)]) == [name]
            ended[name] = (await engine.records.find([key_of(delivery)]))[key_of(delivery)].ended
        assert ended == {
            "kept": Ended.FAILED,
            "purged": Ended.PURGED,
            "requeued": Ended.REQUEUED,
            "moved": Ended.MOVED,
        }
