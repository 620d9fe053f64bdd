"""The same text as Python's own, only quicker."""

import traceback
from collections.abc import Callable

import pytest

from headway.core.traces import trace


def plain() -> None:
    raise ValueError("käse\n✓")


def from_cause() -> None:
    try:
        plain()
    except ValueError as error:
        raise KeyError("outer") from error


def in_context() -> None:
    try:
        from_cause()
    except KeyError:
        raise OSError(2, "no such thing")  # noqa: B904 (that is the case)


def suppressed() -> None:
    try:
        plain()
    except ValueError:
        raise RuntimeError from None


def with_notes() -> None:
    error = ValueError("noted")
    error.add_note("a note")
    raise error


class OwnError(Exception):
    class WithinError(Exception):
        pass


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no word")


class StrayError(Exception):
    __module__ = None  # type: ignore[assignment]


def of_my_own() -> None:
    raise OwnError.WithinError


def without_words() -> None:
    raise MuteError


def from_nowhere() -> None:
    raise StrayError("no module")


def misspelt() -> None:
    plian()  # type: ignore[name-defined]  # noqa: F821 (that is the case)


def misnamed() -> None:
    "text".uper()  # type: ignore[attr-defined]


def of_syntax() -> None:
    compile("a b c", "<text>", "exec")


def deep(depth: int = 0) -> None:
    deep(depth + 1)


def in_a_group() -> None:
    errors = []
    for raising in (plain, from_cause):
        try:
            raising()
        except (ValueError, KeyError) as error:
            errors.append(error)
    raise ExceptionGroup("several", errors)


def around_a_group() -> None:
    try:
        in_a_group()
    except ExceptionGroup as error:
        raise ValueError("of a group") from error


def in_a_ring() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


RAISING = [
    plain,
    from_cause,
    in_context,
    suppressed,
    with_notes,
    of_my_own,
    without_words,
    from_nowhere,
    misspelt,
    misnamed,
    of_syntax,
    deep,
    in_a_group,
    around_a_group,
    in_a_ring,
]


@pytest.mark.parametrize("raising", RAISING, ids=lambda each: each.__name__)
def test_an_exception_is_written_as_python_writes_it(raising: Callable[[], None]) -> None:
    for _ in range(3):  # the first time by Python, then from memory
        with pytest.raises(BaseException) as caught:
            raising()
        assert trace(caught.value) == "".join(traceback.format_exception(caught.value))


def test_an_exception_that_was_never_raised() -> None:
    assert trace(ValueError("new")) == "ValueError: new\n"


def test_two_lines_of_one_function_are_told_apart() -> None:
    def either(first: bool) -> None:  # noqa: FBT001 (short)
        if first:
            raise ValueError("one")
        raise ValueError("other")

    texts = []
    for first in (True, False, True):
        try:
            either(first)
        except ValueError as error:
            texts.append(trace(error))
    assert 'raise ValueError("one")' in texts[0]
    assert 'raise ValueError("other")' in texts[1]
    assert texts[0] == texts[2]


def test_an_exception_that_cannot_be_shown() -> None:
    class HostileError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

        def __getattribute__(self, name: str) -> object:
            raise RuntimeError(name)

    assert "cannot be shown" in trace(HostileError())
