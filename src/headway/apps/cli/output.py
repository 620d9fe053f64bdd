"""Standard output and standard error, whose failures are told from all other errors."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

from headway.apps.cli.codes import CANNOT_GO_ON, OUTPUT_CLOSED

_OUTPUT, _ERRORS = 1, 2
_NAMES = {_OUTPUT: "standard output", _ERRORS: "standard error"}


class OutputError(OSError):
    """Text could not be written to standard output or standard error.

    It has no errno and is no BrokenPipeError: an engine that is gone raises those, and packages
    that print have their own answer to them.
    """

    def __init__(self, file: int, error: OSError) -> None:
        super().__init__(f"Cannot write to {_NAMES[file]}: {error.strerror or error}.")
        self.is_closed = error.errno == errno.EPIPE
        """True: the program that read it is gone."""
        self.done = ""
        """What the command has done nevertheless, for the person who sees the error."""


class _Checked(io.FileIO):
    """A descriptor that raises OutputError."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(self.fileno(), error) from None


@contextmanager
def checked_output() -> Iterator[None]:
    """Have what is printed inside the block raise OutputError, and write all of it at the end."""
    sys.stdout, sys.stderr = _checked(sys.stdout, _OUTPUT), _checked(sys.stderr, _ERRORS)
    try:
        yield
    finally:
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.exc_info()[0] is not OutputError:
            sys.stdout.flush()


def _descriptor(stream: io.TextIOWrapper) -> int | None:
    try:
        return stream.fileno()
    except io.UnsupportedOperation:  # it is in memory
        return None


def _checked(stream: TextIO, file: int) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or _descriptor(stream) != file:
        return stream  # None, where a shell has closed it, or a test's own
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Checked(file, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=file == _ERRORS or stream.line_buffering,
        write_through=stream.write_through,
    )


@contextmanager
def after_a_change(history: str, *, made: bool) -> Iterator[None]:
    """Print what came of a change; if that cannot be printed, say which command shows it."""
    try:
        yield
    except OutputError as error:
        error.done = f" The change is made and recorded: {history}" * made
        raise


def end(error: OutputError) -> NoReturn:
    """End the process: silently if its reader is gone, else with one line."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # What is still buffered would fail again when Python ends.
    if error.is_closed:
        os.dup2(nowhere, _OUTPUT)
        os.dup2(nowhere, _ERRORS)
        sys.exit(OUTPUT_CLOSED)
    os.dup2(nowhere, _OUTPUT)
    try:
        sys.stderr.write(f"headway: {error}{error.done}\n")
    except OutputError:
        os.dup2(nowhere, _ERRORS)
    sys.exit(CANNOT_GO_ON)
