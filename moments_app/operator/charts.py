"""Charts, in the form that unfold's script draws. A table with the same data accompanies each for screen readers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GRAY = "#7c8594"
TICKS = {"color": GRAY, "maxRotation": 0, "maxTicksLimit": 5}


@dataclass(frozen=True)
class Chart:
    """A figure over time.

    Args:
        data, options: JSON for chart.js.
        url: the list of the counted rows; blank: none.
    """

    title: str
    whole: str
    data: str
    options: str
    url: str = ""


def bar_chart(
    title: str,
    whole: str,
    bars: Sequence[tuple[str, float]],
    *,
    is_whole: bool,
    most: int = 0,
    url: str = "",
    compared: tuple[str, Sequence[float]] | None = None,
) -> Chart:
    """Return a bar chart.

    Args:
        whole: the total of all bars.
        bars: each with its label.
        is_whole: whether the figures are integers.
        most: the end of the axis; 0: the length of the longest bar.
        url: the list of the counted rows.
        compared: the title and figures of gray bars next to these. A legend then names both.
    """
    sets = [(title, [figure for _, figure in bars], "var(--color-primary-600)")]
    sets += [(compared[0], list(compared[1]), GRAY)] if compared else []
    drawn = [
        {"label": label, "data": figures, "backgroundColor": color, "borderRadius": 2} for label, figures, color in sets
    ]
    data = {"labels": [label for label, _ in bars], "datasets": drawn}
    options = _options(is_whole=is_whole, most=most, has_legend=bool(compared))
    return Chart(title, whole, json.dumps(data), json.dumps(options), url)


def _options(*, is_whole: bool, most: int, has_legend: bool) -> dict[str, Any]:
    ticks = TICKS | ({"precision": 0} if is_whole else {})
    ends = {"max": most} if most else {}
    return {
        "animation": False,
        "maintainAspectRatio": False,
        "plugins": {"legend": {"display": has_legend, "position": "bottom", "labels": {"color": GRAY, "boxWidth": 12}}},
        "scales": {
            "x": {"border": {"width": 0}, "grid": {"display": False}, "ticks": TICKS},
            "y": {"border": {"width": 0}, "beginAtZero": True, "ticks": ticks} | ends,
        },
    }
