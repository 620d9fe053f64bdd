"""Check what `Service.on` is told, when a handler is declared: nothing wrong waits for an event."""

import inspect
import typing
from datetime import timedelta
from typing import Any

from headway.core.data_type import Decoder, decoder, fields, is_data_type
from headway.core.errors import ConfigurationError
from headway.core.event import Event
from headway.core.origin import is_coroutine, origin
from headway.core.routing import checked_name
from headway.core.suggestion import nearest

_DATA = "Use a msgspec Struct, a dataclass, a TypedDict or a pydantic model (version 2)."
_SHOWN = 80
_OURS = ".suspects"
_RETRIED = ("headway_retried", "retry_with")
"""What headway.retry and tenacity.retry leave on a function."""


class Declaration:
    """One handler and its arguments."""

    def __init__(self, event_type: str, handler: Any) -> None:
        self._event_type = event_type
        self._handler = handler

    def refused(self, argument: str, why: str) -> ConfigurationError:
        """Say what is wrong with an argument, and whose it is."""
        about = f"for {self._event_type} ({origin(self._handler)})"
        return ConfigurationError(f"Invalid {argument} {about}: {why}")

    def check_handler(self) -> None:
        """Refuse what is not called with an event and its work."""
        handler = self._handler
        named = f"Invalid handler {shown(handler)} for {self._event_type}"
        if not callable(handler) or isinstance(handler, type):
            raise ConfigurationError(f"{named}: it is no function. Use async def on(event, work).")
        if any(mark in getattr(handler, "__dict__", {}) for mark in _RETRIED):
            raise ConfigurationError(
                f"{named}: it is retried by a decorator, and each try would write and publish once "
                "more. Remove the decorator: the service retries its events. Or retry a function "
                "that is not given work."
            )
        plain = inspect.unwrap(handler)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise ConfigurationError(
                f"{named}: it has a yield in it, so calling it runs nothing. Remove the yield."
            )
        try:
            signature = inspect.signature(handler)
            signature.bind(None, None)
        except TypeError:
            method = next(iter(signature.parameters), "") == "self"
            cure = (
                "Declare it on an object: service.on(...)(thing.method)."
                if method
                else "Use (event, work)."
            )
            raise ConfigurationError(
                f"{named}: it does not take two arguments, it takes {signature}. {cure}"
            ) from None
        if list(signature.parameters)[:2] == ["work", "event"]:
            raise ConfigurationError(f"{named}: it is called (event, work). Swap its arguments.")

    def check_data(self, data: Any) -> Decoder | None:
        """Refuse what is no type of data, and a handler that expects another; give its decoder."""
        expected = self._annotated()
        if data is None:
            if expected is not None and is_data_type(expected):
                raise ConfigurationError(
                    f"Invalid handler {origin(self._handler)} for {self._event_type}: its event is "
                    f"an Event[{shown(expected)}], and without data= it gets a dict. Use "
                    f"data={shown(expected)}."
                )
            return None
        argument = f"data={shown(data)}"
        if is_data_type(type(data)):
            kind = type(data).__name__
            raise self.refused(argument, f"this is an instance. Use data={kind}.")
        if data is dict or typing.get_origin(data) is dict:
            raise self.refused(
                argument, "without data= it is a dict. Leave data= out, or use a TypedDict."
            )
        if not is_data_type(data):
            raise self.refused(argument, f"it does not name the fields of a JSON object. {_DATA}")
        try:
            found = decoder(data)
        except Exception as error:  # whatever is wrong with a type of the user's own
            why = f"{type(error).__name__}: {error}"
            raise self.refused(argument, f"msgspec cannot read it, {why}. {_DATA}") from error
        if expected is not None and is_data_type(expected) and not _is_kind_of(data, expected):
            raise self.refused(
                argument,
                f"the handler expects an Event[{shown(expected)}]. Use the same type in both.",
            )
        return found

    def _annotated(self) -> Any:
        """Give T where the handler says that it takes an Event[T]; None: it does not say."""
        try:
            plain: Any = inspect.unwrap(self._handler)
            first = next(iter(inspect.signature(plain).parameters), "")
            annotation = typing.get_type_hints(plain).get(first)
        except Exception:  # noqa: BLE001 (annotations are the user's own, and may name anything)
            return None
        of = typing.get_args(annotation)
        return of[0] if typing.get_origin(annotation) is Event and of else None

    def check_dedup(self, dedup: Any, data: Any) -> None:
        if dedup is None:
            return
        if isinstance(dedup, str):
            self._check_field("dedup", dedup, dedup, data)
        else:
            self._check_function("dedup", dedup, "(event)", 'or the name of a field, dedup="order"')

    def check_documents(self, documents: Any, data: Any, rebuild: Any) -> None:
        """Refuse all but a collection with a field, or with a function of the event."""
        if documents is None:
            if rebuild is not None:
                raise self.refused(
                    f"rebuild={shown(rebuild)}",
                    'there is no documents=. Use documents=("orders", "order_id") with it.',
                )
            return
        argument = f"documents={shown(documents)}"
        pair = isinstance(documents, tuple) and len(documents) == 2  # noqa: PLR2004 (a pair)
        if not pair or not isinstance(documents[0], str) or not documents[0]:
            collection = documents if isinstance(documents, str) and documents else "orders"
            raise self.refused(
                argument,
                "it is no pair of a collection and the field that holds the ids. Use "
                f'documents=("{collection}", "order_id").',
            )
        named = documents[1]
        if isinstance(named, str):
            self._check_field("documents", named, documents, data)
        else:
            example = f'or the name of a field, documents=("{documents[0]}", "order_id")'
            self._check_function("documents", named, "(event)", example)
            if rebuild is None:
                raise self.refused(
                    argument,
                    "a sweep cannot tell which field holds the ids. Use rebuild= with it, a "
                    "function that makes the data of an event from a document.",
                )
        if rebuild is not None:
            self._check_function("rebuild", rebuild, "(document)", "that gives the data")

    def check_failed(self, failed: Any, failed_data: Any) -> None:
        if failed is not None:
            if not isinstance(failed, str):
                raise self.refused(
                    f"failed={shown(failed)}",
                    'it is no event type. Use a text, failed="OrderFailed".',
                )
            self.check_name("failed", failed)
            if failed == self._event_type:
                raise self.refused(
                    f"failed={failed!r}", "it would fail again and again. Use another type."
                )
        if failed_data is None:
            return
        if failed is None:
            raise self.refused(
                f"failed_data={shown(failed_data)}",
                "there is no failed=. Use failed= with it, the type of the event.",
            )
        self._check_function("failed_data", failed_data, "(event, facts)", "that gives the data")

    def check_timeout(self, timeout: Any) -> None:
        if timeout is None:
            return
        argument = f"timeout={shown(timeout)}"
        if not isinstance(timeout, timedelta):
            seconds = timeout if isinstance(timeout, int | float) else 20
            raise self.refused(
                argument, f"it is no duration. Use timeout=timedelta(seconds={seconds})."
            )
        if timeout <= timedelta():
            raise self.refused(
                argument,
                "it ends before it begins. Use a positive timedelta, or None for no limit.",
            )
        if not is_coroutine(self._handler):
            raise self.refused(
                argument,
                "a plain function runs in a thread, which cannot be stopped from outside. Use "
                "async def, or limit what it waits for.",
            )

    def check_name(self, argument: str, name: Any) -> str:
        """Refuse a name that engines do not take."""
        checked = checked_name(argument, name, f" ({origin(self._handler)})")
        if argument == "queue" and checked.endswith(_OURS):
            raise self.refused(
                f"queue={checked!r}", "Headway names queues of its own so. Use another queue=."
            )
        return checked

    def _check_field(self, argument: str, name: str, value: Any, data: Any) -> None:
        known = None if data is None else fields(data)
        if name and (known is None or name in known):
            return
        if not name:
            raise self.refused(
                f"{argument}={shown(value)}", "the name of the field is empty. Name one."
            )
        near = nearest(name, known or ())
        cure = (
            f"Did you mean {near!r}?" if near else f"Use one of {', '.join(sorted(known or ()))}."
        )
        raise self.refused(
            f"{argument}={shown(value)}", f"{shown(data)} has no field {name!r}. {cure}"
        )

    def _check_function(self, argument: str, function: Any, takes: str, what: str) -> None:
        cure = f"Use a plain function {takes}, {what}."
        given = f"{argument}={shown(function)}"
        if not callable(function):
            raise self.refused(given, f"it is no function. {cure}")
        if is_coroutine(function):
            raise self.refused(given, f"it is a coroutine function, which is not awaited. {cure}")
        if inspect.isgeneratorfunction(inspect.unwrap(function)):
            raise self.refused(given, f"it has a yield in it, so calling it runs nothing. {cure}")
        try:
            signature = inspect.signature(function)
        except ValueError:  # written in C
            return
        try:
            signature.bind(*takes.split(","))
        except TypeError:
            raise self.refused(given, f"it takes {signature}. {cure}") from None


def shown(value: Any) -> str:
    """Show what was given: functions by their place, types by their names."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, type):
        return value.__name__
    if inspect.isroutine(value) or (callable(value) and hasattr(value, "func")):
        return f"<{origin(value)}>"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_kind_of(data: Any, expected: Any) -> bool:
    given, wanted = (typing.get_origin(each) or each for each in (data, expected))
    return given is wanted or (
        not hasattr(wanted, "__required_keys__") and issubclass(given, wanted)
    )
