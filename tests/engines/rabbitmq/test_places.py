"""What a broker can count and find, and what not."""

from datetime import timedelta

from headway.operations import verify
from headway.testing.conformance.examples import MAILS, ORDERS, letters_for, message, take_one
from headway.testing.engines import without_store
from headway.testing.ports import Later, Travel
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.by_hand import put
from tests.engines.rabbitmq.engine import RabbitEngineHarness as Harness


async def test_what_a_broker_can_count_is_counted(harness: Harness) -> None:
    parts, watcher = await harness.opened(), await harness.opened()
    await parts.bus.publish([message(name) for name in ("later", "taken", "ready")])
    await parts.letters.write(MAILS.failed, letters_for(["a", "b"], harness.clock.now()))
    later = await take_one(harness, without_store(parts))
    tomorrow = harness.clock.now() + timedelta(days=1)
    await parts.bus.settle([(later, Later(tomorrow, Travel(operation="later")))])
    await parts.bus.close()  # hands back what was delivered ahead
    put(harness.url, f"{ORDERS.name}.suspects", b"{}", message_id="suspect")
    places = without_store(watcher).places
    for _ in range(3):
        count = await places.balance()
        mails, orders, delayed = count.queues
        assert (mails.queue, mails.waiting) == (MAILS.name, 0)
        assert (orders.queue, orders.ready, orders.suspects) == (ORDERS.name, 3, 1)
        assert orders.waiting == 3
        assert (delayed.queue, delayed.delayed, delayed.waiting) == ("headway.delay", 1, 1)
        assert dict(count.failed) == {MAILS.failed: 2, ORDERS.failed: 0}
        assert (count.done, count.accepted, count.remembers) == (0, None, False)
    assert await places.astray(10) == (0, [])
    assert (await verify(places)).verdict == "unknown"


async def test_a_deleted_queue_does_not_break_the_count(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    parts = await harness.opened()
    await parts.bus.publish([message("a")])
    gone = (MAILS.name, MAILS.failed, f"{ORDERS.name}.suspects", "headway.delay.600")
    for queue in gone:
        rabbitmq_server.delete_queue(harness.url, queue)
    count = await parts.places.depths()
    found = [(each.queue, each.ready) for each in count.queues]
    assert found == [(MAILS.name, 0), (ORDERS.name, 1)]
    assert dict(count.failed) == {MAILS.failed: 0, ORDERS.failed: 0}
    assert dict(await parts.places.where(["a"])) == {}


async def test_letters_are_found_in_every_failed_queue_and_stay(harness: Harness) -> None:
    parts, letters = await harness.with_letters(1_200)
    await parts.letters.write(MAILS.failed, letters[:1])
    for _ in range(3):
        assert dict(await parts.places.where(["operation-0", "operation-1199", "unknown"])) == {
            "operation-0": ["failed in mail.failed", "failed in shop.failed"],
            "operation-1199": ["failed in shop.failed"],
        }
    assert dict((await parts.places.depths()).failed) == {MAILS.failed: 1, ORDERS.failed: 1_200}
