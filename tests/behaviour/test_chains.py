"""Handlers that publish in answer to each other: a chain without an end is stopped, visibly."""

import logging

import pytest

from headway import ConfigurationError, Event, Service, Work
from headway.testing import Trial

GUARD = 1_200
"""Ends a test whose loop is not stopped."""


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


class Ring:
    """Services in a ring: each answers the event of the one before it."""

    def __init__(self, *services: Service, until: int = GUARD) -> None:
        self.services = services
        self.runs = 0
        for index, service in enumerate(services):
            answer = f"Event{(index + 1) % len(services)}"

            async def turn(event: Event, work: Work, answer: str = answer) -> None:
                self.runs += 1
                work.documents("turns").add({"of": answer})
                if self.runs < until:
                    work.publish(answer)

            service.on(f"Event{index}")(turn)


async def run(ring: Ring) -> Trial:
    trial = Trial(*ring.services)
    await trial.publish("Event0")
    await trial.run()
    return trial


@pytest.mark.parametrize("count", [1, 2])
async def test_events_that_follow_each_other_for_ever_end_as_a_dead_letter(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    ring = Ring(*(Service(f"ring-{n}") for n in range(count)))
    trial = await run(ring)
    letters = [each for one in ring.services for each in await trial.letters(one.failed_queue)]
    (letter,) = letters
    assert letter.error_type == "TooManyHopsError"
    assert letter.abandoned_reason == "non_retryable"
    assert "test_chains.py" in letter.last_error
    assert "max_hops" in letter.last_error
    assert ring.runs == 1_001
    assert len(await trial.documents("turns")) == 1_000  # what the last one wrote is undone
    said = [each for each in warnings(caplog) if "max_hops" in each]
    assert len(said) == count  # each handler, once
    assert all("test_chains.py" in each and "100" in each for each in said)


async def test_a_service_may_set_another_limit() -> None:
    ring = Ring(Service("ring", max_hops=3))
    trial = await run(ring)
    (letter,) = await trial.letters("ring")
    assert letter.error_type == "TooManyHopsError"
    assert ring.runs == 4


async def test_a_service_may_go_on_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    ring = Ring(Service("ring", max_hops=None))
    trial = await run(ring)
    assert ring.runs == GUARD
    assert await trial.letters("ring") == []
    assert warnings(caplog) == []


async def test_failures_that_answer_each_other_are_counted_too() -> None:
    service, runs = Service("ring", max_hops=20), []

    @service.on("Order", failed="OrderFailed")
    async def fail(event: Event, work: Work) -> None:
        raise ValueError("it never works")

    @service.on("OrderFailed")
    async def again(event: Event, work: Work) -> None:
        runs.append(event)
        if len(runs) < 100:
            work.publish("Order")

    trial = Trial(service)
    await trial.publish("Order")
    await trial.run()
    assert (len(await trial.letters("ring")), len(runs)) == (11, 10)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many"])
def test_a_limit_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigurationError):
        Service("ring", max_hops=wrong)  # type: ignore[arg-type]
