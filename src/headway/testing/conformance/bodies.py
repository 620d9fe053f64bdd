"""What no body of the user's own can do: end those who commit it, or leave its work for later."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from headway.core.writes import Increment
from headway.ports.commit import Finish, Outcome, TransactionBody
from headway.ports.engine import Engine
from headway.testing.conformance.examples import kinds, opened, publish, take, unit
from headway.testing.conformance.harness import Capability, EngineHarness

ENDS = (SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit())


def body_for(
    harness: EngineHarness,
    *rows: str,
    calls: Callable[[], object] = lambda: None,
    error: BaseException | None = None,
) -> TransactionBody:
    """Make a body that writes rows, makes a call, and raises."""

    async def waiting(session: Any) -> None:
        for row in rows:
            written = harness.write_row(session, row)
            if written is not None:
                await written
        calls()
        if error is not None:
            raise error

    return waiting


class BodiesConformance:
    """A body is refused alone, whatever it does."""

    async def test_what_ends_programs_only_refuses_the_unit(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        bodies = [body_for(harness, error=error) for error in ENDS]
        for finish, error in zip(await _finished(harness, engine, bodies), ENDS, strict=True):
            assert isinstance(finish.error, Exception)
            assert type(error).__name__ in str(finish.error)

    async def test_a_body_of_which_nothing_has_run_is_refused(self, harness: EngineHarness) -> None:
        def generates(_: Any) -> Iterator[None]:
            yield

        async def awaits(_: Any) -> None:
            pass

        async def generates_later(_: Any) -> AsyncIterator[None]:
            yield

        def gives_a_generator(_: Any) -> object:
            return (number for number in range(3))

        async def gives_what_awaits(_: Any) -> object:
            return awaits(_)

        engine = await opened(harness)
        bodies = [generates, gives_what_awaits, generates_later, gives_a_generator]
        for finish in await _finished(harness, engine, bodies):
            assert isinstance(finish.error, TypeError)
            assert "nothing has run" in str(finish.error)
            assert "bodies.py:" in str(finish.error)

    async def test_plain_and_coroutine_functions_are_bodies(self, harness: EngineHarness) -> None:
        """A plain function may give back what has to be awaited."""
        harness.needs(Capability.OWN_TABLES)
        engine = await opened(harness)
        called = []

        async def awaits(session: Any) -> None:
            await awaits_inside(session)

        async def awaits_inside(session: Any) -> None:
            if (written := harness.write_row(session, "coroutine")) is not None:
                await written

        bodies: list[TransactionBody] = [
            awaits,
            lambda session: harness.write_row(session, "plain"),
            lambda _: called.append("plain"),
        ]
        await publish(engine, *(f"operation-{number}" for number in range(len(bodies))))
        taken = await take(harness, engine, len(bodies))
        finishes = await engine.finisher.finish(
            [
                unit(delivery, harness.clock.now(), bodies=(body,))
                for delivery, body in zip(taken, bodies, strict=True)
            ]
        )
        assert kinds(finishes) == [Outcome.COMMITTED] * len(bodies)
        assert sorted(await harness.rows()) == ["coroutine", "plain"]
        assert called


async def _finished(
    harness: EngineHarness, engine: Engine, bodies: Sequence[TransactionBody]
) -> list[Finish]:
    """Let units with these bodies be refused, among others that are committed."""
    mixed: list[tuple[TransactionBody, ...]] = [(), *((body,) for body in bodies), ()]
    await publish(engine, *(f"operation-{number}" for number in range(len(mixed))))
    taken = await take(harness, engine, len(mixed))
    now, writes = harness.clock.now(), (Increment("docs", "counter", "n"),)
    finishes = await engine.finisher.finish(
        [
            unit(delivery, now, writes=writes, bodies=its)
            for delivery, its in zip(taken, mixed, strict=True)
        ]
    )
    assert kinds(finishes) == [
        Outcome.COMMITTED,
        *(Outcome.REFUSED for _ in bodies),
        Outcome.COMMITTED,
    ]
    assert (await engine.documents.fetch("docs", ["counter"]))["counter"]["n"] == 2
    return list(finishes[1:-1])
