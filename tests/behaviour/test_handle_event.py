"""One event in a consumer loop of one's own: every promise, on virtual time."""

import asyncio
import contextlib
import copy
import json
import logging
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from headway import (
    ConfigurationError,
    DocumentNotFoundError,
    Event,
    RetryConfig,
    RetryPolicy,
    handle_event_with_retry,
)
from headway.assembly import handling as assembly
from headway.errors import MalformedEventError
from headway.facts import DeadLettered, EventRecovered, EventRetryScheduled, GaveUp, Processed
from headway.operations import Abandoned, Delayed, Letter
from headway.prometheus import PrometheusObserver
from headway.retrying import (
    DEFAULT_CLASSIFIER,
    NoJitter,
    Reason,
    Stepped,
    Verdict,
    rules_for,
)
from headway.runtime.observers import Observers
from headway.testing.chance import Fixed, Seeded
from headway.testing.clock import VirtualClock
from headway.testing.facts import Recorder
from headway.testing.ports import Refusal, Travel

EVENT = {
    "event_type": "JSONParsed",
    "event_id": "e-1",
    "timestamp": "2026-01-17T05:00:00Z",
    "version": "1.0",
    "data": {"message_doc_ids": ["123", "456", "789"]},
}
KEY = "chunking-123-456-789"
ALMOST_ONE = 1 - 2**-53
CAPS = [0.25, 0.5, 1, 2, 4, 8, 16, 32]


def missing() -> DocumentNotFoundError:
    return DocumentNotFoundError("messages", ["123"])


class Failing:
    """A handler that raises what it is given, one after another, and then succeeds."""

    def __init__(self, *errors: Exception | Callable[[], Exception]) -> None:
        self._errors = list(errors)
        self.got: list[Any] = []

    def __call__(self, event: Any) -> str:
        self.got.append(event)
        if self._errors:
            error = self._errors.pop(0)
            raise error if isinstance(error, Exception) else error()
        return "chunked"


class Bench:
    """A consumer loop whose time, chance, letters and facts the test holds in its hand."""

    def __init__(self, draw: float = ALMOST_ONE) -> None:
        self.clock = VirtualClock()
        self.recorder = Recorder()
        self.registry = CollectorRegistry()
        self.letters: list[Letter] = []
        self.tools: dict[str, Any] = {
            "service_name": "chunking",
            "idempotency_key": KEY,
            "config": RetryConfig(),
            "clock": self.clock,
            "chance": Fixed(draw),
            "observer": Observers(self.recorder, PrometheusObserver(self.registry)),
            "dlq": self.letters.append,
        }

    def once(self, handler: Callable[[Any], Any], event: Any = EVENT, **given: Any) -> Any:
        return handle_event_with_retry(handler, event, **self.tools | given)

    async def through(self, handler: Callable[[Any], Any], event: Any = EVENT, **given: Any) -> Any:
        async def awaited(event: Any) -> Any:
            return handler(event)

        return await handle_event_with_retry(awaited, event, **self.tools | given)

    def loop(self, handler: Callable[[Any], Any], event: Any = EVENT, **given: Any) -> Any:
        """Consume as a pika loop with a delay queue would: only headers come back."""
        headers: Mapping[str, Any] = {}
        while True:
            answer = self.once(handler, event, travel=headers, **given)
            if not isinstance(answer, Delayed):
                return answer
            headers = {name: text.encode() for name, text in answer.headers.items()}
            self.clock.sleep(answer.delay)

    @property
    def seconds(self) -> list[float]:
        return [wait.total_seconds() for wait in self.clock.waits]

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"service": "chunking"} | labels)


@pytest.fixture
def bench() -> Bench:
    return Bench()


Run = Callable[..., Any]


@pytest.fixture(params=["coroutine", "plain"])
def run(request: pytest.FixtureRequest, bench: Bench) -> Run:
    """Handle an event to its end, both ways."""

    def by_loop(*args: Any, **given: Any) -> Any:
        return bench.loop(*args, **given)

    def by_asyncio(*args: Any, **given: Any) -> Any:
        return asyncio.run(bench.through(*args, **given))

    return by_asyncio if request.param == "coroutine" else by_loop


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


# ---- the schedule


def test_a_success_at_once_costs_no_wait_and_tells_only_that(bench: Bench, run: Run) -> None:
    assert run(Failing()) == "chunked"
    assert bench.seconds == []
    assert [type(fact) for fact in bench.recorder.facts] == [Processed]
    assert bench.value("events_processed_total") == 1


def test_eight_retries_are_nine_calls_with_the_documented_caps(bench: Bench, run: Run) -> None:
    handler = Failing(*[missing] * 20)
    answer = run(handler)
    assert isinstance(answer, Abandoned)
    assert answer.reason is Reason.MAX_ATTEMPTS_EXCEEDED
    assert len(handler.got) == 9
    assert bench.seconds == pytest.approx(CAPS, rel=1e-6)
    assert sum(bench.seconds) == pytest.approx(63.75)


def test_jitter_is_full_so_that_retries_spread(bench: Bench) -> None:
    seen: list[list[float]] = []
    for seed in range(200):
        bench.clock.waits.clear()
        bench.loop(Failing(*[missing] * 20), chance=Seeded(seed))
        seen.append(bench.seconds)
    for cap, waits in zip(CAPS, zip(*seen, strict=True), strict=True):
        assert max(waits) <= cap
        assert max(waits) > 0.9 * cap
        assert min(waits) < 0.1 * cap
        assert sum(waits) / len(waits) == pytest.approx(cap / 2, rel=0.15)


def test_the_longest_delay_holds(bench: Bench, run: Run) -> None:
    run(Failing(*[missing] * 20), config=RetryConfig(max_delay=timedelta(seconds=1)))
    assert bench.seconds == pytest.approx([0.25, 0.5, 1, 1, 1, 1, 1, 1], rel=1e-6)


def test_other_numbers_of_retries(bench: Bench, run: Run) -> None:
    handler = Failing(*[missing] * 20)
    run(handler, config=RetryConfig(max_attempts=0))
    assert len(handler.got) == 1
    assert bench.letters[0].abandoned_reason == "max_attempts_exceeded"


def test_the_ttl_counts_with_the_wait(bench: Bench, run: Run) -> None:
    # After the third failure 1.75 s would have passed; the wait of 2 s would end at 3.75 s.
    handler = Failing(*[missing] * 20)
    answer = run(handler, config=RetryConfig(ttl=timedelta(seconds=3.7)))
    assert answer.reason is Reason.TTL_EXCEEDED
    assert len(handler.got) == 4
    assert bench.seconds == pytest.approx([0.25, 0.5, 1], rel=1e-6)
    assert bench.value("event_retry_dlq_total", reason="ttl_exceeded") == 1


def test_the_ttl_counts_the_time_of_the_handler(bench: Bench, run: Run) -> None:
    def slow(_event: Any) -> None:
        bench.clock.advance(timedelta(minutes=16))
        raise missing()

    assert run(slow).reason is Reason.TTL_EXCEEDED
    assert len(bench.letters[0].attempts) == 2


def test_the_schedule_is_read_from_the_environment(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETRY_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("RETRY_BASE_DELAY_MS", "1000")
    monkeypatch.setenv("RETRY_BACKOFF_FACTOR", "3")
    assembly._not_yet.cache_clear()
    try:
        run(Failing(*[missing] * 20), config=None)
    finally:
        assembly._not_yet.cache_clear()
    assert bench.seconds == pytest.approx([1, 3], rel=1e-6)


def test_the_environment_is_read_once_and_a_config_of_the_callers_own_at_every_event(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembly._not_yet.cache_clear()
    try:
        for number in ("1", "2"):
            monkeypatch.setenv("RETRY_MAX_ATTEMPTS", number)
            run(Failing(*[missing] * 20), config=None)
    finally:
        assembly._not_yet.cache_clear()
    for retries in (1, 2):
        run(Failing(*[missing] * 20), config=RetryConfig(max_attempts=retries))
    assert [len(letter.attempts) for letter in bench.letters] == [2, 2, 2, 3]


# ---- what is retried


@pytest.mark.parametrize(
    "error",
    [
        TypeError("wrong"),
        AttributeError("none"),
        KeyError("absent"),
        ValueError("not valid"),
        ZeroDivisionError(),
        NotImplementedError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_no_retry_helps_is_a_letter_at_once(bench: Bench, run: Run, error: Exception) -> None:
    handler = Failing(error)
    answer = run(handler)
    assert answer.reason is Reason.NON_RETRYABLE
    assert len(handler.got) == 1
    assert bench.seconds == []
    assert bench.letters == [answer.letter]
    assert bench.value("event_retry_dlq_total", reason="non_retryable") == 1
    assert bench.value("failures_total", error_type=type(error).__name__) == 1


class Unheard(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("error", [ConnectionResetError, TimeoutError, Unheard])
def test_faults_that_pass_and_unknown_errors_have_three_tries(
    bench: Bench, run: Run, error: type[Exception]
) -> None:
    handler = Failing(*[error] * 20)
    assert run(handler).reason is Reason.MAX_ATTEMPTS_EXCEEDED
    assert len(handler.got) == 3
    assert bench.seconds == [5, 10]


def test_the_schedules_count_apart(bench: Bench, run: Run) -> None:
    handler = Failing(missing, TimeoutError, missing, TimeoutError, missing)
    assert run(handler) == "chunked"
    assert bench.seconds == pytest.approx([0.25, 5, 0.5, 10, 1], rel=1e-6)
    (fact,) = bench.recorder.of(EventRecovered)
    assert fact.retries == 5


def test_a_schedule_and_rules_of_ones_own(bench: Bench, run: Run) -> None:
    steps = tuple(timedelta(seconds=second) for second in (1, 2, 3))
    policy = RetryPolicy(max_attempts=4, backoff=Stepped(steps=steps, jitter=NoJitter()))
    rules = DEFAULT_CLASSIFIER.before([rules_for([KeyError], Verdict.TRANSIENT)])
    run(Failing(*[KeyError] * 9), transient=policy, classifier=rules)
    assert bench.seconds == [1, 2, 3]


# ---- identity


def test_the_key_is_in_every_fact_every_line_and_the_letter(
    bench: Bench, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway")
    run(Failing(*[missing] * 20))
    keys = {fact.idempotency_key for fact in bench.recorder.of(EventRetryScheduled)}
    assert keys == {KEY}
    assert bench.letters[0].idempotency_key == KEY
    assert len(caplog.records) >= 9
    assert {vars(record)["idempotency_key"] for record in caplog.records} == {KEY}


@pytest.mark.parametrize(
    ("event", "key"),
    [
        (EVENT, "chunking-e-1"),
        (Event("JSONParsed", "e-2"), "chunking-e-2"),
        (b'{"event_type":"JSONParsed","event_id":"e-3"}', "chunking-e-3"),
        ({"event_type": "JSONParsed", "event_id": 4}, "chunking-4"),
        ({"event_type": "JSONParsed"}, "chunking-token-1"),
        (b'{"event_type":"JSONParsed"}', "chunking-token-1"),
    ],
)
def test_without_a_key_the_event_names_the_work(
    bench: Bench, run: Run, event: Any, key: str
) -> None:
    run(Failing(*[missing] * 20), event, idempotency_key=None)
    facts = bench.recorder.of(EventRetryScheduled)
    assert {fact.idempotency_key for fact in facts} == {key}  # the same for every attempt
    assert bench.letters[0].idempotency_key == key


def test_a_letter_written_twice_has_one_name(bench: Bench) -> None:
    for _ in range(2):
        bench.once(Failing(TypeError()))
    first, second = bench.letters
    assert first.letter_id == second.letter_id


# ---- the letter


def test_the_letter_has_the_documented_payload(bench: Bench, run: Run) -> None:
    run(Failing(*[missing] * 20))
    (letter,) = bench.letters
    found = json.loads(msgspec.json.encode(letter))
    documented = {
        "original_event": EVENT,
        "idempotency_key": KEY,
        "attempt_count": 8,
        "last_error": "DocumentNotFoundError: not found in messages: 123",
        "error_type": "DocumentNotFoundError",
        "abandoned_reason": "max_attempts_exceeded",
        "service_name": "chunking",
    }
    assert {name: found[name] for name in documented} == documented
    assert found["timestamp"].startswith("2000-01-01T00:01:03.7")
    assert found["timestamp"].endswith("Z")
    assert found["queue"] == "chunking.json.parsed"
    assert [attempt["number"] for attempt in found["attempts"]] == list(range(1, 10))
    assert "DocumentNotFoundError" in found["attempts"][0]["traceback"]


def test_the_letter_keeps_the_event_as_it_came_although_the_handler_changed_it(
    bench: Bench,
) -> None:
    def careless(event: dict[str, Any]) -> None:
        event.clear()
        raise TypeError

    bench.once(careless, {"event_type": "A", "data": {"x": 1}})
    assert bench.letters[0].original_event == {"event_type": "A", "data": {"x": 1}}


def test_bytes_are_kept_as_they_came(bench: Bench, run: Run) -> None:
    body = b'{ "event_type" : "JSONParsed", "event_id": "e-9" }'
    handler = Failing(TypeError())
    run(handler, body)
    assert bench.letters[0].body == body
    assert handler.got == [Event("JSONParsed", "e-9")]


@pytest.mark.parametrize(
    "event",
    [b"not json", b"\xff", b"[]", b"{}", "{", ["a", "list"], 42, None, b'{"event_type":""}'],
)
def test_what_is_no_event_is_a_letter_and_never_reaches_the_handler(
    bench: Bench, run: Run, event: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Failing()
    answer = run(handler, event)
    assert answer.reason is Reason.MALFORMED
    assert handler.got == []
    (letter,) = bench.letters
    if isinstance(event, bytes):
        assert letter.body == event
    assert letter.error_type == "MalformedEventError"
    assert bench.value("event_retry_dlq_total", reason="malformed") == 1
    ((level, line),) = said(caplog)
    assert level == "ERROR"
    assert line.startswith(
        "Event sent to DLQ without a retry (reason: malformed): chunking: MalformedEventError: "
    )


@pytest.mark.parametrize(
    "event",
    [
        {"event_type": "A", "data": {"half": "\ud800"}},
        {"event_type": "A", "data": {"big": 10**40}},
        {"event_type": "A", "data": {"odd": object()}},
        {"event_type": "A", "data": {(1, 2): {3}}},
    ],
)
def test_a_dict_that_is_hardly_json_is_kept_as_well_as_can_be(bench: Bench, event: Any) -> None:
    bench.once(Failing(TypeError()), event)
    assert b'"event_type"' in bench.letters[0].body
    msgspec.json.encode(bench.letters[0])


def test_headers_that_cannot_be_read_end_the_event_instead_of_counting_anew(bench: Bench) -> None:
    handler = Failing()
    answer = bench.once(handler, travel={"headway-travel": "{"})
    assert answer.reason is Reason.MALFORMED
    assert handler.got == []
    assert "headway-travel" in bench.letters[0].last_error


_RECORD = '{"number":1,"at":"AT","worker":"","error_type":"","message":"","verdict":"","rule":""}'
_REFUSAL = '{"version":"1","since":"AT","error":""}'


def _refusal(version: str = "1", error: str = "") -> str:
    refusal = Refusal(version=version, since="2026-01-17T05:00:00Z", error=error)
    return msgspec.json.encode(refusal).decode()


FORGED = {
    "negative failures": '{"operation":"o","failures":-100000}',
    "negative waits for a document": '{"operation":"o","failures":3,"not_yet":-9}',
    "more waits than failures": '{"operation":"o","failures":1,"not_yet":900000}',
    "negative requeues": '{"operation":"o","requeues":-1}',
    "too many failures": '{"operation":"o","failures":10000000000000000000000000}',
    "failures as text": '{"operation":"o","failures":"3"}',
    "first seen without a zone": '{"operation":"o","first_seen":"2026-01-17T05:00:00"}',
    "first seen long ago": '{"operation":"o","first_seen":"0001-01-01T00:00:00Z"}',
    "first seen far ahead": '{"operation":"o","first_seen":"9999-12-31T23:59:59Z"}',
    "parked without a zone": '{"operation":"o","parked_since":"2026-01-17T05:00:00"}',
    "parked for ages": '{"operation":"o","parked":"P99999D"}',
    "parked for less than no time": '{"operation":"o","parked":"-P1D"}',
    "no operation": '{"operation":""}',
    "no generation": '{"operation":"o","generation":""}',
    "no time of an attempt": '{"operation":"o","history":[' + _RECORD + "]}",
    "no zone of an attempt": (
        '{"operation":"o","history":[' + _RECORD.replace("AT", "2026-01-17T05:00:00") + "]}"
    ),
    "no time of a refusal": '{"operation":"o","refusals":[' + _REFUSAL + "]}",
    "too many refusals": (
        '{"operation":"o","refusals":['
        + ",".join(_refusal(version=str(number)) for number in range(17))
        + "]}"
    ),
    "a version that refused twice": f'{{"operation":"o","refusals":[{_refusal()},{_refusal()}]}}',
    "a long version": f'{{"operation":"o","refusals":[{_refusal(version="x" * 65)}]}}',
    "a long refusal": f'{{"operation":"o","refusals":[{_refusal(error="x" * 201)}]}}',
    "refusals as text": '{"operation":"o","refusals":"1"}',
    "no object": "[]",
    "half a character": '{"operation":"\ud800"}',
    "nested too deeply": '{"operation":"o","x":' + "[" * 100_000 + "]" * 100_000 + "}",
    "too large": '{"operation":"o","x":"' + "x" * 200_000 + '"}',
    "no text": 17,
    "none of ours": {"operation": "o"},
}


@pytest.mark.parametrize("header", FORGED.values(), ids=FORGED.keys())
def test_forged_attempts_end_the_event_as_malformed(bench: Bench, header: Any) -> None:
    handler = Failing(*[TimeoutError] * 20)
    answer = bench.once(handler, travel={"headway-travel": header})
    assert isinstance(answer, Abandoned)
    assert answer.reason is Reason.MALFORMED
    assert handler.got == []
    assert "headway-travel" in bench.letters[0].last_error
    assert len(bench.letters[0].last_error) < 500


@pytest.mark.parametrize("forged", [{"failures": -5}, {"first_seen": datetime(2026, 1, 17)}])  # noqa: DTZ001
def test_attempts_handed_in_as_an_object_are_checked_too(
    bench: Bench, forged: dict[str, Any]
) -> None:
    answer = bench.once(Failing(missing), travel=Travel(operation="o", **forged))
    assert isinstance(answer, Abandoned)
    assert answer.reason is Reason.MALFORMED


def test_a_long_operation_is_shortened_to_the_same_name_each_time(bench: Bench) -> None:
    header = {"headway-travel": '{"operation":"' + "o" * 20_000 + '"}'}
    first, second = (bench.once(Failing(missing), travel=header) for _ in range(2))
    assert len(first.travel.operation) < 255
    assert first.travel.operation == second.travel.operation


# ---- when there is no letter


def test_without_a_dlq_the_last_exception_is_raised_with_a_note(
    bench: Bench, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DocumentNotFoundError) as raised:
        run(Failing(*[missing] * 20), dlq=None)
    shown = "".join(traceback.format_exception(raised.value))
    assert f"headway gave up the event {KEY} at attempt 9 (max_attempts_exceeded)" in shown
    assert "no letter was kept" in shown
    assert bench.recorder.of(DeadLettered) == []
    (fact,) = bench.recorder.of(GaveUp)
    assert fact.context["idempotency_key"] == KEY
    level, line = said(caplog)[-1]
    assert level == "ERROR"
    assert line.startswith("All retry attempts exhausted (9/9): chunking.")
    assert line.endswith(" raised DocumentNotFoundError: not found in messages: 123")


def test_without_a_dlq_what_is_no_event_is_raised(run: Run) -> None:
    with pytest.raises(MalformedEventError):
        run(Failing(), b"not json", dlq=None)


def test_a_letter_that_cannot_be_stored_is_raised_and_not_told(bench: Bench, run: Run) -> None:
    def full(_letter: Letter) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full") as raised:
        run(Failing(TypeError("wrong")), dlq=full)
    shown = "".join(traceback.format_exception(raised.value))
    assert "TypeError: wrong" in shown  # what happened first is not lost
    assert "do not acknowledge it" in shown
    assert bench.recorder.of(DeadLettered) == []


async def test_a_dlq_may_be_awaited(bench: Bench) -> None:
    async def store(letter: Letter) -> None:
        await asyncio.sleep(0)
        bench.letters.append(letter)

    answer = await bench.through(Failing(TypeError()), dlq=store)
    assert bench.letters == [answer.letter]


# ---- a plain function never waits


def test_a_plain_function_is_tried_once_and_the_caller_is_told_when_to_come_again(
    bench: Bench,
) -> None:
    handler = Failing(missing)
    answer = bench.once(handler)
    assert isinstance(answer, Delayed)
    assert len(handler.got) == 1
    assert bench.seconds == []
    assert answer.delay.total_seconds() == pytest.approx(0.25)
    assert answer.due == bench.clock.now() + answer.delay
    assert (answer.travel.attempt, answer.travel.first_seen) == (2, bench.clock.now())
    assert set(answer.headers) == {"headway-travel"}


def test_attempts_and_the_first_time_outlive_the_process(bench: Bench) -> None:
    """Each attempt is made by another worker, which knows nothing but the headers."""
    headers: dict[str, str] = {}
    handler = Failing(*[missing] * 3)
    for _ in range(3):
        again = Bench()
        again.tools["clock"] = bench.clock
        answer = again.once(handler, travel=headers)
        headers = answer.headers
        bench.clock.sleep(answer.delay)
    assert bench.once(handler, travel=headers) == "chunked"
    (fact,) = bench.recorder.of(EventRecovered)
    assert fact.retries == 3
    assert fact.elapsed.total_seconds() == pytest.approx(1.75)


def test_the_ttl_outlives_the_process(bench: Bench) -> None:
    first = bench.once(Failing(missing))
    bench.clock.advance(timedelta(minutes=30))
    assert bench.once(Failing(missing), travel=first.travel).reason is Reason.TTL_EXCEEDED


def test_time_spent_parked_does_not_count_against_the_ttl(bench: Bench) -> None:
    first = bench.once(Failing(missing))
    parked = first.travel.parked_at(bench.clock.now())
    bench.clock.advance(timedelta(hours=5))
    assert isinstance(bench.once(Failing(missing), travel=parked), Delayed)


def test_headers_of_others_are_no_matter(bench: Bench) -> None:
    assert bench.once(Failing(), travel={"content-type": "json", "x-death": [1]}) == "chunked"


@pytest.mark.parametrize("way", ["plain", "coroutine"])
def test_with_delay_nobody_waits_and_the_fact_follows_the_storing(bench: Bench, way: str) -> None:
    kept: list[Delayed] = []

    def store(delayed: Delayed) -> None:
        assert bench.recorder.facts == []
        kept.append(delayed)

    if way == "plain":
        answer = bench.once(Failing(missing), park=store)
    else:
        answer = asyncio.run(bench.through(Failing(missing), park=store))
    assert kept == [answer]
    assert bench.seconds == []
    assert len(bench.recorder.of(EventRetryScheduled)) == 1


def test_an_event_that_cannot_be_delayed_is_raised(bench: Bench) -> None:
    def away(_delayed: Delayed) -> None:
        raise ConnectionError("broker away")

    with pytest.raises(ConnectionError, match="broker away") as raised:
        bench.once(Failing(missing), park=away)
    assert "do not acknowledge it" in raised.value.__notes__[0]
    assert bench.recorder.facts == []


def test_plain_and_async_are_not_mixed_up(bench: Bench) -> None:
    async def store(_letter: object) -> None: ...

    def looks_plain(kept: object) -> object:
        return store(kept)

    handler = Failing()
    for name in ("dlq", "park"):
        with pytest.raises(ConfigurationError, match=f"{name}=.*coroutine function"):
            bench.once(handler, **{name: store})
    assert handler.got == []
    with pytest.raises(ConfigurationError, match="write it with 'async def'"):
        bench.once(looks_plain)
    with pytest.raises(ConfigurationError, match="write it with 'async def'"):
        bench.once(Failing(TypeError()), dlq=looks_plain)


# ---- a coroutine function does not block


async def test_others_go_on_while_an_event_waits(bench: Bench) -> None:
    order: list[str] = []

    def slow(event: Any) -> str:
        order.append(f"slow {len(order)}")
        return Failing(missing)(event) if len(order) == 1 else "late"

    waiting = asyncio.create_task(bench.through(slow))
    await asyncio.sleep(0)
    assert await bench.through(Failing()) == "chunked"
    order.append("quick")
    assert await waiting == "late"
    assert order == ["slow 0", "quick", "slow 2"]


async def test_cancellation_passes_through_a_handler_and_a_wait(bench: Bench) -> None:
    async def cancelled(_event: Any) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await handle_event_with_retry(cancelled, EVENT, **bench.tools)
    assert bench.recorder.facts == []
    assert bench.letters == []

    started = asyncio.Event()

    class Hanging(VirtualClock):
        async def wait(self, _delay: timedelta) -> None:
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(bench.through(Failing(missing), clock=Hanging()))
    await started.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert bench.letters == []


async def test_what_is_not_an_exception_passes_through(bench: Bench) -> None:
    class Stop(BaseException):
        pass

    def stop(_event: Any) -> None:
        raise Stop

    with pytest.raises(Stop):
        await bench.through(stop)
    assert bench.recorder.facts == []


# ---- lines and numbers


def test_the_lines_are_the_documented_ones(
    bench: Bench, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway")
    assert run(Failing(*[missing] * 3)) == "chunked"
    begun = (
        f"Retry attempt 1/8 for event with idempotency key: {KEY}; chunking.",
        f"Retry attempt 2/8 for event with idempotency key: {KEY}; chunking.",
        "Retry attempt 3/8 for event with idempotency key: chunking-123-456-789; chunking.",
        "Event processed successfully after 3 retry attempts (total latency: 1.75s): chunking.",
    )
    for (level, line), first in zip(said(caplog), begun, strict=True):
        assert level == "INFO"
        assert line.startswith(first)


def test_the_end_is_the_documented_line(
    bench: Bench, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway")
    run(Failing(*[missing] * 20))
    level, line = said(caplog)[-1]
    assert level == "ERROR"
    assert line.startswith("Event sent to DLQ after 8 attempts (reason: max_attempts_exceeded): ")
    warned = [line.partition(";")[0] for level, line in said(caplog) if level == "WARNING"]
    assert warned == [
        f"Approaching max attempts (retry {retry}/8) for event with idempotency key: {KEY}"
        for retry in (7, 8)
    ]


def test_a_fault_that_passes_leaves_the_documented_lines(
    bench: Bench, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway")
    run(Failing(TimeoutError("no answer")))
    (level, failed), (_, retrying), *_ = said(caplog)
    assert level == "WARNING"
    assert failed.startswith(
        "Operation failed (attempt 1/3): TimeoutError: no answer, raised by chunking."
    )
    assert retrying.startswith("Retrying in 5 seconds... chunking.")


def test_the_numbers_are_the_documented_ones(bench: Bench, run: Run) -> None:
    run(Failing(*[missing] * 3))
    assert bench.value("event_retry_success_total", attempt="3") == 1
    assert bench.value("event_retry_latency_seconds_sum") == pytest.approx(1.75)
    assert bench.value("event_retry_attempt_count_sum") == 3
    assert bench.value("events_processed_total") == 1
    run(Failing(*[missing] * 20))
    assert bench.value("event_retry_dlq_total", reason="max_attempts") == 1
    assert bench.value("event_retry_attempt_count_sum") == 3 + 8
    assert bench.value("failures_total", error_type="DocumentNotFoundError") == 1
    assert bench.value("events_processed_total") == 1


# ---- reports


class Reports:
    def __init__(self) -> None:
        self.got: list[tuple[BaseException, Mapping[str, Any]]] = []

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
        self.got.append((error, context))
        raise RuntimeError("reporters must not raise, and some do")


@pytest.mark.parametrize("with_dlq", [True, False])
def test_one_report_for_each_end(bench: Bench, run: Run, *, with_dlq: bool) -> None:
    reports, last = Reports(), missing()
    more: dict[str, Any] = {} if with_dlq else {"dlq": None}
    handler = Failing(*[missing] * 8, last)
    with contextlib.nullcontext() if with_dlq else pytest.raises(DocumentNotFoundError):
        run(handler, error_reporter=reports, **more)
    ((error, context),) = reports.got
    assert error is last
    assert context == {
        "service": "chunking",
        "event_type": "JSONParsed",
        "idempotency_key": KEY,
        "retry_count": 8,
        "reason": "max_attempts_exceeded",
        "outcome": "final",
        "event": EVENT,
    }


def test_what_recovers_is_not_reported(run: Run) -> None:
    reports = Reports()
    assert run(Failing(missing), error_reporter=reports) == "chunked"
    assert reports.got == []


# ---- hostile input


def test_an_exception_that_cannot_be_read_ends_like_any_other(bench: Bench, run: Run) -> None:
    class MuteError(TypeError):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    run(Failing(MuteError()))
    assert bench.letters[0].error_type == "MuteError"


def test_passwords_are_not_written_into_letters(bench: Bench, run: Run) -> None:
    run(Failing(ValueError("amqp://user:s3cret@broker")))
    assert b"s3cret" not in msgspec.json.encode(bench.letters[0])


def test_the_name_of_the_service_is_checked(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="service_name='two words'"):
        bench.once(Failing(), service_name="two words")


def test_travel_as_it_is_may_be_handed_in(bench: Bench) -> None:
    travel = Travel(operation="op-1", generation="1")
    bench.once(Failing(TypeError()), travel=travel)
    assert (bench.letters[0].operation, bench.letters[0].generation) == ("op-1", "1")


# A handler may change what it is given; no later attempt sees that


class Emptying:
    """A handler that empties its event, fails, and finally succeeds."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.got: list[Any] = []

    def __call__(self, event: Any) -> str:
        data = event.data if isinstance(event, Event) else event["data"]
        self.got.append(copy.deepcopy(data))
        data["message_doc_ids"].pop()
        data.pop("message_doc_ids")
        if len(self.got) <= self._failures:
            raise missing()
        return "chunked"


class Loud(str):
    """A text of a kind of its own, as an enum's member is."""

    __slots__ = ()


_AT = datetime(2026, 1, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    "given",
    [
        json.dumps(EVENT).encode(),
        json.dumps(EVENT),
        EVENT,
        {**EVENT, "data": {"message_doc_ids": ["1"], "at": _AT, "price": Decimal("1.0")}},
        {**EVENT, "data": {"message_doc_ids": ["1"], "word": Loud("a"), "pair": (1, 2)}},
        MappingProxyType(copy.deepcopy(EVENT)),
        Event("JSONParsed", "e-1", data={"message_doc_ids": ["1"], "at": _AT}),
    ],
    ids=["bytes", "text", "dict", "dates", "kinds", "mapping", "event"],
)
async def test_every_attempt_of_a_coroutine_gets_the_event_as_it_came(given: Any) -> None:
    given = given if isinstance(given, MappingProxyType) else copy.deepcopy(given)
    as_event = json.loads(given) if isinstance(given, bytes | str) else given
    data = as_event.data if isinstance(as_event, Event) else as_event["data"]
    expected = copy.deepcopy(data)
    bench, handler = Bench(), Emptying(3)

    async def handle(event: Any) -> str:
        return handler(event)

    answer = await handle_event_with_retry(handle, given, **bench.tools)
    assert answer == "chunked"
    assert handler.got == [expected] * 4
    kinds = [[type(each) for each in got.values()] for got in handler.got]
    assert kinds == [[type(each) for each in expected.values()]] * 4
    assert bench.letters == []


def test_what_is_delayed_holds_the_event_as_it_came() -> None:
    bench, given = Bench(), copy.deepcopy(EVENT)
    answer = handle_event_with_retry(Emptying(1), given, **bench.tools)
    assert isinstance(answer, Delayed)
    assert json.loads(answer.body) == EVENT
    again = handle_event_with_retry(Emptying(0), answer.body, **bench.tools, travel=answer.headers)
    assert again == "chunked"


async def test_the_letter_and_the_report_hold_the_event_as_it_came() -> None:
    bench, handler, reports = Bench(), Emptying(100), list[Any]()

    async def handle(event: Any) -> str:
        return handler(event)

    class Reporter:
        def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
            reports.append(context["event"])

    given = copy.deepcopy(EVENT)
    answer = await handle_event_with_retry(handle, given, **bench.tools, error_reporter=Reporter())
    assert isinstance(answer, Abandoned)
    assert (answer.letter.error_type, answer.letter.original_event) == (
        "DocumentNotFoundError",
        EVENT,
    )
    assert reports == [EVENT]
