"""How far the pipeline is while it runs: what was done in this run, of what is known to be left.

Workers tell what they have done, queues what waits. So nobody has to read all documents for it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from headway.core.failure import Verdict
from headway.core.showing import shown
from headway.systems.consensus.telling import Told

PARSED, EMBEDDING, SUMMARIES = (
    "chunking.json.parsed",
    "embedding.chunks.prepared",
    "summarization.summarization.requested",
)
"""The queues of what is parsed, chunked and requested."""
_LETTERS_SHOWN = 10
_EVERY = 10.0
"""Seconds between two lines: of progress where there is no terminal, and of trouble."""


@dataclass(slots=True)
class Counts:
    """What is known of this run."""

    at_first: Mapping[str, int]
    """What waited before it began, by queue."""
    done: Counter[str] = field(default_factory=Counter)
    """Events, by service."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    messages: int = 0
    """In archives, and not parsed before this run."""
    threads: int | None = None
    """To be summarized; None: nobody knows yet."""

    def stages(self) -> Iterator[tuple[str, int, int | None]]:
        """Say of each stage how much is done, and of how much; None: nobody knows yet."""
        parsed = self.done["chunking"] + self.waiting.get(PARSED, 0) - self.at_first.get(PARSED, 0)
        chunks = self.messages + self.at_first.get(PARSED, 0)
        vectors = chunks + self.at_first.get(EMBEDDING, 0)
        yield "messages parsed", max(parsed, 0), self.messages
        yield "messages chunked", self.done["chunking"], chunks
        yield "messages embedded", self.done["embedding"], vectors
        yield "threads summarized", self.done["summarization"], self.threads


class Screen:
    """Shows counts: bars on a terminal, elsewhere a line now and then."""

    def __init__(self, counts: Counts, progress: Progress) -> None:
        self.counts = counts
        self._progress = progress
        self._tasks = {
            name: progress.add_task(name, total=total, visible=total != 0)
            for name, _, total in counts.stages()
        }
        self._letters = 0
        self._said = 0.0
        self._trouble = ""
        """The last that was told, and not said yet."""
        self._trouble_after = 0.0

    def hear(self, told: Told) -> None:
        """Take down what a worker tells, and say what a person should know."""
        match told.what:
            case "processed":
                self.counts.done[told.service] += told.count
            case "letter":
                self._letters += 1
                if self._letters <= _LETTERS_SHOWN:
                    self._say(f"letter of {told.service}: {shown(told.words)}", "red")
            case "down":
                self._say(
                    f"{told.service} waits, its dependency is down: {shown(told.words)}", "red"
                )
            case "back":
                self._say(f"{told.service} goes on after {told.seconds:.0f} s", "green")
            case "retry" if told.verdict == Verdict.TRANSIENT:  # others are only early
                self._trouble = f"{told.service} tries again: {shown(told.words)}"
            case "trouble":
                self._trouble = shown(told.words)
            case _:
                pass

    def draw(self, seconds: float) -> None:
        for name, done, total in self.counts.stages():
            of = None if total is None else max(total, done)
            # Of a stage with nothing to do there is nothing to see.
            self._progress.update(self._tasks[name], completed=done, total=of, visible=of != 0)
        if self._progress.disable and seconds - self._said >= _EVERY:
            self._said = seconds
            words = ", ".join(f"{done} {name}" for name, done, _ in self.counts.stages())
            self._say(words, "")

        if self._trouble and seconds >= self._trouble_after:
            self._say(self._trouble, "red")
            self._trouble, self._trouble_after = "", seconds + _EVERY

    def died(self, pid: int, code: int) -> None:
        self._say(f"worker {pid} died ({code}); another one is started", "red")

    def _say(self, words: str, style: str) -> None:
        self._progress.console.print(Text(words, style), soft_wrap=True)


@contextmanager
def screen(counts: Counts) -> Iterator[Screen]:
    """Show counts while something runs."""
    console = Console(stderr=True, highlight=False)
    with Progress(
        TextColumn("{task.description:<18}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        yield Screen(counts, progress)
