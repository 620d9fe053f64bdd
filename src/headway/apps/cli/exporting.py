"""A file that is complete, or not there at all."""

import os
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import typer

from headway.apps.cli.screen import many
from headway.core.errors import ConfigurationError


class Export:
    """Lines on their way into a file, or to standard output without a path.

    They are written beside the file, and take its name when all of them are stored.
    """

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
        self._force = force
        self._beside: Path | None = None
        self._stream: IO[str] | None = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        if self.path.exists() and not self._force:
            raise ConfigurationError(
                f"--output {str(self.path)!r} is not accepted: it is there already; name another "
                "file, or say --force to replace it"
            )
        self._beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            self._stream = self._beside.open("w", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"--output {str(self.path)!r} is not accepted: {error.strerror or error}"
            ) from None
        return self

    def write(self, line: str) -> None:
        if self._stream is None:
            typer.echo(line)
        else:
            self._stream.write(line + "\n")
        self.lines += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is None or self._beside is None or self.path is None:
            return
        try:
            with self._stream:
                if error is None:
                    self._stream.flush()
                    os.fsync(self._stream.fileno())
            if error is None:
                self._beside.replace(self.path)
        finally:
            self._beside.unlink(missing_ok=True)

    def how_far(self) -> str:
        """Say what an interruption left behind."""
        if self.path is None:
            return f"{many(self.lines, self.noun)} written"
        return f"{self.path} was not written; {self._kept}"
