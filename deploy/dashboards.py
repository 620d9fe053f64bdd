"""Write the Grafana dashboards from their panels: `python deploy/dashboards.py [--check]`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    gauge,
    heatmap,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardSpecialValueMapOptions,
    DataSourceRef,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

import events_board
import failed_board
import retry_board
import uptime_board
from panel import Board, Choice, Panel

FOLDER = Path(__file__).resolve().parent / "grafana"
BOARDS = (events_board.BOARD, retry_board.BOARD, failed_board.BOARD, uptime_board.BOARD)
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH, _PER_ROW = 24, 3

Builder = timeseries.Panel | gauge.Panel | stat.Panel | heatmap.Panel


def build(board: Board) -> dict[str, Any]:
    """Give a dashboard as Grafana reads it."""
    page = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.says)
        .tags(list(board.tags))
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
    )
    for choice in board.choices:
        page.with_variable(_choice(choice))
    number = 0
    for title, panels in board.rows:
        number += 1
        page.with_row(dashboard.Row(title).id(number))
        for place, panel in enumerate(panels):
            number += 1
            page.with_panel(_drawn(panel, number, _span(place, len(panels))))
    built: dict[str, Any] = json.loads(json.dumps(page.build(), cls=JSONEncoder))
    return built


def _span(place: int, number: int) -> int:
    """Share out a line of panels: three on each, the rest as wide as there is room."""
    on_line = min(_PER_ROW, number - place // _PER_ROW * _PER_ROW)
    return _WIDTH // on_line


def _choice(choice: Choice) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(choice.name)
        .label(choice.name)
        .datasource(_SOURCE)
        .query(choice.query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)  # noqa: FBT003 (the library's way)
        .include_all(True)  # noqa: FBT003
        .all_value(".+")
    )


def _drawn(panel: Panel, number: int, span: int) -> Builder:
    kinds: dict[str, Callable[[Panel], Builder]] = {
        "graph": _graph,
        "gauge": _gauge,
        "number": _number,
        "heatmap": _heatmap,
    }
    drawn = (
        kinds[panel.kind](panel)
        .id(number)
        .title(panel.title)
        .description(panel.says)
        .datasource(_SOURCE)
        .unit(panel.unit)
        .min(0)
        .height(8)
        .span(span)
    )
    if panel.steps:
        drawn.thresholds(_thresholds(panel))
    for letter, (expression, name) in zip(ascii_uppercase, panel.lines, strict=False):
        drawn.with_target(_query(panel, expression).ref_id(letter).legend_format(name))
    return drawn


def _graph(panel: Panel) -> timeseries.Panel:
    graph = (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(10)
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .show_legend(True)  # noqa: FBT003
            .calcs(["lastNotNull", "max"])
        )
    )
    if panel.steps:
        style = common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED)
        graph.thresholds_style(style)
    return graph


# What is now, and not what was known last: lastNotNull would show a number of before the outage.
_NOW = common.ReduceDataOptions().calcs(["last"])


def _gauge(panel: Panel) -> gauge.Panel:
    return gauge.Panel().reduce_options(_NOW).mappings(_words(panel))


def _number(panel: Panel) -> stat.Panel:
    return (
        stat.Panel()
        .reduce_options(_NOW)
        .mappings(_words(panel))
        .color_mode(BigValueColorMode.BACKGROUND if panel.words else BigValueColorMode.VALUE)
    )


def _heatmap(panel: Panel) -> heatmap.Panel:
    return heatmap.Panel().y_axis(heatmap.YAxisConfig().unit(panel.unit)).hide_legend()


def _words(panel: Panel) -> list[ValueMapping]:
    unknown = DashboardSpecialValueMapOptions(
        match=SpecialValueMatch.NULL_AND_NAN,
        result=ValueMappingResult(text="unknown", color="purple"),
    )
    named = {
        value: ValueMappingResult(text=word, color=color)
        for value, (word, color) in panel.words.items()
    }
    return [SpecialValueMap(unknown), *([ValueMap(named)] if named else [])]


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [Threshold(None, "green"), *(Threshold(value, color) for value, color in panel.steps)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _query(panel: Panel, expression: str) -> prometheus.Dataquery:
    query = prometheus.Dataquery().datasource(_SOURCE).expr(expression)
    if panel.kind in {"gauge", "number"}:
        return query.instant()
    return (
        query.range().format(PromQueryFormat.HEATMAP) if panel.kind == "heatmap" else query.range()
    )


def main() -> int:
    stale = []
    for board in BOARDS:
        file, text = FOLDER / f"{board.uid}.json", json.dumps(build(board), indent=2) + "\n"
        if file.exists() and file.read_text() == text:
            continue
        stale.append(file)
        if "--check" not in sys.argv:
            file.write_text(text)
    if "--check" in sys.argv:
        for file in stale:
            print(f"{file} is not what the code says: run deploy/dashboards.py")
        return bool(stale)
    return 0


if __name__ == "__main__":
    sys.exit(main())
