"""Both runs of a scenario as one picture."""

from headway.systems.uptime.demo.measured import Line
from headway.systems.uptime.demo.picture import Drawn, Panel, Picture
from headway.systems.uptime.demo.run import Played
from headway.systems.uptime.demo.scenario import Scenario

_PLAIN, _ORDERED = "#c2410c", "#1d4ed8"
FALSE_MISSES = "false misses, added up"
LATENCY = "latency: 95 % of what came then waited at most"
HELD = "results held for their turn"
STANDS_STILL = "the consumer stands still, and results pile up"


def panels(played: Played) -> dict[str, tuple[str, list[Line]]]:
    """Give the figures to draw, each under its title, with its unit."""
    plain, ordered = played.plain, played.ordered
    return {
        FALSE_MISSES: ("", [plain.false_line, ordered.false_line]),
        LATENCY: (" s", [plain.latency_line, ordered.latency_line]),
        HELD: ("", [ordered.held_line]),
    }


def shaded(scenario: Scenario) -> list[tuple[float, float]]:
    return [(float(begins), float(begins + lasts)) for begins, lasts in scenario.backlogs]


def picture(scenario: Scenario, played: Played) -> Picture:
    """Draw both runs, one panel for each figure."""
    colours = {played.plain.way: _PLAIN, played.ordered.way: _ORDERED}
    return Picture(
        title="The same results, in plain processing and in their order",
        subtitle=(
            f"{scenario.subscriptions} subscriptions, {played.plain.came} results, "
            f"{scenario.workers} workers whose batches overtake one another; "
            f"{played.plain.never_came} results never came"
        ),
        panels=[
            Panel(
                title,
                [
                    Drawn(line, colours[line.name], dashed=number > 0)
                    for number, line in enumerate(lines)
                ],
                unit,
            )
            for title, (unit, lines) in panels(played).items()
        ],
        shaded=shaded(scenario),
        shaded_means=STANDS_STILL,
        until=float(scenario.seconds),
    )
