"""How letters look to a person: a case file each, from what happened to the event itself."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from headway.apps.cli.screen import as_json, harmless, many, show_indented, when
from headway.core.letter import Letter
from headway.core.travel import AttemptRecord

_EVENT_LINES = 40
_IDS_SHOWN = 10
_BYTES_SHOWN = 400
_FACTS, _ATTEMPT, _INNER = 13, 4, 7
"""Columns where values, attempts and what belongs to an attempt begin."""


def show_letters(
    letters: Sequence[Letter], superseded: Mapping[str, str], *, tracebacks: bool
) -> None:
    """Print a case file for each letter; of those that are superseded, with the reason."""
    console = Console(highlight=False)
    for letter in letters:
        console.print(Text("Letter ", "bold") + harmless(letter.letter_id))
        facts = _facts(letter)
        if letter.letter_id in superseded:
            facts["superseded"] = superseded[letter.letter_id].removeprefix("superseded: ")
        for name, value in facts.items():
            show_indented(console, harmless(value), _FACTS, first=Text(f"  {name}"))
        if letter.attempts:
            console.print(Text("  attempts", "bold"))
        for attempt in letter.attempts:
            _show_attempt(console, attempt, tracebacks=tracebacks)
        console.print(Text("  event", "bold"))
        for line in _event(letter):
            show_indented(console, line, _ATTEMPT)
        console.print()


def _facts(letter: Letter) -> dict[str, str]:
    retries = many(letter.attempt_count, "retry", "retries")
    facts = {
        "reason": f"{letter.abandoned_reason}, after {retries}",
        "error": letter.last_error,
        "type": letter.event_type or "(unknown)",
        "from": letter.queue or "(unknown)",
        "service": letter.service_name,
        "key": letter.idempotency_key,
        "operation": letter.operation,
        "written": when(letter.timestamp),
    }
    if letter.version:
        facts["version"] = letter.version
    if letter.document_ids:
        facts["documents"] = f"{letter.collection}: {_some(letter.document_ids)}"
    if letter.requeues:
        facts["requeued"] = f"{many(letter.requeues, 'time')} before"
    return facts


def _some(ids: Sequence[str]) -> str:
    more = f", and {len(ids) - _IDS_SHOWN} more" * (len(ids) > _IDS_SHOWN)
    return ", ".join(ids[:_IDS_SHOWN]) + more


def _show_attempt(console: Console, attempt: AttemptRecord, *, tracebacks: bool) -> None:
    head = f"{attempt.number}  {when(attempt.at)}  {attempt.worker}  {attempt.verdict}"
    head += f", version {attempt.version}" if attempt.version else ""
    head += f", by the rule {attempt.rule}" if attempt.rule else ""
    show_indented(console, harmless(head), _ATTEMPT)
    show_indented(console, harmless(f"{attempt.error_type}: {attempt.message}"), _INNER)
    if tracebacks:
        for line in attempt.traceback.splitlines():
            show_indented(console, harmless(line), _INNER)


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
