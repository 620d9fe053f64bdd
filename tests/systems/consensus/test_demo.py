"""`headway demo consensus`: the command itself, and what it makes of what it sees."""

import json
from pathlib import Path

from tests.cli.test_command import headway


def test_five_things_go_wrong_and_nothing_is_missing(tmp_path: Path) -> None:
    """A month of the list; with all three it is the same, and takes longer."""
    kept = tmp_path / "kept"
    words = ("demo", "consensus", "--months", "1", "--keep", str(kept), "--json")
    # Settings of the machine it runs on are not its own.
    done = headway(*words, folder=tmp_path, environment={"RETRY_MAX_ATTEMPTS": "0"})
    found = json.loads(done.stdout)
    assert (found["shortcomings"], done.returncode) == ([], 0), done.stderr
    assert {each["short"]: each["seen"] for each in found["faults"]} == dict.fromkeys(
        ("poison", "late", "outage", "loss", "death"), True
    )
    assert found["seconds"] < 100
    assert (found["books"]["difference"], found["books"]["places"]["unrouted"]) == (0, 0)
    assert found["collections"]["messages"] == {"processed": 200}
    (letter,) = found["letters"]
    named = ["--bus", f"sqlite:///{kept}/headway.db"]
    looked = json.loads(headway("failed", "inspect", "parsing", "--json", *named).stdout)
    assert [each["letter_id"] for each in looked] == [letter["letter_id"]]
    again = headway("demo", "consensus", "--keep", str(kept))  # it is not empty any more
    assert (again.returncode, again.stdout) == (2, "")
