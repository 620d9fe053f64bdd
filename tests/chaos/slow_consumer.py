"""The consumer as `headway uptime run` starts it on Kafka, but now and then a batch is slow.

Run as `python -m tests.chaos.slow_consumer PROCESSES BATCH BATCH_SECONDS`, with UPTIME_*.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from zlib import crc32

from arroyo.backends.kafka import KafkaPayload
from arroyo.processing.strategies.batching import ValuesBatch
from arroyo.types import Message

from headway.order import Disposition
from headway.systems.uptime import kafka
from headway.systems.uptime.hosting import host_of
from headway.systems.uptime.results import decode
from headway.systems.uptime.settings import UptimeSettings

SLOW_ONE_IN = 9
SLOW_INTERVALS = 1.4
INTERVAL_SECONDS = 60
BATCHES = "batches.jsonl"


def slowly(settings: UptimeSettings, message: Message[ValuesBatch[KafkaPayload]]) -> int:
    """Do what `kafka.take` does, some batches late; write down when, and what was held."""
    raws = [value.payload.value for value in message.payload]
    guids = [decode(raw).guid for raw in raws]
    if crc32(guids[0].encode()) % SLOW_ONE_IN == 0:
        time.sleep(SLOW_INTERVALS * INTERVAL_SECONDS * settings.time_scale)
    host, seen = host_of(settings), Path(settings.store_place().path).with_name(BATCHES)
    # Before and after: in between, somebody may kill this process.
    _append(seen, {"pid": os.getpid(), "at": time.time(), "guids": guids})
    fates = host.handle(raws, host.progress())
    host.flush()
    held = [guid for guid, fate in zip(guids, fates, strict=True) if fate is Disposition.HELD]
    _append(seen, {"pid": os.getpid(), "held": held})
    if Disposition.LEFT in fates:
        raise kafka.ResultsLeftError(f"of {len(raws)} results some were neither applied nor held")
    return len(raws)


def _append(path: Path, seen: object) -> None:
    # In one write: other processes write there too.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{json.dumps(seen)}\n".encode())
    finally:
        os.close(file)


def main() -> None:
    processes, batch, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    # All else is the product's own: how it ends, and how it begins anew when a process died.
    strategy = partial(kafka.UptimeStrategy, batch_seconds=seconds, worker=slowly)
    vars(kafka)["UptimeStrategy"] = strategy
    settings = UptimeSettings.from_mapping(os.environ)
    kafka.run_kafka(
        settings, processes=processes, batch=batch, overrides={"session.timeout.ms": 6000}
    )


if __name__ == "__main__":
    main()
