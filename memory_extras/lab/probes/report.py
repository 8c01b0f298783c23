"""The results of probes over time, with the prompts and settings at each time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db.models import Count, Min, Q, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from memory_extras.lab.models import ProbeResultQuerySet

DAYS = 90
POINTS = 60  # maximum number of points, the latest ones
FIGURES = ("day", "asked", "met", "words_found", "words_count")


@dataclass(frozen=True)
class Point:
    """The results of a day (UTC) with the same prompts and settings.

    Args:
        words_found, words_count: The words of all expected answers.
        changes: What changed since the previous point.
    """

    day: date
    asked: int
    met: int
    words_found: int
    words_count: int
    changes: list[str]

    @property
    def share(self) -> float:
        return 100 * self.met / self.asked

    @property
    def words(self) -> float:
        return 100 * self.words_found / self.words_count if self.words_count else 0.0


def points(results: ProbeResultQuerySet) -> list[Point]:
    """Return the results of the last days, oldest first."""
    recent = results.filter(created_at__gte=timezone.now() - timedelta(days=DAYS))
    by_day = recent.annotate(day=TruncDate("created_at")).values("day", "setup").order_by()
    rows = by_day.annotate(
        asked=Count("pk"),
        met=Count("pk", filter=Q(is_met=True)),
        words_found=Sum("words_found"),
        words_count=Sum("words_count"),
        first=Min("pk"),
    )
    latest: list[Any] = list(rows.order_by("-day", "-first")[:POINTS])[::-1]
    setups: list[dict[str, Any]] = [{}, *(row["setup"] for row in latest)]
    return [
        Point(**{name: row[name] for name in FIGURES}, changes=changes(before, row["setup"]))
        for row, before in zip(latest, setups, strict=False)
    ]


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the changes of prompts and settings as text, or an empty list if there is no earlier point."""
    if not before:
        return []
    return [
        f"{name.removeprefix('rem://prompts/')}: {_shown(was, name)} → {_shown(now, name)}"
        for kind in ("prompts", "settings")
        for was, now in ((before.get(kind, {}), after.get(kind, {})),)
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    ]


def _shown(values: Mapping[str, Any], name: str) -> str:
    return str(values.get(name, "")) or "none"
