"""The results of the faults: rows, and the table."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

HEADINGS = (
    "fault",
    "times",
    "acknowledged",
    "lost",
    "doubled",
    "seconds to recover: median",
    "worst",
    "told where",
    "prober: p50, p99, max",
    "remarks",
)
SUMMARY = ("fault", "times", "acknowledged", "lost", "duplicated", "recovery, s", "worst, s", "remarks")
MAX_PLACES = 4  # most frequent wait channels to report per kind of process
SUMMED_FIELDS = ("times", "acknowledged", "lost", "doubled", "rounds", "rounds_lost", "seconds", "probes")


@dataclass
class Row:
    """The result of a fault.

    Args:
        fault: Its name in the report.
        times: How often it was injected. 0 if it was not tried.
        acknowledged: The number of turns that were acknowledged during it.
        lost: The number of those that are not stored, and of failed jobs.
        doubled: The number of turns or effects that exist more than once.
        rounds, rounds_lost: The numbers of acknowledged and lost rounds of the chat endpoint.
        seconds: The time from each fault's end until recovery. None without a recovery.
        told: Where it was reported.
        probes: The response times of the prober during it.
        places: The wait channels of killed processes, with their numbers.
        remarks: Other remarks.
    """

    fault: str
    times: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    rounds: int = 0
    rounds_lost: int = 0
    seconds: list[float | None] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def __add__(self, other: "Row") -> "Row":
        """Combine the results of two parts of a drill."""
        both = {name: getattr(self, name) + getattr(other, name) for name in SUMMED_FIELDS}
        places = dict(Counter(self.places) + Counter(other.places))
        told, remarks = sorted({*self.told, *other.told}), list(dict.fromkeys(self.remarks + other.remarks))
        return Row(self.fault, **both, told=told, places=places, remarks=remarks)

    @property
    def is_well(self) -> bool:
        """Whether nothing was lost or duplicated, and the site recovered."""
        return not self.lost and not self.doubled and None not in self.seconds

    def remark(self, text: str) -> None:
        """Add a remark, unless it is blank."""
        self.remarks += [text] if text else []

    def never(self, why: str) -> None:
        """Record that the site did not recover."""
        self.seconds.append(None)
        self.remark(why)

    def outcome(self) -> str:
        """Return a progress message."""
        _, times, acknowledged, lost, doubled, usual, worst, told, probes, remarks = self.cells()
        found = (
            f"{times} times, {acknowledged} acknowledged, {lost} lost, {doubled} duplicated, recovered after {usual} s"
        )
        return f"{found} (worst {worst}); reported in: {told}; prober: {probes}; {remarks}"

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        recovered = [seconds for seconds in self.seconds if seconds is not None]
        worst = "never" if None in self.seconds else f"{max(recovered):.1f}" if recovered else "–"
        return [
            self.fault,
            str(self.times) if self.times else "not tried",
            f"{self.acknowledged:,}",
            str(self.lost),
            str(self.doubled),
            f"{median(recovered):.1f}" if recovered else "–",
            worst,
            ", ".join(self.told) or "–",
            quantiles(self.probes),
            "; ".join([*self._where(), *self.remarks]) or "–",
        ]

    def _where(self) -> list[str]:
        places = Counter(self.places).most_common(MAX_PLACES)
        return ["in " + ", ".join(f"{place} {number}" for place, number in places)] if places else []


def added(rows: Iterable[Row]) -> list[Row]:
    """Combine the rows of several parts of a drill by fault."""
    sums: dict[str, Row] = {}
    for row in rows:
        sums[row.fault] = sums[row.fault] + row if row.fault in sums else row
    return list(sums.values())


def not_tried(fault: str, why: str) -> Row:
    """Return the row of a fault that can't be injected here."""
    return Row(fault, remarks=[why])


def quantiles(seconds: Sequence[float]) -> str:
    """Return the median, the 99th percentile and the maximum of some times, as text."""
    if not seconds:
        return "–"
    ordered = sorted(seconds)
    p99 = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
    return f"{median(ordered):.2f}, {p99:.2f}, {ordered[-1]:.2f} s"


def table(rows: Sequence[Row]) -> str:
    """Return the table as aligned Markdown."""
    return aligned(HEADINGS, [row.cells() for row in rows])


def summary(rows: Sequence[Row]) -> str:
    """Return the table without reports, response times and wait channels, in Markdown."""
    return aligned(SUMMARY, [[*row.cells()[:7], "; ".join(row.remarks) or "–"] for row in rows])


def aligned(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    lines = [headings, *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [_line(line, widths) for line in lines]
    text.insert(1, _line(["-" * width for width in widths], widths))
    return "\n".join(text)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
