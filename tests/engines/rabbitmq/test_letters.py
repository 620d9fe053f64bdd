import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
import pika
import pytest

from headway import ConfigurationError
from headway.adapters.rabbitmq import looks, scanning
from headway.adapters.rabbitmq.scanning import QueueHeldError
from headway.clock import SystemChance
from headway.errors import LetterGoneError, NotPublishedError
from headway.operations import FailedQueues, Letter
from headway.retrying import Reason
from headway.runtime.failed_reading import walk
from headway.runtime.failed_sending import again
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    QUEUES,
    letters_for,
    operations,
    sent_again,
    take,
)
from headway.testing.engines import RabbitParts, rabbitmq_parts, without_store
from headway.testing.ports import Message
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.by_hand import channel_to, contents, declare, put
from tests.engines.rabbitmq.engine import RabbitEngineHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")

FAILED = ORDERS.failed
Harness = RabbitEngineHarness


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


async def opened(harness: Harness) -> RabbitParts:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    return parts


async def with_letters(harness: Harness, number: int) -> tuple[RabbitParts, list[Letter]]:
    parts = await opened(harness)
    names = [f"operation-{each}" for each in range(number)]
    letters = letters_for(names, harness.clock.now())
    await parts.letters.write(FAILED, letters)
    return parts, letters


async def all_of(parts: RabbitParts, queue: str = FAILED) -> list[Letter]:
    return [letter async for letter in walk(parts.letters, queue)]


def bodies(harness: Harness) -> list[bytes]:
    return [body for _, body in contents(harness.url, FAILED)]


# Looking changes nothing


@pytest.mark.parametrize("limit", [None, 20])
async def test_a_hundred_inspections_leave_every_letter_as_and_where_it_is(
    harness: Harness, limit: int | None
) -> None:
    declare(harness.url, FAILED, {} if limit is None else {"x-delivery-limit": limit})
    parts, letters = await with_letters(harness, 130)
    before, when = [msgspec.json.encode(letter) for letter in letters], letters[0].timestamp
    for number in range(100):
        if number % 5 == 0:
            assert await all_of(parts) == letters
        elif number % 5 == 1:
            _, queue = await parts.letters.queues()
            assert (queue.letters, queue.oldest) == (130, datetime.fromisoformat(when))
        else:
            assert list(await parts.letters.read(FAILED, 7)) == letters[:7]
    await parts.bus.close()
    found = contents(harness.url, FAILED)
    assert [body for _, body in found] == before
    (properties, _) = found[0]
    assert properties.message_id == letters[0].letter_id
    assert (properties.type, properties.content_type) == ("headway.letter", "application/json")
    assert properties.delivery_mode == 2


async def test_processes_that_look_once_each_wear_no_letter_out(harness: Harness) -> None:
    declare(harness.url, FAILED, {"x-delivery-limit": 20})
    _, letters = await with_letters(harness, 5)
    for _ in range(30):
        parts = await opened(harness)
        assert list(await parts.letters.read(FAILED, 2)) == letters[:2]
        await parts.bus.close()
    assert await all_of(await opened(harness)) == letters


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_no_policy_removes_letters_that_are_looked_at(
    harness: Harness, rabbitmq_server: RabbitMQ, limit: int
) -> None:
    _, letters = await with_letters(harness, 120)
    rabbitmq_server.set_policy(harness.url, ".*", delivery_limit=limit)
    await policy_holds()
    for number in range(8):
        parts = await opened(harness)
        if number % 2:
            assert list(await parts.letters.read(FAILED, 2)) == letters[:2]
        assert await all_of(parts) == letters
        listed = {each.name: each.letters for each in await parts.letters.queues()}
        assert listed[FAILED] == len(letters)
        assert await parts.letters.remove(FAILED, [letters.pop(60).letter_id]) == 1
        again_sent = letters.pop(0)
        assert await parts.letters.requeue(FAILED, again_sent.letter_id, sent_again(again_sent))
        await parts.bus.close()
    for _ in range(2 * limit):
        parts = await opened(harness)
        assert await parts.places.where(["unknown"]) == {}
        await parts.bus.close()
    assert await all_of(await opened(harness)) == letters


@pytest.mark.parametrize("number", [1_200, 5_500])
async def test_a_delivery_limit_of_zero_is_named_and_removes_no_letter(
    harness: Harness, rabbitmq_server: RabbitMQ, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    parts, letters = await with_letters(harness, number)
    rabbitmq_server.set_policy(harness.url, FAILED, delivery_limit=0)
    await policy_holds()
    if number == 1_200:  # that many can be published anew
        assert len(await parts.letters.read(FAILED, 10_000)) == number
        (said,) = [each for each in caplog.records if each.levelname == "ERROR"]
        assert "removed 1200 messages of shop.failed" in said.getMessage()
        assert "published 1200 of them anew: a policy sets delivery-limit 0" in said.getMessage()
    (first, *_) = letters
    for work in (
        parts.letters.read(FAILED, 10_000),
        parts.letters.remove(FAILED, [first.letter_id]),
        parts.letters.requeue(FAILED, first.letter_id, sent_again(first)),
    ):
        caplog.clear()
        with pytest.raises(ConfigurationError, match=r"Cannot read shop\.failed: .*policy"):
            await work
        (said,) = [each for each in caplog.records if each.levelname == "ERROR"]
        assert "removed 1 messages of shop.failed" in said.getMessage()
        assert "published 1 of them anew" in said.getMessage()
    listed = {each.name: each.letters for each in await parts.letters.queues()}
    assert listed[FAILED] == number
    rabbitmq_server.set_policy(harness.url, FAILED, delivery_limit=5)
    await policy_holds()
    assert {each.letter_id for each in await all_of(parts)} == {e.letter_id for e in letters}


async def test_list_of_failed_queues_is_given_under_a_delivery_limit_of_zero(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    parts, letters = await with_letters(harness, 120)
    rabbitmq_server.set_policy(harness.url, FAILED, delivery_limit=0)
    await policy_holds()
    for _ in range(3):
        parts.letters._peeked.clear()
        listed = {each.name: each.letters for each in await parts.letters.queues()}
        assert listed[FAILED] == 120
    rabbitmq_server.set_policy(harness.url, FAILED, delivery_limit=5)
    await policy_holds()
    assert {each.letter_id for each in await all_of(parts)} == {e.letter_id for e in letters}


async def policy_holds() -> None:
    """Wait until the broker has told its queues."""
    await asyncio.sleep(1)


async def test_what_is_in_hand_is_counted_and_comes_back_when_nobody_goes_on(
    harness: Harness,
) -> None:
    parts, letters = await with_letters(harness, 60)
    other = await opened(harness)
    await parts.letters.read(FAILED, 10)
    (_, mine), (_, others) = await parts.letters.queues(), await other.letters.queues()
    assert (mine.letters, others.letters) == (60, 10)
    assert mine.oldest == datetime.fromisoformat(letters[0].timestamp)
    look = parts.letters._looks.now
    assert look is not None
    look.linger = timedelta()
    while parts.letters._looks.now is not None:  # its watch ends it
        await harness.pass_time(harness.moment)
    assert [each.letters for each in await other.letters.queues()] == [0, 60]


async def test_a_look_whose_connection_is_lost_goes_on_where_it_was(harness: Harness) -> None:
    parts, letters = await with_letters(harness, 130)
    assert list(await parts.letters.read(FAILED, 60)) == letters[:60]
    await lose_connection(parts)
    after = letters[59].letter_id
    assert list(await parts.letters.read(FAILED, 60, after)) == letters[60:120]
    await lose_connection(parts)
    assert await parts.letters.remove(FAILED, [letters[0].letter_id]) == 1
    await lose_connection(parts)
    assert await parts.letters.requeue(FAILED, letters[1].letter_id, sent_again(letters[1]))
    assert sorted(e.letter_id for e in await all_of(parts)) == sorted(
        e.letter_id for e in letters[2:]
    )


async def lose_connection(parts: RabbitParts) -> None:
    def cut(connection: pika.BlockingConnection) -> None:
        with suppress(OSError):  # nobody has noticed yet that it is lost already
            connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)

    await parts.letters._looks._session.do(cut)


async def test_a_letter_whose_connection_is_lost_between_sending_and_removing_is_removed(
    harness: Harness,
) -> None:
    parts, (letter, *_) = await with_letters(harness, 3)
    publish = parts.letters._publish

    async def then_lose(messages: Sequence[Message]) -> Sequence[int]:
        answer = await publish(messages)
        await lose_connection(parts)
        return answer

    parts.letters._publish = then_lose
    assert await parts.letters.requeue(FAILED, letter.letter_id, sent_again(letter)) is True
    assert len(await all_of(parts)) == 2


# Order, and what a walk does when it is disturbed


async def test_a_walk_through_a_queue_too_long_to_keep_in_order_misses_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "KEPT_IN_ORDER", 100)
    parts, letters = await with_letters(harness, 450)
    assert len(await all_of(parts)) == 450
    seen: list[str] = []
    async for letter in walk(parts.letters, FAILED):
        seen.append(letter.letter_id)
        if len(seen) in {150, 250}:
            await parts.letters.read(FAILED, 3)  # somebody else here, in between
    assert sorted(seen) == sorted(each.letter_id for each in letters)


async def test_two_walks_at_once_in_one_process_both_see_everything(harness: Harness) -> None:
    parts, letters = await with_letters(harness, 250)
    first, second = await asyncio.gather(all_of(parts), all_of(parts))
    assert first == second == letters


async def test_after_a_letter_that_was_published_anew_nobody_guesses(harness: Harness) -> None:
    parts, letters = await with_letters(harness, 3)
    after = letters[0].letter_id
    assert list(await parts.letters.read(FAILED, 1)) == letters[:1]
    for _ in range(9):
        await parts.letters.read(FAILED, 100)
    assert list(await parts.letters.read(FAILED, 1, after)) == letters[1:2]  # it did so itself
    assert list(await parts.letters.read(FAILED, 100)) == letters
    other = await opened(harness)
    await other.letters.read(FAILED, 100)
    with pytest.raises(LetterGoneError):
        await parts.letters.read(FAILED, 1, after)


# Two operators


async def test_two_operators_requeue_everything_once(harness: Harness) -> None:
    first, letters = await with_letters(harness, 120)
    second = await opened(harness)
    reports = await asyncio.gather(
        *(
            FailedQueues(without_store(each), harness.clock, SystemChance()).requeue(FAILED)
            for each in (first, second)
        )
    )
    assert sum(report.done for report in reports) == 120
    taken = await take(harness, without_store(first), 120)
    assert sorted(operations(taken)) == sorted(each.operation for each in letters)
    assert await all_of(second) == []


async def test_one_operator_exports_while_another_works_and_gets_every_letter_that_stays(
    harness: Harness,
) -> None:
    first, letters = await with_letters(harness, 330)
    second = await opened(harness)
    gone = [each.letter_id for each in letters[::3]]
    exported, removed = await asyncio.gather(all_of(first), second.letters.remove(FAILED, gone))
    assert removed == len(gone)
    stayed = {each.letter_id for each in letters} - set(gone)
    assert stayed <= {each.letter_id for each in exported}
    assert len({each.letter_id for each in exported}) == len(exported)


async def test_whoever_holds_a_queue_for_long_is_named_to_others(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "_PATIENCE", 0.3)
    parts, (letter, *_) = await with_letters(harness, 3)
    other = await opened(harness)
    await parts.letters.read(FAILED, 1)
    for work in (
        other.letters.read(FAILED, 1),
        other.letters.requeue(FAILED, letter.letter_id, sent_again(letter)),
        other.letters.remove(FAILED, [letter.letter_id]),
    ):
        with pytest.raises(QueueHeldError, match=f"somebody else is reading {FAILED}"):
            await work
    listed = {each.name: each for each in await other.letters.queues()}
    assert (listed[FAILED].letters, listed[FAILED].being_read) == (0, True)
    assert not listed[MAILS.failed].being_read
    assert not any(each.being_read for each in await parts.letters.queues())


async def test_a_queue_remembers_that_its_workers_had_a_store(harness: Harness) -> None:
    parts = await opened(harness)
    assert [each.has_store for each in await parts.letters.queues()] == [False, False]
    stored = rabbitmq_parts(harness.url, harness.clock, SystemChance(), has_store=True)
    harness.parts.append(stored)
    await stored.bus.open([ORDERS])
    await (await opened(harness)).bus.open([ORDERS, MAILS])  # later, without one
    found = {each.name: each.has_store for each in await parts.letters.queues()}
    assert found == {ORDERS.failed: True, MAILS.failed: False}


async def test_of_a_requeue_and_a_purge_at_once_one_happens(harness: Harness) -> None:
    parts, letters = await with_letters(harness, 20)
    for letter in letters:
        answers = await asyncio.gather(
            parts.letters.requeue(FAILED, letter.letter_id, sent_again(letter)),
            parts.letters.remove(FAILED, [letter.letter_id]),
            parts.letters.requeue(FAILED, letter.letter_id, sent_again(letter)),
        )
        assert sum(answers) == 1


async def test_who_reads_waits_for_what_is_just_being_requeued(harness: Harness) -> None:
    parts, (letter, *others) = await with_letters(harness, 3)
    publish, go_on = parts.letters._publish, asyncio.Event()

    async def slowly(messages: Sequence[Message]) -> Sequence[int]:
        answer = await publish(messages)
        await go_on.wait()
        return answer

    parts.letters._publish = slowly
    requeueing = asyncio.create_task(
        parts.letters.requeue(FAILED, letter.letter_id, sent_again(letter))
    )
    while parts.letters._looks.now is None or not parts.letters._looks.now.deciding:
        await harness.pass_time(harness.moment)
    reading = asyncio.create_task(all_of(parts))
    done, _ = await asyncio.wait([reading], timeout=1)
    assert not done
    go_on.set()
    assert await requeueing is True
    assert await reading == others


# What is no letter


async def test_whatever_lies_in_a_failed_queue_is_shown_and_kept(harness: Harness) -> None:
    parts = await opened(harness)
    (letter,) = letters_for(["ours"], harness.clock.now())
    await parts.letters.write(FAILED, [letter])
    garbage: list[tuple[bytes, dict[str, object]]] = [
        (b"", {}),
        (b"\xff\x00 no text", {}),
        (b"alike", {}),
        (b"alike", {}),
        (b"named", {"message_id": "1"}),
        (b"named differently", {"message_id": "1"}),
        (b"{}", {"type": "headway.letter", "message_id": "x"}),
        (b'{"letter_id": 1', {"type": "headway.letter", "message_id": "y"}),
        (msgspec.json.encode({"letter_id": ""}), {"type": "headway.letter"}),
        (b"[" * 5_000, {"headers": {"headway-operation": 7, "CC": [MAILS.failed]}}),
        (
            b"odd",
            {"headers": {"x-death": "nobody", "a": {"b": [1, None]}, "x-delivery-count": "c"}},
        ),
        (b"odd too", {"headers": {"x-death": [7, {"queue": 7}, {"reason": "rejected"}]}}),
        (b"signed", {"user_id": "guest", "expiration": "3600000", "timestamp": 2**62}),
    ]
    for body, properties in garbage:
        put(harness.url, FAILED, body, **properties)
    first = await all_of(parts)
    assert first[0] == letter
    assert [each.body for each in first[1:]] == [body for body, _ in garbage]
    assert {each.abandoned_reason for each in first[1:]} == {Reason.MALFORMED}
    assert len({each.letter_id for each in first}) == len(first)
    assert "published it straight into shop.failed" in first[1].last_error
    for _ in range(25):
        assert await all_of(parts) == first
    assert sorted(bodies(harness)) == sorted(
        [msgspec.json.encode(letter), *(b for b, _ in garbage)]
    )
    assert len(contents(harness.url, MAILS.failed)) == 1  # the header sent it there, and no copy

    queues = FailedQueues(without_store(parts), harness.clock, SystemChance())
    report = await queues.requeue(FAILED)
    assert (report.done, len(report.skipped)) == (1, len(garbage))
    assert "name a target queue" in report.skipped[0].reason
    elsewhere = first[2]
    message = again(elsewhere, MAILS.name)
    assert await parts.letters.requeue(FAILED, elsewhere.letter_id, message)
    (delivery,) = await take(harness, without_store(parts), 1, MAILS.name)
    assert delivery.body == b"\xff\x00 no text"
    assert await parts.letters.remove(FAILED, [each.letter_id for each in first]) == 12
    assert await all_of(parts) == []


async def test_copies_of_named_messages_are_shown_once_and_removed(harness: Harness) -> None:
    parts, (letter,) = await with_letters(harness, 1)
    for _ in range(2):
        put(harness.url, FAILED, b"named", message_id="1")
        await parts.letters.write(FAILED, [letter])
    assert len(bodies(harness)) == 5
    shown = await all_of(parts)
    assert [each.body for each in shown] == [letter.body, b"named"]
    assert len(bodies(harness)) == 2
    await parts.letters.write(FAILED, [letter, letter])
    assert await parts.letters.remove(FAILED, [letter.letter_id]) == 1
    assert [each.body for each in await all_of(parts)] == [b"named"]


async def test_of_letters_with_one_id_the_first_stands(harness: Harness) -> None:
    parts, (letter,) = await with_letters(harness, 1)
    other = msgspec.structs.replace(letter, original_event={"event_type": "Other"})
    await parts.letters.write(FAILED, [other])
    assert await all_of(parts) == [letter]


async def test_a_copy_that_lies_far_behind_is_removed_with_its_letter(harness: Harness) -> None:
    parts, letters = await with_letters(harness, 130)
    await parts.letters.write(FAILED, letters[:1])
    assert list(await parts.letters.read(FAILED, 60)) == letters[:60]
    assert await parts.letters.remove(FAILED, [letters[0].letter_id]) == 1
    assert list(await parts.letters.read(FAILED, 100, letters[59].letter_id)) == letters[60:]
    assert await all_of(parts) == letters[1:]


async def test_an_event_that_the_broker_gave_up_is_a_crash_loop(harness: Harness) -> None:
    parts = await opened(harness)
    source = "other.work.suspects"
    declare(
        harness.url,
        source,
        {
            "x-delivery-limit": 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": FAILED,
        },
    )
    event = b'{"event_type":"OrderPaid","event_id":"e-1","data":{}}'
    put(harness.url, source, event, headers={"headway-operation": "op", "headway-failures": 3})
    put(harness.url, source, b'{"event_type": "ByHand", "event_id": "e-2"}')
    with channel_to(harness.url) as channel:
        for _ in range(2 * 2):
            method, _, _ = channel.basic_get(source)
            channel.basic_nack(method.delivery_tag, requeue=True)
    while len(bodies(harness)) < 2:
        await harness.pass_time(harness.moment)
    for _ in range(25):  # it is the same when it has been published anew
        named, by_hand = await all_of(parts)
        assert (named.abandoned_reason, named.error_type) == ("crash_loop", "CrashLoopError")
        assert (named.queue, named.operation) == ("other.work", "op")
        assert (named.body, named.attempt_count) == (event, 2)
        assert (by_hand.operation, by_hand.event_type) == ("e-2", "ByHand")
        assert by_hand.body == b'{"event_type": "ByHand", "event_id": "e-2"}'
        assert named.timestamp.startswith("20")
    with pytest.raises(ConfigurationError, match=r"other\.work"):
        await parts.letters.requeue(FAILED, named.letter_id, again(named, named.queue))
    moved = again(named, MAILS.name)
    assert await parts.letters.requeue(FAILED, named.letter_id, moved)
    (delivery,) = await take(harness, without_store(parts), 1, MAILS.name)
    assert (delivery.body, delivery.travel.operation) == (event, "op")
    assert delivery.travel.generation == f"{named.letter_id}.1"


# Queues that are gone


async def test_a_missing_failed_queue_does_not_spoil_the_others(harness: Harness) -> None:
    parts, letters = await with_letters(harness, 3)
    with channel_to(harness.url) as channel:
        channel.queue_delete(MAILS.failed)
    missing, there = await parts.letters.queues()
    assert (missing.name, missing.letters) == (MAILS.failed, 0)
    assert (there.name, there.letters) == (FAILED, 3)
    assert list(await parts.letters.read(MAILS.failed, 10)) == []
    assert await parts.letters.remove(MAILS.failed, ["a"]) == 0
    assert await parts.letters.requeue(MAILS.failed, "a", sent_again(letters[0])) is False
    with pytest.raises(NotPublishedError, match=r"mail\.failed"):
        await parts.letters.write(MAILS.failed, letters)
    assert await all_of(parts) == letters


async def test_a_queue_that_is_deleted_while_it_is_read_is_empty(harness: Harness) -> None:
    parts, _ = await with_letters(harness, 150)
    await parts.letters.read(FAILED, 10)
    with channel_to(harness.url) as channel:
        channel.queue_delete(FAILED)
    assert await all_of(parts) == []
    assert await parts.letters.read(MAILS.failed, 10) == []
