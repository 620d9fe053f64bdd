"""`headway demo uptime`: the workload, the figures, the picture, and the command itself."""

import json
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from headway.apps.cli.drawing import bars, columns
from headway.facts import GapGivenUp, ResultHeld, ResultReleased
from headway.order import Why
from headway.systems.uptime.demo.criteria import criteria
from headway.systems.uptime.demo.journal import Journal, JournalWatcher
from headway.systems.uptime.demo.measured import Line, Measured, measure
from headway.systems.uptime.demo.picture import Drawn, Panel, Picture
from headway.systems.uptime.demo.pool import Progress, batches
from headway.systems.uptime.demo.scenario import Arrival, Scenario, traffic
from headway.testing.chance import Fixed, Seeded
from headway.testing.servers.process import Process, wait_until
from tests.cli.test_command import COMMAND, headway

SMALL = Scenario(subscriptions=40, seed=1)


def test_the_traffic_is_complete_but_for_what_never_comes() -> None:
    made = traffic(SMALL, Seeded(1))
    assert len(made.arrivals) + len(made.missing) == SMALL.results
    assert len(made.missing) == round(SMALL.results * SMALL.missing)
    assert len(traffic(replace(SMALL, subscriptions=10), Seeded(1)).missing) == 1
    came = {(arrival.subscription, arrival.scheduled) for arrival in made.arrivals}
    assert not came & made.missing
    assert [a.at for a in made.arrivals] == sorted(a.at for a in made.arrivals)
    assert traffic(SMALL, Seeded(1)) == made


def test_batches_overtake_one_another_only_where_something_is_slow() -> None:
    made = traffic(SMALL, Seeded(1)).arrivals

    def overtaken(slow: float) -> int:
        last, count = dict.fromkeys(range(SMALL.subscriptions), -1), 0
        for batch in batches(replace(SMALL, slow=slow), made, Seeded(1)):
            for arrival in batch.arrivals:
                count += arrival.number < last[arrival.subscription]
                last[arrival.subscription] = max(last[arrival.subscription], arrival.number)
        return count

    assert overtaken(0.0) == 0
    assert overtaken(0.25) > 20


def test_while_nobody_consumes_no_batch_begins() -> None:
    (begins, lasts), *_ = SMALL.backlogs
    made = [Arrival(0, number, begins + number, begins + number) for number in range(5)]
    (batch,) = batches(SMALL, made, Fixed(0.99))
    assert batch.done > begins + lasts


def test_offsets_that_are_not_done_hold_up_all_after_them() -> None:
    made = [Arrival(0, number, number, float(number)) for number in range(4)]
    first, second = batches(replace(SMALL, subscriptions=8, batch_time=0.5), made, Fixed())[:2]
    progress = Progress(made)
    assert progress.caught_up(-1.0) is None
    assert progress.caught_up(5.0) == made[0].at
    progress.take(second)
    assert progress.caught_up(5.0) == made[0].at
    progress.take(first)
    assert progress.caught_up(5.0) == made[len(first.arrivals) + len(second.arrivals)].at


def a_run(journal: Journal, way: str = "in order", **changes: Any) -> Measured:
    came = {("a", position): float(position) for position in range(6) if position != 3}
    known = {"came": came, "missing": frozenset({("a", 3)}), "still": [(20.0, 30.0)]}
    return measure(way, journal, until=100.0, seconds=1.0, **known | changes)


def test_a_gap_is_counted_from_its_opening_to_its_result() -> None:
    journal = Journal()
    watcher = JournalWatcher(journal, 1)
    journal.apply("a", 0)
    journal.now = 10.0
    watcher.tell(ResultHeld("a", 2, 1))
    journal.now = 40.0
    journal.apply("a", 1)
    journal.apply("a", 2)
    watcher.tell(ResultReleased("a", 2))
    journal.now = 50.0
    watcher.tell(ResultHeld("a", 4, 1))
    watcher.tell(ResultHeld("a", 5, 2))
    journal.now = 60.0
    watcher.tell(GapGivenUp("a", Why.TIMEOUT, 2))
    journal.miss("a", 3)
    for position in (4, 5):
        journal.apply("a", position)
        watcher.tell(ResultReleased("a", position))
    run = a_run(journal)
    assert (journal.filled, run.filled_soon) == ([30.0], 1)
    assert (run.added, run.timeouts, run.true_misses, run.false_misses) == (3, 1, 1, 0)
    assert (run.in_order, run.twice, run.not_applied) == (True, 0, 0)
    # 20 s with one held (ten more nobody consumed), and 10 s with two.
    assert run.mean_held == pytest.approx((20 + 20) / 30)


def test_figures_find_what_is_wrong() -> None:
    journal = Journal()
    for position in (0, 2, 1, 1):
        journal.apply("a", position)
    journal.miss("a", 1)
    run = a_run(journal)
    assert (run.in_order, run.twice, run.false_misses, run.true_misses) == (False, 1, 1, 0)
    assert run.not_applied == 2


def test_each_criterion_can_fail() -> None:
    plain = a_run(Journal(), "plain")
    plain = replace(plain, false_misses=1000, true_misses=1)
    good = replace(
        plain,
        false_misses=0,
        added=2000,
        applied=5,
        timeouts=1,
        filled=100,
        filled_soon=95,
        mean_held=1.5,
    )
    assert [each.met for each in criteria(plain, good)] == [True] * 8
    wrong = [
        (replace(plain, false_misses=0), good),
        (plain, replace(good, filled_soon=89)),
        (plain, replace(good, timeouts=100)),
        (plain, replace(good, breakers=2)),
        (plain, replace(good, mean_held=2.1)),
        (plain, replace(good, false_misses=1)),
        (plain, replace(good, true_misses=0)),
        (plain, replace(good, twice=1)),
    ]
    for number, (before, after) in enumerate(wrong):
        assert [each.met for each in criteria(before, after)].index(False) == number


def test_the_picture_is_well_formed_and_stays_inside() -> None:
    line = Line("<plain>", [(0.0, 0.0), (30.0, 87.0), (60.0, 3.0)])
    panel = Panel("a & b", [Drawn(line, "#000000")])
    drawn = Picture(
        title="x", subtitle="y", panels=[panel], shaded=[(10, 20)], shaded_means="z", until=60.0
    ).svg()
    root = ET.fromstring(drawn)  # noqa: S314 (our own)
    (path,) = [each for each in root.iter() if each.tag.endswith("path")]
    points = [tuple(map(float, p.split(","))) for p in path.attrib["d"][1:].split(" L")]
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < x < width and 0 < y < height for x, y in points)
    assert points[1][1] < points[2][1] < points[0][1]
    assert "<plain>" in [each.text for each in root.iter() if each.tag.endswith("text")]


def test_bars_show_what_is_small_and_keep_the_highest() -> None:
    assert columns([(0, 1), (1, 5), (9, 2)], 10, 5) == [5, 5, 5, 5, 2]
    assert list(bars([0, 0.001, 10], 10, 1)) == ["▁▂█"]


def test_the_demo_meets_every_criterion_and_leaves_only_its_picture(tmp_path: Path) -> None:
    words = ("demo", "uptime", "--subscriptions", "80", "--seed", "4", "--json")
    done = headway(*words, folder=tmp_path, environment={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    plain, ordered = shown["runs"]
    assert shown["met"]
    assert [each["met"] for each in shown["criteria"]] == [True] * 8
    assert plain["false_misses"] > 100
    assert (ordered["false_misses"], ordered["true_misses"]) == (0, 4)
    assert ordered["applied"] == ordered["came"] == 3996
    assert [path.name for path in tmp_path.iterdir()] == ["uptime-demo.svg"]
    ET.parse(tmp_path / "uptime-demo.svg")  # noqa: S314 (our own)


def test_what_is_shown_fits_the_terminal_and_an_unmet_criterion_is_an_exit_code(
    tmp_path: Path,
) -> None:
    words = ("demo", "uptime", "--subscriptions", "10", "--backlog", "1", "--picture", "-")
    done = headway(*words, folder=tmp_path, environment={"COLUMNS": "70"})
    assert done.returncode == 1, done.stdout + done.stderr  # hardly any disorder, one true miss
    assert max(map(len, done.stdout.splitlines()[:-6])) <= 70
    assert "NOT MET fewer timeouts than 5% of held results" in done.stdout
    assert "met     every true miss found: 1 of 1" in done.stdout
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_has_no_folder_is_refused_at_once(tmp_path: Path) -> None:
    done = headway("demo", "uptime", "--picture", "nowhere/a.svg", folder=tmp_path)
    assert done.returncode == 2
    assert "Invalid --picture 'nowhere/a.svg': there is no folder " in done.stderr


@pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing_behind(
    tmp_path: Path, order: signal.Signals
) -> None:
    log = tmp_path / "demo.log"
    process = Process(
        ["env", "--default-signal=INT", *COMMAND, "demo", "uptime", "--picture", "-"],
        log=log,
        environment={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
    )
    try:
        soon = timedelta(seconds=20)
        assert wait_until(lambda: "processing" in log.read_text(), soon)
        assert process.end(order, soon)
    finally:
        process.kill()
    assert log.read_text().splitlines()[-1] == "stopped: nothing is left of it"
    assert [path.name for path in tmp_path.iterdir()] == ["demo.log"]
