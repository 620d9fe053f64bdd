"""Handle one event in somebody else's consumer loop, by the same rule that services use.

Who has a loop of their own (pika, aiokafka, FastStream) keeps their broker, their acks and their
threads. A coroutine function waits between attempts without blocking anybody. A plain function has
nothing to wait with, so it is tried once, and the caller is told when to try again and with what.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from headway.core.errors import ConfigurationError
from headway.runtime.case import Abandoned, Case, Decision, Handling
from headway.runtime.intake import Intake
from headway.runtime.retrying import is_async


def handle(handling: Handling, handler: Callable[[Any], Any], intake: Intake) -> Any:
    """Run the handler; for a coroutine function, give a coroutine that does."""
    case = Case(handling, intake, handler)
    if is_async(handler):
        return _handle_async(handling, handler, case)
    for name, keep in (("dlq", handling.dlq), ("park", handling.park)):
        if keep is not None and is_async(keep):
            raise ConfigurationError(
                f"{name}={keep!r} is a coroutine function and the handler is not: write both "
                "with 'async def', or neither"
            )
    return _handle(handling, handler, case)


def _handle(handling: Handling, handler: Callable[[Any], Any], case: Case) -> Any:
    try:
        answer = handler(case.begin())
    except Exception as error:  # decided on by the rule
        decision = case.failed(error)
        if decision is None:
            raise
        with case.until_kept():
            _refuse_awaitable(_keep(handling, decision))
        case.tell(error)
        return decision
    _refuse_awaitable(answer)
    case.succeeded()
    return answer


async def _handle_async(
    handling: Handling, handler: Callable[[Any], Awaitable[Any]], case: Case
) -> Any:
    while True:
        try:
            answer = await handler(case.begin())
        except Exception as error:  # decided on by the rule; a cancellation passes through
            decision = case.failed(error)
            if decision is None:
                raise
            if isinstance(decision, Abandoned) or handling.park is not None:
                with case.until_kept():
                    kept = _keep(handling, decision)
                    if inspect.isawaitable(kept):
                        await kept
                case.tell(error)
                return decision
            case.tell(error)
        else:
            case.succeeded()
            return answer
        await handling.clock.wait(decision.delay)


def _keep(handling: Handling, decision: Decision) -> object:
    if isinstance(decision, Abandoned):
        return handling.dlq(decision.letter) if handling.dlq else None
    return handling.park(decision) if handling.park else None


def _refuse_awaitable(answer: object) -> None:
    if not inspect.isawaitable(answer):
        return
    if inspect.iscoroutine(answer):
        answer.close()
    raise ConfigurationError(
        "a plain function gave back something to await: write it with 'async def', so that it is "
        "awaited, and retried without blocking"
    )
