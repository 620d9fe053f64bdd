"""Archives that were ingested before, from the same place: whose content is the same is known."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from headway.assembly.connection import Connection
from headway.systems.consensus.mail.errors import MailError
from headway.systems.consensus.mail.unpacking import unpack

_ALL = 10_000_000


async def without_known(headway: Connection, archives: Sequence[str], data: Path) -> list[str]:
    """Leave out what is kept already; only what came from the same path before is read for it.

    A copy under another name is recognised when it is ingested.
    """
    kept: dict[str, dict[str, str]] = {}
    for each in await headway.find("archives", limit=_ALL):
        by_hash = kept.setdefault(str(each.get("source_url")), {})
        by_hash[str(each.get("file_hash"))] = str(each.get("file_path"))
    return [each for each in archives if not _is_kept(each, kept, data)]


def _is_kept(path: str, kept: dict[str, dict[str, str]], data: Path) -> bool:
    before = kept.get(Path(path).absolute().as_uri())
    if not before:
        return False
    digest = sha256()
    try:
        for piece in unpack(path):
            digest.update(piece)
    except (MailError, OSError):
        return False  # whoever ingests it says what is wrong
    file = before.get(digest.hexdigest())
    # One whose file is lost has to be ingested again.
    return file is not None and (data / file).is_file()
