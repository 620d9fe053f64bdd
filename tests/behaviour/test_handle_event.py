"""One event in a consumer loop of one's own: every promise, on virtual time."""

import asyncio
import contextlib
import copy
import json
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from headway import (
    ConfigurationError,
    DocumentNotFoundError,
    Event,
    RetryConfig,
    RetryPolicy,
    handle_event_with_retry,
)
from headway.errors import MalformedEventError
from headway.facts import (
    DeadLettered,
    EventRecovered,
    EventRetryScheduled,
    GaveUp,
    Processed,
)
from headway.operations import Abandoned, Delayed, Letter
from headway.retrying import DEFAULT_CLASSIFIER, NoJitter, Reason, Stepped, Verdict, rules_for
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
        self.letters: list[Letter] = []
        self.tools: dict[str, Any] = {
            "service_name": "chunking",
            "idempotency_key": KEY,
            "config": RetryConfig(),
            "clock": self.clock,
            "chance": Fixed(draw),
            "observer": self.recorder,
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


@pytest.fixture
def bench() -> Bench:
    return Bench()


Run = Callable[..., Any]


@pytest.fixture(params=["coroutine", "plain"])
def run(request: pytest.FixtureRequest, bench: Bench) -> Run:
    """Handle an event to its end, both ways."""

    def by_asyncio(*args: Any, **given: Any) -> Any:
        return asyncio.run(bench.through(*args, **given))

    return by_asyncio if request.param == "coroutine" else bench.loop


# ---- the schedule


def test_a_success_at_once_costs_no_wait_and_tells_only_that(bench: Bench, run: Run) -> None:
    assert run(Failing()) == "chunked"
    assert bench.seconds == []
    assert [type(fact) for fact in bench.recorder.facts] == [Processed]


NO_JITTER = tuple(timedelta(seconds=second) for second in (1, 2, 3))
OWN = {
    "transient": RetryPolicy(max_attempts=4, backoff=Stepped(steps=NO_JITTER, jitter=NoJitter())),
    "classifier": DEFAULT_CLASSIFIER.before([rules_for([KeyError], Verdict.TRANSIENT)]),
}
SLOWLY = RetryConfig(max_delay=timedelta(seconds=1))
BRIEFLY = RetryConfig(ttl=timedelta(seconds=3.7))


@pytest.mark.parametrize(
    "case",
    [
        ([missing] * 20, {}, CAPS, "max_attempts_exceeded"),
        ([missing] * 20, {"config": SLOWLY}, [0.25, 0.5] + [1] * 6, "max_attempts_exceeded"),
        ([missing] * 20, {"config": RetryConfig(max_attempts=0)}, [], "max_attempts_exceeded"),
        # After the third failure 1.75 s have passed; the wait of 2 s would end at 3.75 s.
        ([missing] * 20, {"config": BRIEFLY}, [0.25, 0.5, 1], "ttl_exceeded"),
        ([ConnectionResetError] * 20, {}, [5, 10], "max_attempts_exceeded"),
        ([TimeoutError] * 20, {}, [5, 10], "max_attempts_exceeded"),
        ([Exception] * 20, {}, [5, 10], "max_attempts_exceeded"),
        ([KeyError] * 20, OWN, [1, 2, 3], "max_attempts_exceeded"),
        # The schedules count apart.
        ([missing, TimeoutError] * 2 + [missing], {}, [0.25, 5, 0.5, 10, 1], None),
    ],
)
def test_the_schedule_is_the_documented_one(
    bench: Bench, run: Run, case: tuple[list[Any], dict[str, Any], list[float], str | None]
) -> None:
    errors, given, waits, reason = case
    handler = Failing(*errors)
    answer = run(handler, **given)
    assert len(handler.got) == len(waits) + 1
    assert bench.seconds == pytest.approx(waits, rel=1e-6)
    if reason is None:
        assert answer == "chunked"
        assert [fact.retries for fact in bench.recorder.of(EventRecovered)] == [len(waits)]
    else:
        assert (answer.reason, bench.letters) == (reason, [answer.letter])


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


def test_the_environment_is_read_once_and_a_config_of_the_callers_own_at_every_event() -> None:
    program = """
import os
from headway import DocumentNotFoundError, RetryConfig, handle_event_with_retry
from headway.testing.chance import Fixed

def fail(event):
    raise DocumentNotFoundError("messages", ["123"])

def delay(**given):
    chance = Fixed(0.5)
    event = {"event_type": "A"}
    answer = handle_event_with_retry(fail, event, service_name="s", chance=chance, **given)
    print(answer.delay.total_seconds())

delay()
os.environ["RETRY_BASE_DELAY_MS"] = "3000"
delay()
delay(config=RetryConfig())
"""
    command = [sys.executable, "-c", program]
    settings = {"RETRY_BASE_DELAY_MS": "1000"}
    ended = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["0.5", "0.5", "0.125"]


# ---- what is retried


@pytest.mark.parametrize(
    "error", [TypeError, AttributeError, KeyError, ValueError, ZeroDivisionError]
)
def test_what_no_retry_helps_is_a_letter_at_once(
    bench: Bench, run: Run, error: type[Exception]
) -> None:
    handler = Failing(error("amqp://user:s3cret@broker"))
    answer = run(handler)
    assert b"s3cret" not in msgspec.json.encode(answer.letter)
    assert (answer.reason, bench.letters) == (Reason.NON_RETRYABLE, [answer.letter])
    assert (len(handler.got), bench.seconds) == (1, [])
    (fact,) = bench.recorder.of(DeadLettered)
    assert (fact.reason, fact.attempts) == (Reason.NON_RETRYABLE, 1)


# ---- identity


@pytest.mark.parametrize(
    ("event", "key"),
    [
        (EVENT, "chunking-e-1"),
        (Event("JSONParsed", "e-2"), "chunking-e-2"),
        (b'{"event_type":"JSONParsed","event_id":"e-3"}', "chunking-e-3"),
        ({"event_type": "JSONParsed", "event_id": 4}, "chunking-4"),
        (b'{"event_type":"JSONParsed"}', "chunking-token-1"),
    ],
)
def test_the_key_is_in_every_fact_every_line_and_the_letter(
    bench: Bench, run: Run, event: Any, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway")
    run(Failing(*[missing] * 20), event, idempotency_key=None)
    facts = bench.recorder.of(EventRetryScheduled)
    assert [fact.idempotency_key for fact in facts] == [key] * 8
    assert bench.letters[0].idempotency_key == key
    assert len(caplog.records) >= 9
    assert {vars(record)["idempotency_key"] for record in caplog.records} == {key}


# ---- the letter


def test_the_letter_has_the_documented_payload_and_one_name(bench: Bench, run: Run) -> None:
    body = json.dumps(EVENT, indent=4).encode()
    for _ in range(2):
        run(Failing(*[missing] * 20), body)
    letter, again = bench.letters
    assert letter.letter_id == again.letter_id
    assert letter.body == body
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


@pytest.mark.parametrize(
    "event",
    [b"not json", b"\xff", b"[]", b"{}", "{", ["a", "list"], 42, None, b'{"event_type":""}'],
)
def test_what_is_no_event_is_a_letter_and_never_reaches_the_handler(
    bench: Bench, run: Run, event: Any
) -> None:
    handler = Failing()
    answer = run(handler, event)
    assert (answer.reason, handler.got) == (Reason.MALFORMED, [])
    (letter,) = bench.letters
    if isinstance(event, bytes):
        assert letter.body == event
    assert letter.error_type == "MalformedEventError"
    assert [fact.reason for fact in bench.recorder.of(DeadLettered)] == [Reason.MALFORMED]
    with pytest.raises(MalformedEventError):
        run(handler, event, dlq=None)


@pytest.mark.parametrize(
    "data", [{"half": "\ud800"}, {"big": 10**40}, {"odd": object()}, {(1, 2): {3}}]
)
def test_a_dict_that_is_hardly_json_is_kept_as_well_as_can_be(bench: Bench, data: Any) -> None:
    bench.once(Failing(TypeError()), {"event_type": "A", "data": data})
    assert b'"event_type"' in bench.letters[0].body
    msgspec.json.encode(bench.letters[0])


def test_headers_that_cannot_be_read_end_the_event_instead_of_counting_anew(bench: Bench) -> None:
    handler = Failing()
    answer = bench.once(handler, travel={"headway-travel": "{"})
    assert (answer.reason, handler.got) == (Reason.MALFORMED, [])
    assert "headway-travel" in bench.letters[0].last_error


_RECORD = '{"number":1,"at":"AT","worker":"","error_type":"","message":"","verdict":"","rule":""}'


def _refusals(*refusals: tuple[str, str]) -> str:
    made = [Refusal(version=v, since="2026-01-17T05:00:00Z", error=error) for v, error in refusals]
    return '"refusals":' + msgspec.json.encode(made).decode()


FORGED = {
    "negative failures": '"failures":-100000',
    "negative waits for a document": '"failures":3,"not_yet":-9',
    "more waits than failures": '"failures":1,"not_yet":900000',
    "too many failures": '"failures":10000000000000000000000000',
    "first seen without a zone": '"first_seen":"2026-01-17T05:00:00"',
    "first seen far ahead": '"first_seen":"9999-12-31T23:59:59Z"',
    "parked for less than no time": '"parked":"-P1D"',
    "no generation": '"generation":""',
    "no time of an attempt": f'"history":[{_RECORD}]',
    "too many refusals": _refusals(*((str(number), "") for number in range(17))),
    "a version that refused twice": _refusals(("1", ""), ("1", "")),
    "nested too deeply": '"x":' + "[" * 100_000 + "]" * 100_000,
    "too large": '"x":"' + "x" * 200_000 + '"',
}
HEADERS: dict[str, Any] = {name: f'{{"operation":"o",{text}}}' for name, text in FORGED.items()} | {
    "no operation": '{"operation":""}',
    "half a character": '{"operation":"\ud800"}',
    "no object": "[]",
    "no text": 17,
    "none of ours": {"operation": "o"},
    "an object": Travel(operation="o", failures=-5),
    "an object without a zone": Travel(operation="o", first_seen=datetime(2026, 1, 17)),  # noqa: DTZ001
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_forged_attempts_end_the_event_as_malformed(bench: Bench, header: Any) -> None:
    handler = Failing(*[TimeoutError] * 20)
    travel = header if isinstance(header, Travel) else {"headway-travel": header}
    answer = bench.once(handler, travel=travel)
    assert isinstance(answer, Abandoned)
    assert (answer.reason, handler.got) == (Reason.MALFORMED, [])
    assert len(bench.letters[0].last_error) < 500


def test_a_long_operation_is_shortened_to_the_same_name_each_time(bench: Bench) -> None:
    header = {"headway-travel": '{"operation":"' + "o" * 20_000 + '"}'}
    first, second = (bench.once(Failing(missing), travel=header) for _ in range(2))
    assert len(first.travel.operation) < 255
    assert first.travel.operation == second.travel.operation


# ---- when there is no letter


def test_without_a_dlq_the_last_exception_is_raised_with_a_note(bench: Bench, run: Run) -> None:
    with pytest.raises(DocumentNotFoundError) as raised:
        run(Failing(*[missing] * 20), dlq=None)
    (note,) = raised.value.__notes__
    assert KEY in note
    assert "max_attempts_exceeded" in note
    assert bench.recorder.of(DeadLettered) == []
    (fact,) = bench.recorder.of(GaveUp)
    assert fact.context["idempotency_key"] == KEY


def test_a_letter_that_cannot_be_stored_is_raised_and_not_told(bench: Bench, run: Run) -> None:
    def full(_letter: Letter) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full") as raised:
        run(Failing(TypeError("wrong")), dlq=full)
    shown = "".join(traceback.format_exception(raised.value))
    assert "TypeError: wrong" in shown  # what happened first is not lost
    assert "do not acknowledge it" in shown
    assert bench.recorder.of(DeadLettered) == []


# ---- a plain function never waits


def test_a_plain_function_is_tried_once_and_the_caller_is_told_when_to_come_again(
    bench: Bench,
) -> None:
    handler = Failing(missing)
    answer = bench.once(handler, travel={"content-type": "json", "x-death": [1]})
    assert isinstance(answer, Delayed)
    assert (len(handler.got), bench.seconds) == (1, [])
    assert answer.delay.total_seconds() == pytest.approx(0.25)
    assert answer.due == bench.clock.now() + answer.delay
    assert (answer.travel.attempt, answer.travel.first_seen) == (2, bench.clock.now())
    assert set(answer.headers) == {"headway-travel"}


def test_the_ttl_outlives_the_process_and_time_spent_parked_does_not_count(bench: Bench) -> None:
    first = bench.once(Failing(missing))
    parked = first.travel.parked_at(bench.clock.now())
    bench.clock.advance(timedelta(hours=5))
    assert bench.once(Failing(missing), travel=first.travel).reason is Reason.TTL_EXCEEDED
    assert isinstance(bench.once(Failing(missing), travel=parked), Delayed)


async def test_with_park_nothing_waits_and_the_fact_follows_the_storing(bench: Bench) -> None:
    kept: list[Delayed] = []

    def store(delayed: Delayed) -> None:
        assert bench.recorder.facts == []
        kept.append(delayed)

    answer = await bench.through(Failing(missing), park=store)
    assert kept == [answer]
    assert bench.seconds == []
    assert len(bench.recorder.of(EventRetryScheduled)) == 1

    def away(_delayed: Delayed) -> None:
        raise ConnectionError("broker away")

    with pytest.raises(ConnectionError, match="broker away") as raised:
        bench.once(Failing(missing), park=away)
    assert "do not acknowledge it" in raised.value.__notes__[0]
    assert len(bench.recorder.facts) == 1


def test_what_cannot_work_is_refused(bench: Bench) -> None:
    async def store(_letter: object) -> None: ...

    def looks_plain(kept: object) -> object:
        return store(kept)

    handler = Failing()
    for name in ("dlq", "park"):
        with pytest.raises(ConfigurationError, match=f"{name}="):
            bench.once(handler, **{name: store})
    assert handler.got == []
    with pytest.raises(ConfigurationError, match="'async def'"):
        bench.once(looks_plain)
    with pytest.raises(ConfigurationError, match="'async def'"):
        bench.once(Failing(TypeError()), dlq=looks_plain)
    with pytest.raises(ConfigurationError, match="service_name='two words'"):
        bench.once(Failing(), service_name="two words")


class Stop(BaseException):
    pass


@pytest.mark.parametrize("stop", [asyncio.CancelledError, Stop])
async def test_what_is_not_an_exception_passes_through(
    bench: Bench, stop: type[BaseException]
) -> None:
    def raise_it(_event: Any) -> None:
        raise stop

    with pytest.raises(stop):
        await bench.through(raise_it)
    assert (bench.recorder.facts, bench.letters) == ([], [])


# ---- reports


class Reports:
    def __init__(self) -> None:
        self.got: list[tuple[BaseException, Mapping[str, Any]]] = []

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
        self.got.append((error, context))
        raise RuntimeError("reporters must not raise, and some do")


@pytest.mark.parametrize("with_dlq", [True, False])
def test_one_report_for_each_end_and_none_for_what_recovers(
    bench: Bench, run: Run, *, with_dlq: bool
) -> None:
    reports, last = Reports(), missing()
    assert run(Failing(missing), error_reporter=reports) == "chunked"
    assert reports.got == []
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
async def test_every_attempt_of_a_coroutine_gets_the_event_as_it_came(
    bench: Bench, given: Any
) -> None:
    given = given if isinstance(given, MappingProxyType) else copy.deepcopy(given)
    as_event = json.loads(given) if isinstance(given, bytes | str) else given
    data = as_event.data if isinstance(as_event, Event) else as_event["data"]
    expected = copy.deepcopy(data)
    handler = Emptying(3)
    assert await bench.through(handler, given) == "chunked"
    assert handler.got == [expected] * 4
    kinds = [[type(each) for each in got.values()] for got in handler.got]
    assert kinds == [[type(each) for each in expected.values()]] * 4


def test_what_is_delayed_holds_the_event_as_it_came(bench: Bench) -> None:
    answer = bench.once(Emptying(1), copy.deepcopy(EVENT))
    assert json.loads(answer.body) == EVENT
    assert bench.once(Emptying(0), answer.body, travel=answer.headers) == "chunked"


async def test_the_letter_and_the_report_hold_the_event_as_it_came(bench: Bench) -> None:
    reports = Reports()

    async def store(letter: Letter) -> None:
        await asyncio.sleep(0)
        bench.letters.append(letter)

    given, tools = copy.deepcopy(EVENT), {"error_reporter": reports, "dlq": store}
    answer = await bench.through(Emptying(100), given, **tools)
    assert bench.letters == [answer.letter]
    assert answer.letter.original_event == EVENT
    assert [context["event"] for _, context in reports.got] == [EVENT]
