"""Follow a plan: the same steps on a sync driver, or awaited on an async one."""

import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar

from headway.core.errors import ConfigurationError
from headway.ports.transactions import Plan

T = TypeVar("T")


def follow(plan: Plan[T]) -> T:
    """Carry out a plan whose steps are done by the time they are yielded."""
    try:
        answer = next(plan)
        while True:
            if inspect.isawaitable(answer):
                answer = plan.throw(_mixed(answer))
            else:
                answer = plan.send(answer)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def follow_async(plan: Plan[T]) -> T:
    """Carry out a plan, awaiting what can be awaited; cancellation goes through the plan too."""
    try:
        answer = next(plan)
        while True:
            if inspect.isawaitable(answer):
                try:
                    answer = await answer
                except BaseException as error:  # noqa: BLE001 (the plan handles it, or raises it)
                    answer = plan.throw(error)
                    continue
            answer = plan.send(answer)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def _mixed(answer: Awaitable[Any]) -> ConfigurationError:
    if inspect.iscoroutine(answer):
        answer.close()
    return ConfigurationError(
        "a plain function for a body was given an async connection: write the body as "
        "'async def' and await run_transaction, or connect with a sync driver"
    )
