"""What a service of models may do to a worker: little, however it answers."""

import gzip
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.retrying import Verdict
from headway.systems.consensus.demo.run import _WORKER
from headway.systems.consensus.failures import CLASSIFIER, ModelAnswerError
from headway.systems.consensus.models.openai_client import OpenAIClient
from headway.systems.consensus.workers import COMMAND
from headway.testing.clock import VirtualClock

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
PART = b" " * 1000


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
            yield PART

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


def client(clock: VirtualClock, response: httpx.Response, largest: int = 100_000) -> OpenAIClient:
    return OpenAIClient(
        "http://models:8080/v1",
        "embeddings",
        api_key="sk-secret",
        timeout=60.0,
        largest=largest,
        transport=httpx.MockTransport(lambda _: response),
        clock=clock,
    )


def ask(client: OpenAIClient) -> Any:
    return client.ask({}, dict[str, Any], called="answer")


@pytest.mark.parametrize("status", [200, 500])
def test_no_more_is_read_than_an_answer_can_have(clock: VirtualClock, status: int) -> None:
    endless = Endless(clock, timedelta())
    expected = ModelAnswerError if status == 200 else httpx.HTTPStatusError
    with pytest.raises(expected) as caught:
        ask(client(clock, httpx.Response(status, stream=endless)))
    assert endless.parts <= 101
    assert endless.is_closed
    if status == 200:
        assert "models:8080" in str(caught.value)
        assert "100,000" in str(caught.value)
        assert CLASSIFIER.classify(caught.value).verdict is Verdict.TRANSIENT


def test_an_answer_that_comes_drop_by_drop_is_not_waited_for(clock: VirtualClock) -> None:
    endless = Endless(clock, timedelta(seconds=7))
    with pytest.raises(httpx.ReadTimeout, match=r"models:8080.*60 s") as caught:
        ask(client(clock, httpx.Response(200, stream=endless), largest=10**9))
    assert clock.now() - START < timedelta(seconds=68)
    assert endless.is_closed
    assert CLASSIFIER.classify(caught.value).verdict is Verdict.TRANSIENT


@pytest.mark.parametrize("status", [200, 500])
def test_a_packed_answer_is_not_asked_for_and_not_unpacked(
    clock: VirtualClock, status: int
) -> None:
    packed = gzip.compress(json.dumps({"a": "x" * 1000}).encode())
    response = httpx.Response(
        status, stream=httpx.ByteStream(packed), headers={"Content-Encoding": "gzip"}
    )
    # No body that is unpacked is ever held: it would be in the response.
    expected = ModelAnswerError if status == 200 else httpx.HTTPStatusError
    with pytest.raises(expected, match="models:8080"):
        ask(client(clock, response))
    assert response.request.headers["Accept-Encoding"] == "identity"


def test_a_whole_answer_is_read(clock: VirtualClock) -> None:
    assert ask(client(clock, httpx.Response(200, json={"a": 1}))) == {"a": 1}


@pytest.mark.parametrize("command", [COMMAND, _WORKER], ids=["worker", "demo"])
def test_a_worker_imports_nothing_from_the_current_folder(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "html.py").write_text("raise SystemExit(77)")
    python = command[: command.index("-m")]
    done = subprocess.run([*python, "-c", "import html"], cwd=tmp_path, check=False)
    assert done.returncode == 0
