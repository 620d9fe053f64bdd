"""How letters look to a person: a case file each, from what happened to the event itself."""

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headway.apps.cli.screen import as_json, harmless, many, when
from headway.core.letter import Letter
from headway.core.travel import AttemptRecord

_EVENT_LINES = 40
_BYTES_SHOWN = 400
_INDENT = 4


def show_letters(letters: Sequence[Letter], *, tracebacks: bool) -> None:
    """Print a case file for each letter."""
    console = Console(highlight=False)
    for letter in letters:
        console.print(Text("Letter ", "bold").append_text(harmless(letter.letter_id)))
        console.print(_facts(letter))
        if letter.attempts:
            console.print(Text("  attempts", "bold"))
        for attempt in letter.attempts:
            _show_attempt(console, attempt, tracebacks=tracebacks)
        console.print(Text("  event", "bold"))
        for line in _event(letter):
            console.print(Padding(line, (0, 0, 0, _INDENT)))
        console.print()


def _facts(letter: Letter) -> Table:
    facts = {
        "reason": f"{letter.abandoned_reason} after {many(letter.attempt_count, 'retry')}",
        "error": letter.last_error,
        "type": letter.event_type or "(unknown)",
        "from": letter.queue or "(unknown)",
        "service": letter.service_name,
        "key": letter.idempotency_key,
        "operation": letter.operation,
        "written": when(letter.timestamp),
    }
    if letter.requeues:
        facts["requeued"] = f"{many(letter.requeues, 'time')} before"
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(f"  {name}", harmless(value))
    return table


def _show_attempt(console: Console, attempt: AttemptRecord, *, tracebacks: bool) -> None:
    head = f"{attempt.number}  {when(attempt.at)}  {attempt.worker}  {attempt.verdict}"
    head += f" by {attempt.rule}" if attempt.rule else ""
    console.print(Padding(harmless(head), (0, 0, 0, _INDENT)))
    error = f"{attempt.error_type}: {attempt.message}"
    console.print(Padding(harmless(error), (0, 0, 0, _INDENT + 3)))
    if tracebacks:
        for line in attempt.traceback.splitlines():
            console.print(Padding(harmless(line), (0, 0, 0, _INDENT + 3)))


def _event(letter: Letter) -> Sequence[Text]:
    if letter.original_event is None and letter.original_base64 is not None:
        return _bytes(letter)
    lines = as_json(letter.original_event, indent=2).splitlines()
    if len(lines) > _EVENT_LINES:
        left_out = many(len(lines) - _EVENT_LINES, "line")
        lines = [*lines[:_EVENT_LINES], f"... {left_out} more; --json shows all"]
    return [harmless(line) for line in lines]


def _bytes(letter: Letter) -> Sequence[Text]:
    try:
        body = letter.body
    except ValueError as error:
        return [harmless(f"its bytes cannot be read: {error}")]
    text = body[:_BYTES_SHOWN].decode(errors="backslashreplace")
    cut = "..." * (len(body) > _BYTES_SHOWN)
    return [harmless(f"no JSON, {many(len(body), 'byte')}:"), harmless(text + cut)]


def letter_as_json(letter: Letter) -> str:
    """Write a letter on one line, with every field."""
    return as_json(msgspec.to_builtins(letter))
