"""Lines that go into a file, or to standard output."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import typer

from headway.apps.cli.file import NewFile
from headway.apps.cli.screen import many


class Export:
    """Lines on their way into a file that only its owner may read, or to standard output."""

    def __init__(
        self,
        path: Path | None,
        *,
        force: bool,
        noun: str = "letter",
        kept: str = "the letters are all still in their queue",
    ) -> None:
        self.path = path
        self.lines = 0
        self.noun = noun
        self._kept = kept
        self._file = None if path is None else NewFile(path, option="--output", force=force)
        self._write: Callable[[str], object] = partial(typer.echo, nl=False)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Take lines inside the block; the file is there when the block ends well."""
        if self._file is None:
            yield
            return
        with self._file.opened() as self._write:
            yield

    def write(self, line: str) -> None:
        self._write(line + "\n")
        self.lines += 1

    def how_far(self) -> str:
        """Say what an interruption left behind."""
        if self.path is None:
            return f"{many(self.lines, self.noun)} written"
        return f"{self.path} was not written; {self._kept}"
