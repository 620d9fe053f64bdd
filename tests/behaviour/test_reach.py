"""A worker that lives and gets nothing says so."""

from datetime import timedelta

from headway import Service
from headway.facts import ReachChanged
from headway.testing.trial import Trial
from tests.behaviour.sweeps import with_bus, working


async def test_silence_is_told_once_and_its_end_too() -> None:
    services = [Service(name) for name in ("shop", "mail")]
    for service in services:
        service.on("Made")(lambda _event, _work: None)
    trial, is_silent, is_broken = Trial(*services), False, False
    last = trial.clock.now()

    async def proven() -> object:
        nonlocal last
        if is_broken:
            raise ConnectionError("the broker is unavailable")
        last = last if is_silent else trial.clock.now()
        return last

    def told() -> list[tuple[str, bool]]:
        return [(fact.service, fact.silent) for fact in trial.facts.of(ReachChanged)]

    async with working(trial, *services, engine=with_bus(trial.engine, proven=proven)):
        await trial.clock.wait(timedelta(minutes=5))
        is_silent, silent_since = True, trial.clock.now()
        await trial.clock.wait(timedelta(seconds=29))
        assert told() == []
        await trial.clock.wait(timedelta(seconds=10))
        is_broken = True
        await trial.clock.wait(timedelta(seconds=20))
        assert told() == [("shop", True), ("mail", True)]
        is_broken = is_silent = False
        await trial.clock.wait(timedelta(seconds=6))
        assert told()[2:] == [("shop", False), ("mail", False)]
        lasted = trial.facts.of(ReachChanged)[-1].lasted
        assert trial.clock.now() - silent_since - lasted < timedelta(seconds=12)
