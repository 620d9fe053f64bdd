"""The archives of the demonstration: the sample list, with one message that nobody can read."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from headway.systems.consensus.identity import archive_id
from headway.systems.consensus.mail.unpacking import unpack
from headway.systems.consensus.sample import sample_archives
from headway.systems.consensus.services.messages import parse_slice
from headway.systems.consensus.slicing import Plan, plan

POISON = b"From broken@disk.example Fri Feb 28 23:59:59 2025\n" + b"\0" * 512 + b"\n"
"""What a failing disk makes of a message: nothing of it is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is sent through the pipeline."""

    paths: Sequence[Path]
    messages: int
    """In all archives, without the one that nobody can read."""
    threads: int
    late: Sequence[str]
    """The ids of some messages of the last archive."""


def prepare(folder: Path, months: int, late: int, now: datetime) -> Prepared:
    """Copy archives into a folder, and spoil the first."""
    paths = [Path(shutil.copy(each, folder)) for each in sample_archives()[:months]]
    with paths[0].open("ab") as first:
        first.write(POISON)
    latest = now + timedelta(days=1)
    messages, threads = 0, set[str]()
    for path in paths:
        content = b"".join(unpack(str(path)))
        named = archive_id(sha256(content).hexdigest())
        planned = plan(named, content, latest=latest)
        threads |= {each.thread_id for each in planned.threads}
        messages += planned.message_count
    return Prepared(
        paths=paths,
        messages=messages - 1,
        threads=len(threads),
        late=_keys(named, content, planned, latest)[-late:],
    )


def _keys(archive: str, content: bytes, planned: Plan, latest: datetime) -> list[str]:
    """Give the ids that parsing will give the messages: they are made of what a message is."""
    return [
        each["_id"]
        for part in planned.slices
        if part.places[0].thread_id
        for each in parse_slice(
            {
                "archive_id": archive,
                "file_path": "",
                "latest": latest.isoformat(),
                "messages": [[p.start, p.end, p.thread_id] for p in part.places],
            },
            content,
        ).messages
    ]
