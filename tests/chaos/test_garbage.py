"""Whatever bytes come in, each ends as a letter that says why, and good events go on."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from headway.operations import Letter
from headway.testing.engines import open_engine
from headway.testing.ports import Message, Travel
from tests.chaos.running import Site

QUEUE = "strict.order"
GOOD = 1_000
GARBAGE = 10_000
dice = random.Random(7)


def fuzz() -> Iterator[tuple[str, bytes]]:
    """Every kind of garbage, for ever; each with the reason that it should end with."""
    good = b'{"event_type":"Order","event_id":"x","data":{"number":1,"items":["a","b"]}}'
    yield "malformed", b'{"event_type":"Order","data":{"number":1,"pad":"' + b"x" * 5_000_000
    yield "malformed", b"[" * 200_000
    yield "malformed", b'{"event_type":"Order","data":' + b'{"a":' * 100_000
    yield "malformed", b"\x00" * 1_000_000
    while True:
        yield "malformed", dice.randbytes(dice.randrange(0, 200))
        yield "malformed", good[: dice.randrange(len(good) - 1)]
        yield "malformed", b""
        yield "malformed", b"\xff\xfe" + good
        yield "malformed", b'{"event_type":"Order","data":{"number":1,"items":["\xed\xa0\x80"]}}'
        yield "malformed", b'{"event_type":%d,"data":{}}' % dice.randrange(100)
        yield "malformed", b'{"event_type":"","data":{}}'
        yield "malformed", b'{"data":{"number":1}}'
        yield "malformed", b'[{"event_type":"Order"}]'
        yield "malformed", b'"Order"'
        yield "malformed", b"NaN"
        yield "malformed", b'{"event_type":"Order","data":{"number":NaN}}'
        yield "malformed", good + b"{}"
        yield "malformed", good.replace(b'"event_id":"x"', b'"event_id":[]')
        yield "unroutable", good.replace(b"Order", b"Ordr%d" % dice.randrange(10))


def unfit() -> Iterator[tuple[str, bytes]]:
    """Events that are well formed, and not what the handler takes."""
    while True:
        yield "non_retryable", b'{"event_type":"Order","data":{"number":"one"}}'
        yield "non_retryable", b'{"event_type":"Order","data":{}}'
        yield "non_retryable", b'{"event_type":"Order","data":{"number":1,"items":[2]}}'
        yield "malformed", b'{"event_type":"Order","data":[1]}'
        yield "malformed", b'{"event_type":"Order","data":null}'


@pytest.mark.timeout(300)
async def test_garbage_becomes_letters_and_good_events_are_done(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    site = Site(tmp_path)
    with site.running("strict"):
        site.wait_for_workers(1)
    sent = [body for _, body in zip(range(GARBAGE - 300), fuzz(), strict=False)]
    sent += [body for _, body in zip(range(300), unfit(), strict=False)]
    dice.shuffle(sent)
    bodies = [(reason, body) for reason, body in sent]
    for number in range(GOOD):
        body = b'{"event_type":"Order","event_id":"good-%d","data":{"number":%d}}' % (
            number,
            number,
        )
        bodies.insert(dice.randrange(len(bodies)), ("", body))
    await publish(site, [body for _, body in bodies])

    with site.running("strict", "--workers", "2"):
        site.wait_for_workers(2)
        before = sorted(site.workers())
        site.wait(lambda: site.left() == 0, "all events have ended", seconds=120)
        assert sorted(site.workers()) == before, "a worker died"

    letters = [
        msgspec.json.decode(str(body), type=Letter)
        for (body,) in site.query("select cast(body as text) from headway_letters")
    ]
    expected = Counter((reason, body) for reason, body in bodies if reason)
    assert Counter((letter.abandoned_reason, letter.body) for letter in letters) == expected
    assert all(letter.last_error and letter.error_type for letter in letters)
    done = sorted(int(str(order["number"])) for order in site.documents("orders"))
    assert done == list(range(GOOD))
    verified = site.headway("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    record_property("shown", f"{len(letters)} letters with their bytes, {len(done)} good ones done")


async def publish(site: Site, bodies: list[bytes]) -> None:
    engine = open_engine(site.url)
    try:
        for start in range(0, len(bodies), 500):
            await engine.bus.publish(
                [
                    Message(body=body, travel=Travel(operation=f"op-{start + index}"), queue=QUEUE)
                    for index, body in enumerate(bodies[start : start + 500])
                ]
            )
    finally:
        await engine.bus.close()
