"""Several processes may open a new file at the same moment."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from headway.adapters.sqlite.connection import Location
from headway.adapters.sqlite.schema import open_file

_AT_ONCE = 8


def test_a_new_file_that_many_open_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(_AT_ONCE)

    def open_it(path: Path) -> None:
        together.wait()
        open_file(Location(path=path, busy=timedelta(seconds=20))).close()

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for number in range(20):
            list(threads.map(open_it, [tmp_path / f"{number}.db"] * _AT_ONCE))
