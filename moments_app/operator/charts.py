"""Charts, as unfold's script draws them. A table beside each says the same to those who can't see it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TICKS = {"color": "#7c8594", "maxRotation": 0, "maxTicksLimit": 5}


@dataclass(frozen=True)
class Chart:
    """A figure over time.

    Args:
        whole: of all the time.
        data, options: JSON, as chart.js takes them.
        url: the list of what is counted; blank: none.
    """

    title: str
    whole: str
    data: str
    options: str
    url: str = ""


def bar_chart(
    title: str, whole: str, bars: Sequence[tuple[str, float]], *, is_whole: bool, most: int = 0, url: str = ""
) -> Chart:
    """Return a chart of bars.

    Args:
        title: its heading.
        whole: the figure of all bars.
        bars: each with its label.
        is_whole: the figures are whole numbers.
        most: where the axis ends; 0: where the longest bar does.
        url: the list of what is counted.
    """
    drawn = {
        "label": title,
        "data": [figure for _, figure in bars],
        "backgroundColor": "var(--color-primary-600)",
        "borderRadius": 2,
    }
    data = {"labels": [label for label, _ in bars], "datasets": [drawn]}
    return Chart(title, whole, json.dumps(data), json.dumps(_options(is_whole=is_whole, most=most)), url)


def _options(*, is_whole: bool, most: int) -> dict[str, Any]:
    ticks = TICKS | ({"precision": 0} if is_whole else {})
    ends = {"max": most} if most else {}
    return {
        "animation": False,
        "maintainAspectRatio": False,
        "plugins": {"legend": {"display": False}},
        "scales": {
            "x": {"border": {"width": 0}, "grid": {"display": False}, "ticks": TICKS},
            "y": {"border": {"width": 0}, "beginAtZero": True, "ticks": ticks} | ends,
        },
    }
