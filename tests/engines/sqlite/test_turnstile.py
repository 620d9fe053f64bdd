"""The way to the write lock is fair: whoever has just had it queues behind those who wait."""

import fcntl
import threading
from datetime import timedelta
from pathlib import Path

from headway.adapters.sqlite.connection import Location
from headway.adapters.sqlite.turnstile import Turnstile
from headway.testing.servers.process import wait_until


def test_who_has_just_been_through_comes_after_who_waits(tmp_path: Path) -> None:
    location = Location(path=tmp_path / "headway.db")
    greedy, patient = Turnstile(location), Turnstile(location)
    order: list[str] = []

    def wait_for_a_turn() -> None:
        with patient:
            order.append("patient")

    with greedy:
        order.append("greedy")
        waiting = threading.Thread(target=wait_for_a_turn)
        waiting.start()
        assert wait_until(lambda: is_shut(tmp_path / "headway.db-next"), timedelta(seconds=10))
    with greedy:
        order.append("greedy")
    waiting.join()
    greedy.close()
    patient.close()
    assert order == ["greedy", "patient", "greedy"]


def test_a_process_that_was_stopped_at_a_gate_shuts_out_nobody_for_good(tmp_path: Path) -> None:
    location = Location(path=tmp_path / "headway.db")
    stopped, other = Turnstile(location), Turnstile(location)
    stopped.__enter__()
    with other:
        pass
    stopped.close()
    other.close()


def is_shut(gate: Path) -> bool:
    """Somebody stands in this gate."""
    if not gate.exists():
        return False
    with gate.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False
