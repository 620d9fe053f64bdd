"""A temporary folder which its owner removes, or the next run if the owner was killed."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "headway-server-"


class OwnedFolder:
    """A folder under the system's temporary folder, locked by the process that made it.

    The lock is an flock on the folder itself. The kernel drops it when the owner ends, also by
    `kill -9`, so a folder that can be locked has no owner: every new folder first removes those.
    A pid in a file would lie once the pid is used again; a watching child could be killed too.
    """

    def __init__(self, purpose: str) -> None:
        remove_abandoned_folders()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
            try:
                self._lock = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:  # another process took it for abandoned before it was locked
                continue
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():
                return
            os.close(self._lock)

    def remove(self) -> None:
        shutil.rmtree(self.path)
        os.close(self._lock)


def remove_abandoned_folders() -> None:
    """Remove the folders whose owner is gone; what cannot be removed is left to the next run."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # removed meanwhile, or another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # its owner lives
            continue
        finally:
            os.close(lock)
