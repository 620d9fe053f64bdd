"""Load public names on first use: what a program does not use costs it nothing."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Give the `__getattr__` of a module whose names lie in other modules of headway."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(f"headway.{homes[name]}"), name)

    return load
