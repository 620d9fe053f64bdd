"""`headway failed` is killed in the middle, several times: no letter is lost, none counts twice."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.cli.shops import ShopFile

LETTERS = 400
COMMAND = (sys.executable, "-m", "headway.apps.cli", "failed")


class Killed:
    """Commands on a file of letters, none of which gets to its end."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.shop = ShopFile(folder)
        self.shop.fill(*({"bad": f"archive-{n}"} for n in range(LETTERS)))
        self.dice = random.Random(seed)
        self.hits = 0
        self._file = sqlite3.connect(self.shop.path)

    def left(self) -> int:
        (count,) = self._file.execute("select count(*) from headway_letters").fetchone()
        return int(count)

    def kill(self, *words: str) -> None:
        """Start a command, and kill it when it has begun to change something."""
        before = self.left()
        few = before - self.dice.randint(1, 40)
        with subprocess.Popen(
            [*COMMAND, *words],
            cwd=self.shop.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            while self.left() > few and process.poll() is None:
                time.sleep(0.0005)
            time.sleep(self.dice.random() * 0.004)
            process.send_signal(signal.SIGKILL)
        after = self.left()
        self.hits += process.returncode == -signal.SIGKILL and 0 < after < before
        self.verify()

    def verify(self) -> None:
        done = self.shop("verify")
        assert done.exit_code == 0, done.stdout

    def close(self) -> None:
        self._file.close()


def test_a_requeue_that_is_killed_is_completed_by_the_next_one(tmp_path: Path) -> None:
    killed = Killed(tmp_path, 1)
    shop = killed.shop
    for number in range(6):
        # One commit for each letter, or one for fifty.
        killed.kill("requeue", "parsing", *(("--rate", "2000") if number % 2 else ()))
        if number == 3:
            shop.work()
            killed.verify()
    assert killed.hits >= 3, f"only {killed.hits} of 6 were killed in the middle"
    there = killed.left()
    done = shop("failed", "requeue", "parsing")
    assert (done.exit_code, f"{there} of {there} letters" in done.stdout) == (0, True)
    shop.work()
    expected = {f"archive-{n}": 1 for n in range(LETTERS)}
    assert Counter(each["bad"] for each in shop.effects) == expected
    assert Counter(each["bad"] for each in shop.documents("parsed")) == expected
    assert killed.left() == 0
    killed.verify()
    killed.close()


def test_a_purge_that_is_killed_is_completed_by_the_next_one(tmp_path: Path) -> None:
    killed = Killed(tmp_path, 2)
    shop = killed.shop
    for _ in range(3):
        if killed.left():
            killed.kill("purge", "parsing", "--yes")
    assert killed.hits, "none was killed in the middle"
    assert shop("failed", "purge", "parsing", "--yes").exit_code == 0
    shop.work()
    assert (shop.effects, killed.left()) == ([], 0)
    found = json.loads(shop("verify", "--json").stdout)
    assert (found["verdict"], found["purged"]) == ("ok", LETTERS)
    killed.close()
