"""Find services and settings by the names that a person types: `package.module:service`."""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, TracebackType

from headway.core.errors import ConfigurationError
from headway.core.failure import note
from headway.core.sequence_settings import SequenceSettings
from headway.core.showing import described
from headway.core.suggestion import suggestion
from headway.core.traces import trace
from headway.runtime.service import Service

_IMPORTING = (__file__, importlib.__file__, "<frozen importlib.")


def load_services(names: Iterable[str]) -> list[Service]:
    """Import services; a module without a name behind it gives all of its own."""
    _look_here_first()
    found: list[Service] = []
    for name in names:
        found.extend(service for service in _load(name) if service not in found)
    return found


def load_sequence_settings(name: str) -> SequenceSettings:
    """Import the settings of a resequencer."""
    _look_here_first()
    place, _, attribute = name.partition(":")
    value = getattr(_module(name, place), attribute, None) if attribute else None
    if not isinstance(value, SequenceSettings):
        raise ConfigurationError(
            f"{name!r} names no SequenceSettings: give them a name of their own in the module, and "
            "name them as MODULE:NAME, such as shop:patience"
        )
    return value


def _look_here_first() -> None:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _load(name: str) -> list[Service]:
    place, _, attribute = name.partition(":")
    module = _module(name, place)
    if attribute:
        value = getattr(module, attribute, None)
        if not isinstance(value, Service):
            raise ConfigurationError(
                f"{name!r} is no service{_meant(module, attribute)}; name it as MODULE:SERVICE"
            )
        return [value]
    every = (getattr(module, each, None) for each in _named_in(module))
    services = [value for value in every if isinstance(value, Service)]
    if not services:
        raise ConfigurationError(
            f"{place!r} holds no service: make one with Service(...) and name it as MODULE:SERVICE"
        )
    return services


def _module(name: str, place: str) -> ModuleType:
    if place.endswith(".py"):
        path = Path(place).with_suffix("")
        parts = (
            path.relative_to(Path.cwd()).parts if path.is_relative_to(Path.cwd()) else path.parts
        )
        raise ConfigurationError(
            f"{name!r} is not accepted: name the module as Python imports it, "
            f"{'.'.join(part for part in parts if part not in {'/', '..'})}"
        )
    if not all(part.isidentifier() for part in place.split(".")):
        raise ConfigurationError(
            f"{name!r} is not accepted: use MODULE:SERVICE, such as shop:orders"
        )
    try:
        return importlib.import_module(place)
    except ConfigurationError:
        raise  # it says itself which handler or setting is wrong, and where
    except Exception as error:  # whatever a module of the user's raises
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{place}.".startswith(f"{missing}."):
            raise ConfigurationError(
                f"{name!r} is not accepted: there is no module {missing!r} here "
                f"({Path.cwd().name}/) nor installed"
            ) from None
        # Otherwise it was found, and it fails, or something that it imports is missing.
        refused = ConfigurationError(f"{name!r} cannot be imported: {described(error)}")
        note(refused, trace(error.with_traceback(_of_user(error.__traceback__))).rstrip())
        raise refused from error


def _of_user(stack: TracebackType | None) -> TracebackType | None:
    """Leave out how the module came to be imported."""
    while stack is not None and stack.tb_frame.f_code.co_filename.startswith(_IMPORTING):
        stack = stack.tb_next
    return stack


def _named_in(module: ModuleType) -> Iterable[str]:
    """Name what a module holds, and what it makes when it is asked for (`__all__`)."""
    return dict.fromkeys([*vars(module), *getattr(module, "__all__", ())])


def _meant(module: ModuleType, attribute: str) -> str:
    there = vars(module)
    known = [
        key for key in _named_in(module) if key not in there or isinstance(there[key], Service)
    ]
    if not known:
        return ""
    return f", {suggestion(attribute, known, before=f'{module.__name__}:')}"
