"""Dead letters in the failed queues of a broker: looking changes nothing and hides nothing."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pika
import pytest

from headway import ConfigurationError
from headway.clock import SystemChance
from headway.errors import NotPublishedError
from headway.operations import FailedQueues
from headway.retrying import Reason
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    letters_for,
    operations,
    sent_again,
    take,
)
from headway.testing.engines import RabbitParts, without_store
from headway.testing.ports import Message
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq import killed
from tests.engines.rabbitmq.by_hand import channel_to, contents, declare, put, set_policy
from tests.engines.rabbitmq.engine import RabbitEngineHarness, exported

FAILED = ORDERS.failed
REMEMBERED = "headway.adapters.rabbitmq.scanning._REMEMBERED"
FULL = pytest.param(10_000, marks=[pytest.mark.chaos, pytest.mark.timeout(900)])
Harness = RabbitEngineHarness


def operator(harness: Harness, parts: RabbitParts) -> FailedQueues:
    return FailedQueues(without_store(parts), harness.clock, SystemChance())


def bodies(harness: Harness) -> list[bytes]:
    return [body for _, body in contents(harness.url, FAILED)]


async def listed(parts: RabbitParts) -> dict[str, int]:
    return {each.name: each.letters for each in await parts.letters.queues()}


# Looking changes nothing


async def test_no_delivery_limit_removes_letters_that_are_looked_at(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    _, letters = await harness.with_letters(120)
    await set_policy(rabbitmq_server, harness.url, ".*", delivery_limit=1)
    for number in range(6):
        parts = await harness.opened()
        if number % 2:
            assert list(await parts.letters.read(FAILED, 2)) == letters[:2]
        assert await exported(parts) == letters
        assert (await listed(parts))[FAILED] == len(letters)
        assert await parts.letters.remove(FAILED, [letters.pop(60).letter_id]) == 1
        again = letters.pop(0)
        assert await parts.letters.requeue(FAILED, again.letter_id, sent_again(again))
        await parts.bus.close()
    for _ in range(2):
        parts = await harness.opened()
        assert await parts.places.where(["unknown"]) == {}
        await parts.bus.close()
    assert await exported(await harness.opened()) == letters
    await asyncio.gather(*(each.bus.close() for each in harness.parts))
    ((properties, body), *_) = contents(harness.url, FAILED)
    assert (properties.message_id, properties.type) == (letters[0].letter_id, "headway.letter")
    assert (properties.content_type, properties.delivery_mode) == ("application/json", 2)
    assert body == msgspec.json.encode(letters[0])


@pytest.mark.parametrize("number", [120, 600])
async def test_a_delivery_limit_of_zero_is_refused_and_removes_no_letter(
    harness: Harness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(REMEMBERED, 500)
    parts, letters = await harness.with_letters(number)
    await set_policy(rabbitmq_server, harness.url, FAILED, delivery_limit=0)
    if number == 120:  # that many can be published anew
        assert len(await parts.letters.read(FAILED, 10_000)) == number
    (first, *_) = letters
    for work in (
        parts.letters.read(FAILED, 10_000),
        parts.letters.remove(FAILED, [first.letter_id]),
        parts.letters.requeue(FAILED, first.letter_id, sent_again(first)),
    ):
        with pytest.raises(ConfigurationError, match=FAILED):
            await work
    for _ in range(3):
        assert (await listed(parts))[FAILED] == number
    await set_policy(rabbitmq_server, harness.url, FAILED, delivery_limit=5)
    assert {each.letter_id for each in await exported(parts)} == {e.letter_id for e in letters}


async def lose_connection(parts: RabbitParts) -> None:
    def cut(connection: pika.BlockingConnection) -> None:
        with suppress(OSError):  # it may be lost already
            connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)

    await parts.letters._looks._session.do(cut)


async def test_a_look_whose_connection_is_lost_goes_on_where_it_was(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, letters = await harness.with_letters(130)
    assert list(await parts.letters.read(FAILED, 60)) == letters[:60]
    await lose_connection(parts)
    after = letters[59].letter_id
    assert list(await parts.letters.read(FAILED, 60, after)) == letters[60:120]
    await lose_connection(parts)
    assert await parts.letters.remove(FAILED, [letters[0].letter_id]) == 1
    await lose_connection(parts)
    assert await parts.letters.requeue(FAILED, letters[1].letter_id, sent_again(letters[1]))
    publish = parts.letters._publish

    async def then_lose(messages: Sequence[Message]) -> Sequence[int]:
        answer = await publish(messages)
        await lose_connection(parts)
        return answer

    monkeypatch.setattr(parts.letters, "_publish", then_lose)
    assert await parts.letters.requeue(FAILED, letters[2].letter_id, sent_again(letters[2]))
    left = sorted(each.letter_id for each in await exported(parts))
    assert left == sorted(each.letter_id for each in letters[3:])


# Walks at once


async def test_a_walk_through_a_queue_too_long_to_keep_in_order_misses_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.adapters.rabbitmq.scanning.KEPT_IN_ORDER", 100)
    parts, letters = await harness.with_letters(450)
    assert len(await exported(parts)) == 450
    seen: list[str] = []
    async for letter in operator(harness, parts).export(FAILED):
        seen.append(letter.letter_id)
        if len(seen) in {150, 250}:
            await parts.letters.read(FAILED, 3)  # another reader in this process, in between
    assert sorted(seen) == sorted(each.letter_id for each in letters)


# Two operators


async def test_two_operators_requeue_everything_once(harness: Harness) -> None:
    first, letters = await harness.with_letters(120)
    second = await harness.opened()
    reports = await asyncio.gather(
        *(operator(harness, each).requeue(FAILED) for each in (first, second))
    )
    assert sum(report.done for report in reports) == 120
    taken = await take(harness, without_store(first), 120)
    assert sorted(operations(taken)) == sorted(each.operation for each in letters)
    assert await exported(second) == []


async def test_one_operator_exports_while_another_works_and_gets_every_letter_that_stays(
    harness: Harness,
) -> None:
    first, letters = await harness.with_letters(330)
    second = await harness.opened()
    gone = [each.letter_id for each in letters[::3]]
    found, removed = await asyncio.gather(exported(first), second.letters.remove(FAILED, gone))
    assert removed == len(gone)
    ids = [each.letter_id for each in found]
    assert {each.letter_id for each in letters} - set(gone) <= set(ids)
    assert len(set(ids)) == len(ids)


async def test_an_operator_is_told_that_another_reads_the_queue(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.adapters.rabbitmq.looks._PATIENCE", 0.3)
    parts, (letter, *_) = await harness.with_letters(3)
    other = await harness.opened()
    await parts.letters.read(FAILED, 1)
    for work in (
        other.letters.read(FAILED, 1),
        other.letters.requeue(FAILED, letter.letter_id, sent_again(letter)),
        other.letters.remove(FAILED, [letter.letter_id]),
    ):
        with pytest.raises(ConnectionError, match=FAILED):
            await work
    found = {each.name: (each.letters, each.being_read) for each in await other.letters.queues()}
    assert found == {FAILED: (0, True), MAILS.failed: (0, False)}
    assert not any(each.being_read for each in await parts.letters.queues())


async def test_without_their_store_no_letters_are_decided_about_unless_an_operator_insists(
    harness: Harness,
) -> None:
    parts, letters = await harness.with_letters(2)
    assert [each.has_store for each in await parts.letters.queues()] == [False, False]
    await harness.open_parts(has_store=True).bus.open([ORDERS])
    await harness.opened()  # later, without one
    found = {each.name: each.has_store for each in await parts.letters.queues()}
    assert found == {ORDERS.failed: True, MAILS.failed: False}
    decide = operator(harness, parts)
    for refused in (
        decide.requeue(FAILED),
        decide.requeue(FAILED, dry_run=True),
        decide.purge(FAILED),
    ):
        with pytest.raises(ConfigurationError, match="HEADWAY_STORE"):
            await refused
    assert await exported(parts) == letters
    assert (await decide.requeue(FAILED, limit=1, without_store=True)).done == 1
    assert (await decide.purge(FAILED, without_store=True)).done == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [400, FULL])
async def test_an_operator_killed_while_requeueing_loses_nothing_and_sends_one_generation(
    harness: Harness, size: int, record_property: Any
) -> None:
    parts, letters = await harness.with_letters(size)
    # Within and between pages; and then at once, and in the midst of thousands.
    kills = [60, 101] if size < 1_000 else [0, 1, 60, 100, 101, 200, 500, 700, 900, 999]
    for lines in kills:
        await killed.after(lines, harness.url, "requeue")
    found = {letter.operation: letter for letter in await exported(parts)}
    sent: defaultdict[str, set[str]] = defaultdict(set)
    for properties, _ in contents(harness.url, ORDERS.name):
        sent[properties.message_id].add(properties.headers["headway-generation"])
    assert found.keys() | sent.keys() == {letter.operation for letter in letters}
    generations = {letter.operation: {f"{letter.letter_id}.1"} for letter in letters}
    assert sent == {name: generations[name] for name in sent}
    assert found == {each.operation: each for each in letters if each.operation in found}
    assert len(sent) > 100
    both = len(found.keys() & sent.keys())
    record_property(
        "shown",
        f"{size} letters, {len(kills)} kills: {len(sent)} sent, {len(found)} left, {both} both, "
        "0 lost",
    )


# What is no letter


async def test_whatever_lies_in_a_failed_queue_is_shown_and_kept(harness: Harness) -> None:
    parts, (letter,) = await harness.with_letters(1)
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
            {"headers": {"x-death": "text", "a": {"b": [1, None]}, "x-delivery-count": "c"}},
        ),
        (b"odd too", {"headers": {"x-death": [7, {"queue": 7}, {"reason": "rejected"}]}}),
        (b"signed", {"user_id": "guest", "expiration": "3600000", "timestamp": 2**62}),
    ]
    for body, properties in garbage:
        put(harness.url, FAILED, body, **properties)
    first = await exported(parts)
    assert first[0] == letter
    assert [each.body for each in first[1:]] == [body for body, _ in garbage]
    assert {each.abandoned_reason for each in first[1:]} == {Reason.MALFORMED}
    assert len({each.letter_id for each in first}) == len(first)
    for _ in range(25):
        assert await exported(parts) == first
    assert sorted(bodies(harness)) == sorted(
        [msgspec.json.encode(letter), *(b for b, _ in garbage)]
    )
    assert len(contents(harness.url, MAILS.failed)) == 1  # the header sent it there, and no copy

    report = await operator(harness, parts).requeue(FAILED)
    assert (report.done, len(report.skipped)) == (1, len(garbage))
    elsewhere = first[2].letter_id
    target = MAILS.name
    moved = await operator(harness, parts).requeue(FAILED, ids=[elsewhere], target_queue=target)
    assert moved.done == 1
    (delivery,) = await take(harness, without_store(parts), 1, target)
    assert delivery.body == b"\xff\x00 no text"
    assert await parts.letters.remove(FAILED, [each.letter_id for each in first]) == 12
    assert await exported(parts) == []


async def test_copies_are_shown_once_and_removed_with_their_letter(harness: Harness) -> None:
    parts, letters = await harness.with_letters(130)
    await parts.letters.write(FAILED, letters[:1])
    for _ in range(3):
        put(harness.url, FAILED, b"named", message_id="1")
    assert list(await parts.letters.read(FAILED, 60)) == letters[:60]
    assert await parts.letters.remove(FAILED, [letters[0].letter_id]) == 1
    (*others, named) = await parts.letters.read(FAILED, 100, letters[59].letter_id)
    assert (others, named.body) == (letters[60:], b"named")
    assert (await exported(parts))[:-1] == letters[1:]


async def test_an_event_that_the_broker_gave_up_is_a_crash_loop(harness: Harness) -> None:
    parts = await harness.opened()
    source = "other.work.suspects"
    to_failed = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": FAILED}
    declare(harness.url, source, {"x-delivery-limit": 1, **to_failed})
    event = b'{"event_type":"OrderPlaced","event_id":"e-1","data":{}}'
    put(harness.url, source, event, headers={"headway-operation": "op", "headway-failures": 3})
    put(harness.url, source, b'{"event_type": "ByHand", "event_id": "e-2"}')
    with channel_to(harness.url) as channel:
        for _ in range(2 * 2):
            method, _, _ = channel.basic_get(source)
            channel.basic_nack(method.delivery_tag, requeue=True)
    while len(bodies(harness)) < 2:
        await harness.pass_time(harness.moment)
    for _ in range(5):  # it is the same when it has been published anew
        named, by_hand = await exported(parts)
        assert (named.abandoned_reason, named.error_type) == ("crash_loop", "CrashLoopError")
        assert (named.queue, named.operation) == ("other.work", "op")
        assert (named.body, named.attempt_count) == (event, 2)
        assert (by_hand.operation, by_hand.event_type) == ("e-2", "ByHand")
        assert by_hand.body == b'{"event_type": "ByHand", "event_id": "e-2"}'
        assert named.timestamp.startswith("20")
    decide = operator(harness, parts)
    (refused,) = (await decide.requeue(FAILED, ids=[named.letter_id])).skipped
    assert "other.work" in refused.reason
    await decide.requeue(FAILED, ids=[named.letter_id], target_queue=MAILS.name)
    (delivery,) = await take(harness, without_store(parts), 1, MAILS.name)
    assert (delivery.body, delivery.travel.operation) == (event, "op")
    assert delivery.travel.generation == f"{named.letter_id}.1"


# Queues that are gone


async def test_a_deleted_failed_queue_is_empty_and_spoils_no_other(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    parts, letters = await harness.with_letters(150)
    rabbitmq_server.delete_queue(harness.url, MAILS.failed)
    assert await listed(parts) == {MAILS.failed: 0, FAILED: 150}
    assert list(await parts.letters.read(MAILS.failed, 10)) == []
    assert await parts.letters.remove(MAILS.failed, ["a"]) == 0
    assert await parts.letters.requeue(MAILS.failed, "a", sent_again(letters[0])) is False
    with pytest.raises(NotPublishedError, match=r"mail\.failed"):
        await parts.letters.write(MAILS.failed, letters_for(["a"], harness.clock.now()))
    assert list(await parts.letters.read(FAILED, 10)) == letters[:10]
    rabbitmq_server.delete_queue(harness.url, FAILED)  # while it is read
    assert await exported(parts) == []
