"""What is said of an error: of MongoDB's, only what happened."""

import pytest
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    NotPrimaryError,
    OperationFailure,
    ServerSelectionTimeoutError,
    WriteError,
)

from headway.core.failure import words

REFUSED = (
    "db:1: [Errno 111] Connect call failed ('10.0.0.1', 1) (configured timeouts: "
    "socketTimeoutMS: 5000.0ms, connectTimeoutMS: 5000.0ms)"
)
ANSWER = {"ok": 0.0, "errmsg": "not primary", "topologyVersion": {"processId": b"c\x01"}}
SAID: dict[str, tuple[Exception, str]] = {
    "a server that steps down": (NotPrimaryError("not primary", ANSWER), "not primary"),
    "a refusal": (OperationFailure("no such command: 'x'", 59, ANSWER), "no such command: 'x'"),
    "a document that is refused": (
        WriteError("Document failed validation", 121, ANSWER),
        "Document failed validation",
    ),
    "a lost connection": (
        AutoReconnect(REFUSED),
        "db:1: [Errno 111] Connect call failed ('10.0.0.1', 1)",
    ),
    "two servers that are away": (
        ServerSelectionTimeoutError(
            f"{REFUSED},{REFUSED.replace('db:1', 'db:2')}, Timeout: 5.0s, Topology Description: "
            "<TopologyDescription id: 1, servers: [<all of it>]>"
        ),
        (
            "db:1: [Errno 111] Connect call failed ('10.0.0.1', 1),"
            "db:2: [Errno 111] Connect call failed ('10.0.0.1', 1)"
        ),
    ),
    "a bulk, whose errors are nowhere else": (
        BulkWriteError({"writeErrors": [{"code": 121, "errmsg": "failed validation", "op": {}}]}),
        "batch op errors occurred: failed validation",
    ),
    "a bulk without errors": (BulkWriteError({"writeErrors": []}), "batch op errors occurred"),
    "an odd answer": (DuplicateKeyError("E11000", 11000, {"writeErrors": 7}), "E11000"),
}


@pytest.mark.parametrize("name", SAID)
def test_of_what_mongodbs_driver_says_only_what_happened_is_told(name: str) -> None:
    error, said = SAID[name]
    assert words(error) == said


def test_what_others_say_is_told_as_it_is() -> None:
    text = "it failed, full error: {'my': 'own'}, Timeout: 5.0s, Topology Description: <flat>"
    assert words(RuntimeError(text)) == text
