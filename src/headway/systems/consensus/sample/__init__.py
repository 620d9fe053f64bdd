"""The mailing list that ships with the package."""

from importlib.resources import files
from pathlib import Path


def sample_archives() -> tuple[Path, ...]:
    """The files of the list, one for each month, oldest first."""
    entries = (Path(str(entry)) for entry in files(__name__).iterdir())
    return tuple(sorted(path for path in entries if ".mbox" in path.suffixes))
