"""The limit: the writes that Headway makes, a thousand at a time, and a window of confirms.

Claimed under a token, so that two could do it at once; published; the claim let go. Nothing is
around it: no rule, no schema, no error that is handled.
"""

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pika
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

from benchmarks.rabbitmq.broker import declare
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.confirms import Confirms
from benchmarks.sweeping.stage import COLLECTION, FIELD, QUEUE

_PAGE = 1_000


def claim(documents: Collection[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Claim page after page; give the token and the ids of each."""
    now = datetime.now(UTC)
    due = {"status": "failed", "lastAttemptTime": {"$lt": now - timedelta(minutes=5)}}
    found = list(documents.find(due, {"_id": 1, "text": 1, "number": 1, "attemptCount": 1}))
    for start in range(0, len(found), _PAGE):
        token = uuid4().hex
        ids = [each["_id"] for each in found[start : start + _PAGE]]
        generation = {"$add": [{"$ifNull": ["$sweepGeneration", 0]}, 1]}
        changes = {
            "claimToken": token,
            "claimUntil": now + timedelta(minutes=1),
            "claimBefore": {
                "status": "$status",
                "attemptCount": "$attemptCount",
                "lastAttemptTime": "$lastAttemptTime",
            },
            "status": "pending",
            "attemptCount": {"$add": ["$attemptCount", 1]},
            "lastAttemptTime": now,
            "sweepGeneration": generation,
            "lastOperation": {
                "$concat": ["sweep-", {"$toString": generation}, ":messages:", "$_id"]
            },
        }
        documents.update_many({"_id": {"$in": ids}, **due}, [{"$set": changes}])
        yield token, ids


class Sweep:
    """Publishes each page, and lets go of its claims when all of it is confirmed."""

    def __init__(self, url: str, documents: Collection[dict[str, Any]]) -> None:
        self._documents = documents
        self._pages = claim(documents)
        self._confirms: Confirms[None] = Confirms()
        self._token = ""
        self._properties = pika.BasicProperties(delivery_mode=2, content_type="application/json")
        self.connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_close_callback=lambda connection, _reason: connection.ioloop.stop(),
        )

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._confirmed, callback=lambda _answer: self._next())

    def _next(self) -> None:
        page = next(self._pages, None)
        if page is None:
            self.connection.close()
            return
        self._token, ids = page
        for each in ids:
            event = {"event_type": "JSONParsed", "event_id": each, "data": {FIELD: [each]}}
            body = json.dumps(event).encode()
            self._channel.basic_publish("", QUEUE, body, self._properties, mandatory=True)
            self._confirms.published(None)

    def _confirmed(self, frame: Any) -> None:
        self._confirms.confirmed(frame)
        if not self._confirms:
            claims = {"claimToken": "", "claimUntil": "", "claimBefore": ""}
            self._documents.update_many({"claimToken": self._token}, {"$unset": claims})
            self._next()


def main(url: str, store: str, stuck: int) -> None:
    declare(url, QUEUE)
    client: MongoClient[dict[str, Any]] = MongoClient(store)
    # As durable as Headway's.
    safe = WriteConcern("majority", j=True)
    documents = client.get_default_database().get_collection(COLLECTION, write_concern=safe)
    documents.create_index("claimToken", sparse=True)
    began = time.perf_counter_ns()
    sweep = Sweep(url, documents)
    sweep.connection.ioloop.start()
    report(each=(time.perf_counter_ns() - began) / stuck)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
