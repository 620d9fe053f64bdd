"""The collection, and how its documents are made stuck."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import ASCENDING, MongoClient

COLLECTION = "messages"
QUEUE = "chunking.json.parsed"
FIELD = "message_doc_ids"
_AT_ONCE = 20_000
_TEXT = "x" * 120


class Stage:
    """One database with the collection in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        client: MongoClient[dict[str, Any]] = MongoClient(url)
        self._documents = client.get_default_database()[COLLECTION]
        self._count = 0

    def fill(self, count: int) -> None:
        self._count = count
        for start in range(0, count, _AT_ONCE):
            self._documents.insert_many(
                [_processed(number) for number in range(start, min(start + _AT_ONCE, count))],
                ordered=False,
            )
        # The one that the loops find their documents by; Headway makes its own.
        self._documents.create_index([("status", ASCENDING), ("lastAttemptTime", ASCENDING)])

    def make_stuck(self, count: int) -> None:
        """Let documents all over the collection have failed an hour ago, and no others."""
        self._documents.update_many(
            {"status": {"$ne": "processed"}},
            [{"$replaceWith": {"_id": "$_id", "text": "$text", "number": "$number",
                               "status": "processed", "attemptCount": 1}}],
        )  # fmt: skip
        step = self._count // count
        ids = [_name(number * step) for number in range(count)]
        ago = datetime.now(UTC) - timedelta(hours=1)
        changes = {"status": "failed", "attemptCount": 1, "lastAttemptTime": ago}
        done = self._documents.update_many({"_id": {"$in": ids}}, {"$set": changes})
        if done.matched_count != count:
            raise RuntimeError(f"{done.matched_count} of {count} documents are stuck")

    def counted(self) -> int:
        """How many have had a second attempt."""
        return self._documents.count_documents({"status": "pending", "attemptCount": 2})


def _name(number: int) -> str:
    return f"message-{number:08}"


def _processed(number: int) -> dict[str, Any]:
    return {
        "_id": _name(number),
        "text": _TEXT,
        "number": number,
        "status": "processed",
        "attemptCount": 1,
    }
