"""The usual way: find what is stuck, and for each document update it and publish its event."""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
from pymongo import MongoClient

from benchmarks.rabbitmq.broker import channel, declare
from benchmarks.rabbitmq.child import report
from benchmarks.sweeping.stage import COLLECTION, FIELD, QUEUE


def main(url: str, store: str, stuck: int) -> None:
    declare(url, QUEUE)
    client: MongoClient[dict[str, Any]] = MongoClient(store)
    documents = client.get_default_database()[COLLECTION]
    properties = pika.BasicProperties(delivery_mode=2)
    began = time.perf_counter_ns()
    with channel(url) as publishing:
        publishing.confirm_delivery()
        now = datetime.now(UTC)
        due = {"status": "failed", "lastAttemptTime": {"$lt": now - timedelta(minutes=5)}}
        for document in documents.find(due):
            changes = {"$inc": {"attemptCount": 1},
                       "$set": {"lastAttemptTime": now, "status": "pending"}}  # fmt: skip
            documents.update_one({"_id": document["_id"]}, changes)
            event = {"event_type": "JSONParsed", "data": {FIELD: [document["_id"]]}}
            publishing.basic_publish("", QUEUE, json.dumps(event).encode(), properties)
    report(each=(time.perf_counter_ns() - began) / stuck)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
