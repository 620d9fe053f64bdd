"""What a service of models may do to a worker: little, however it answers."""

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.retrying import Verdict
from headway.systems.consensus.failures import CLASSIFIER, ModelAnswerError
from headway.systems.consensus.models.openai_client import OpenAIClient
from headway.systems.consensus.workers import COMMAND
from headway.testing.clock import VirtualClock

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)


class Endless(httpx.SyncByteStream):
    """Never ends, takes its time, and remembers what was read and whether it was closed."""

    def __init__(self, clock: VirtualClock, pause: timedelta) -> None:
        self._clock = clock
        self._pause = pause
        self.parts = 0
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        while self.parts < 1_000_000:
            self.parts += 1
            self._clock.sleep(self._pause)
            yield b" " * 1000

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("status", "pause", "error"),
    [
        (200, 0, ModelAnswerError),  # more than an answer can have
        (500, 0, httpx.HTTPStatusError),
        (200, 7, httpx.ReadTimeout),  # it comes drop by drop
    ],
)
def test_an_answer_without_an_end_is_not_read_to_its_end(
    status: int, pause: int, error: type[Exception]
) -> None:
    clock = VirtualClock(START)
    endless = Endless(clock, timedelta(seconds=pause))
    client = OpenAIClient(
        "http://models:8080/v1",
        "embeddings",
        api_key="sk-secret",
        timeout=60.0,
        largest=100_000,
        transport=httpx.MockTransport(lambda _: httpx.Response(status, stream=endless)),
        clock=clock,
    )
    with pytest.raises(error) as caught:
        client.ask({}, dict[str, Any], called="answer")
    assert CLASSIFIER.classify(caught.value).verdict is Verdict.TRANSIENT
    assert endless.parts <= 101
    assert clock.now() - START < timedelta(seconds=68)
    assert endless.is_closed


def test_a_worker_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "html.py").write_text("raise SystemExit(77)")
    python = COMMAND[: COMMAND.index("-m")]
    done = subprocess.run([*python, "-c", "import html"], cwd=tmp_path, check=False)
    assert done.returncode == 0
