"""What can be retried: functions, methods and callable objects of every kind."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest

from headway import ConfigurationError, retry, retry_on_oc000
from headway.facts import Recovered, RetryScheduled
from headway.retrying import Stepped
from headway.testing.facts import Recorder

AT_ONCE = Stepped(steps=(timedelta(),))


class Once:
    """Fails the first time it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def answer(self, *_args: object, **_kwargs: object) -> str:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionResetError("lost")
        return "done"

    async def awaited(self, *args: object, **kwargs: object) -> str:
        await asyncio.sleep(0)
        return self.answer(*args, **kwargs)


class Service(Once):
    @retry(backoff=AT_ONCE)
    def method(self) -> str:
        return self.answer()

    @retry(backoff=AT_ONCE)
    async def async_method(self) -> str:
        return await self.awaited()

    @classmethod
    @retry
    def of_class(cls) -> str:
        return cls.__name__

    @staticmethod
    @retry
    def of_nobody(answer: str) -> str:
        return answer


async def test_methods_of_every_kind_can_be_retried() -> None:
    service, other = Service(), Service()
    assert service.method() == "done"
    assert (service.calls, other.calls) == (2, 0)
    assert await other.async_method() == "done"
    assert (service.calls, other.calls) == (2, 2)
    assert Service.of_class() == service.of_class() == "Service"
    assert Service.of_nobody("c") == service.of_nobody("c") == "c"


def test_partials_can_be_retried() -> None:
    recorder = Recorder()
    once = functools.partial(Once().answer, 1, two=2)
    assert retry(backoff=AT_ONCE, observer=recorder)(once)() == "done"
    (fact,) = recorder.of(Recovered)
    assert fact.call == "Once.answer"


class Callback(Once):
    async def __call__(self) -> str:
        return await self.awaited()


@pytest.mark.parametrize(
    "make",
    [
        lambda: functools.partial(Once().awaited),
        lambda: functools.partial(functools.partial(Once().awaited)),
        Callback,
        lambda: functools.partial(Callback()),
    ],
    ids=["partial", "partial of partial", "callable object", "partial of callable object"],
)
async def test_whatever_gives_an_awaitable_is_awaited_and_retried(
    make: Callable[[], Callable[..., Coroutine[Any, Any, str]]],
) -> None:
    recorder = Recorder()
    assert await retry(backoff=AT_ONCE, observer=recorder)(make())() == "done"
    assert [type(fact) for fact in recorder.facts] == [RetryScheduled, Recovered]


def test_the_wrapper_looks_like_what_it_wraps() -> None:
    @retry
    def plain(one: int, *, two: str = "2") -> str:
        """Say something."""
        return f"{one}{two}"

    @retry()
    async def awaited() -> None: ...

    assert plain(1) == "12"
    assert (plain.__name__, plain.__doc__) == ("plain", "Say something.")
    assert str(inspect.signature(plain)) == "(one: int, *, two: str = '2') -> str"
    assert not inspect.iscoroutinefunction(plain)
    assert inspect.iscoroutinefunction(awaited)
    pending: Awaitable[None] = awaited()
    assert inspect.iscoroutine(pending)
    pending.close()


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class GeneratorObject:
    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "function",
    [generator, async_generator, functools.partial(generator), GeneratorObject()],
    ids=["generator", "async generator", "partial", "callable object"],
)
def test_generators_are_refused(function: Callable[..., Any]) -> None:
    for decorate in (retry, retry(), retry_on_oc000()):
        with pytest.raises(ConfigurationError, match=r"is a generator: .* collect the items in a"):
            decorate(function)


@pytest.mark.parametrize("wrapped", [classmethod, staticmethod])
def test_a_decorator_in_the_wrong_order_is_refused(wrapped: type) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        retry(wrapped(len))
    assert str(refusal.value) == (
        f"a {wrapped.__name__} cannot be retried: write @{wrapped.__name__} above the retry"
    )


@pytest.mark.parametrize("thing", [5, "store", None], ids=repr)
def test_what_cannot_be_called_is_refused(thing: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        retry()(thing)
    assert str(refusal.value) == (
        f"{thing!r} cannot be retried: give a function, and settings by their names, such as "
        "max_attempts=5"
    )
