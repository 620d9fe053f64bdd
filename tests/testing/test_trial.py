"""`Trial`, as those see it who test their services with it."""

import logging

import pytest

from headway import ConfigurationError, Event, Service, Work
from headway.testing.trial import Trial

orders = Service("orders")
mail = Service("mail", failed_queue="mail.outbox.failed")


@orders.on("OrderPlaced")
async def on_placed(event: Event, work: Work) -> None:
    if event.data.get("late") and work.attempt == 1:
        raise ConnectionError("no answer")
    if event.data.get("bad"):
        raise ValueError("no such order")


@mail.on("OrderPlaced")
async def send(event: Event, work: Work) -> None:
    if event.data.get("bad"):
        raise ValueError("no such address")


@pytest.mark.parametrize(
    ("meant", "error"),
    [
        ("orders.failed", "no such order"),
        ("orders", "no such order"),
        ("mail.outbox.failed", "no such address"),
        ("mail", "no such address"),
    ],
)
async def test_dead_letters_are_given_by_queue_or_service(meant: str, error: str) -> None:
    trial = Trial(orders, mail)
    await trial.publish("OrderPlaced", {"bad": True})
    await trial.run()
    (letter,) = await trial.letters(meant)
    assert letter.last_error == f"ValueError: {error}"


@pytest.mark.parametrize(
    ("meant", "words"),
    [
        (
            "oders",
            (
                r"^queue='oders' does not exist: did you mean orders\.failed\? There are: "
                r"orders\.failed, mail\.outbox\.failed$"
            ),
        ),
        ("order.failed", r"did you mean orders\.failed\?"),
        ("s", r"^queue='s' does not exist: there are: orders\.failed, mail\.outbox\.failed$"),
    ],
)
async def test_a_failed_queue_that_no_service_has_is_refused(meant: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        await Trial(orders, mail).letters(meant)


async def test_a_trial_writes_the_log_lines_of_production(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headway")
    parsing = Service("parsing")
    parsing.on("MailReceived", documents=("messages", "message_id"))(send)
    trial = Trial(orders, parsing)
    await trial.publish("OrderPlaced", {"late": True})
    await trial.publish("OrderPlaced", {"bad": True})
    await trial.publish("OrderPlacd")
    await trial.run()
    await trial.sweep()
    said = [(each.levelname, each.getMessage()) for each in caplog.records]
    for level, words in [
        ("WARNING", "Operation failed (attempt 1/3): ConnectionError: no answer"),
        ("INFO", "Event processed successfully after 1 retry attempt"),
        ("ERROR", "ValueError: no such order"),
        ("WARNING", "No service takes OrderPlacd"),
        ("WARNING", "Did you mean OrderPlaced?"),
        ("INFO", "Sweep"),
    ]:
        assert any(level == each and words in line for each, line in said), (words, said)
    assert {each.name for each in caplog.records} == {"headway"}


async def test_of_many_equal_failures_a_trial_says_how_many_when_its_worker_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trial = Trial(orders)
    for _ in range(25):
        await trial.publish("OrderPlaced", {"bad": True})
    await trial.run()
    assert [each.getMessage() for each in caplog.records if "15 more in" in each.getMessage()]
