"""Ids that are made from what a thing is: made twice, they are the same."""

import hashlib
from collections.abc import Iterable

_LENGTH = 16


def short_hash(*parts: str) -> str:
    """Give 16 hex digits for some texts, in this order."""
    return hashlib.sha256("|".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def archive_id(file_hash: str) -> str:
    """Name an archive by the SHA-256 of its content."""
    return file_hash[:_LENGTH]


def slice_id(archive: str, start: int, end: int) -> str:
    """Name the part of an archive between two offsets."""
    return short_hash(archive, "slice", str(start), str(end))


def message_key(archive: str, message_id: str, date: str, sender: str, subject: str) -> str:
    """Name a message of an archive: its document's id."""
    return short_hash(archive, message_id, date, sender, subject)


def thread_id(root_message_id: str) -> str:
    """Name a thread by the message that began it, whichever archive that is in."""
    return short_hash("thread", root_message_id)


def chunk_id(message: str, index: int) -> str:
    return short_hash(message, str(index))


def request_id(thread: str, chunks: Iterable[str]) -> str:
    """Name a summary of these chunks; it is the id of the summary too."""
    joined = ",".join(sorted(chunks))
    return hashlib.sha256(f"{thread}:{joined}".encode()).hexdigest()


def summary_document_id(summary: str) -> str:
    return short_hash(summary)


def report_id(thread: str, summary: str) -> str:
    return short_hash("report", thread, summary)
