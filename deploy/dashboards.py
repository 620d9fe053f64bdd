"""Write the Grafana dashboard from its panels: `python deploy/dashboards.py [--check]`."""

import json
import sys
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableRefresh,
    VariableSort,
)

from panels import ROWS, Panel

FILE = Path(__file__).resolve().parent / "grafana" / "headway-events.json"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH, _PER_ROW = 24, 3


def build() -> dict[str, Any]:
    """Give the dashboard as Grafana reads it."""
    board = (
        dashboard.Dashboard("Headway events")
        .uid("headway-events")
        .description("What waits, what flows, what ended badly, who works.")
        .tags(["headway", "rabbitmq"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(_choice("service", "label_values(events_processed_total, service)"))
        .with_variable(
            _choice("queue", 'label_values({__name__=~"queue_depth|failed_letters"}, queue)')
        )
    )
    number = 0
    for title, panels in ROWS:
        number += 1
        board.with_row(dashboard.Row(title).id(number))
        for place, panel in enumerate(panels):
            number += 1
            board.with_panel(_graph(panel, number, _span(place, len(panels))))
    built: dict[str, Any] = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    return built


def _span(place: int, number: int) -> int:
    """Share out a line of panels: three on each, the rest as wide as there is room."""
    on_line = min(_PER_ROW, number - place // _PER_ROW * _PER_ROW)
    return _WIDTH // on_line


def _choice(name: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(name)
        .datasource(_SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)  # noqa: FBT003 (the library's way)
        .include_all(True)  # noqa: FBT003
        .all_value(".+")
    )


def _graph(panel: Panel, number: int, span: int) -> timeseries.Panel:
    graph = (
        timeseries.Panel()
        .id(number)
        .title(panel.title)
        .description(panel.says)
        .datasource(_SOURCE)
        .unit(panel.unit)
        .min(0)
        .height(8)
        .span(span)
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
    for letter, (expression, name) in zip(ascii_uppercase, panel.lines, strict=False):
        graph.with_target(
            prometheus.Dataquery()
            .ref_id(letter)
            .datasource(_SOURCE)
            .expr(expression)
            .legend_format(name)
            .range()
        )
    return graph


def main() -> int:
    text = json.dumps(build(), indent=2) + "\n"
    if "--check" in sys.argv:
        if FILE.exists() and FILE.read_text() == text:
            return 0
        print(f"{FILE} is not what the code says: run deploy/dashboards.py")
        return 1
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
