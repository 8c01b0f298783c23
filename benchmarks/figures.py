"""Figures: their computation from measured times, and their table."""

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import psycopg

OF_WORDS = ("", "mode", "language", "state", "search", "kinds", "plan", "wanted", "purpose")  # columns that are text


@dataclass(frozen=True)
class Figure:
    """A line of a table.

    Args:
        what: The name of the figure.
        rate: The rate with its unit. Blank if it is meaningless.
        p50_ms, p95_ms: The platform's times.
        raw_p50_ms: The time of the same work by psycopg alone.
        ratio: The ratio of the two medians.
        wanted: The target on two cores.
    """

    what: str
    p50_ms: float
    p95_ms: float
    raw_p50_ms: float
    ratio: float
    rate: str = ""
    wanted: str = ""

    @classmethod
    def of(
        cls,
        what: str,
        rounds: Sequence[Sequence[float]],
        raw: Sequence[Sequence[float]],
        rate: str = "",
        wanted: str = "",
    ) -> "Figure":
        """Compute a figure from times in seconds.

        Args:
            what, rate, wanted: The fields of the figure.
            rounds: The platform's times, a list per round.
            raw: The baseline's times from the same rounds. The ratio is the median of the rounds' ratios.
        """
        times = [seconds for part in rounds for seconds in part]
        ratio = median(median(ours) / median(theirs) for ours, theirs in zip(rounds, raw, strict=True))
        raw_p50 = median(seconds for part in raw for seconds in part)
        return cls(what, median(times) * 1000, p95(times) * 1000, raw_p50 * 1000, ratio, rate, wanted)


def p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20)[-1] if len(times) > 1 else times[0]


def describe_machine(conninfo: str) -> str:
    """Describe the machine and the software versions."""
    with psycopg.connect(conninfo) as connection:
        version = connection.info.server_version
        [(durable,)] = connection.execute("SELECT current_setting('synchronous_commit')").fetchall()
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f} at the start; "
        f"Python {platform.python_version()}, PostgreSQL {version // 10000}.{version % 10000} "
        f"(synchronous_commit {durable}); clients, web server and database share the cores."
    )


def print_table(title: str, figures: Sequence[Figure], note: str) -> None:
    columns = ["", "rate", "p50 ms", "p95 ms", "raw p50 ms", "× raw", "wanted"]
    print_markdown(title, columns, [_row(figure) for figure in figures], note)


def _row(f: Figure) -> list[str]:
    return [f.what, f.rate, f"{f.p50_ms:.2f}", f"{f.p95_ms:.2f}", f"{f.raw_p50_ms:.2f}", f"{f.ratio:.1f}", f.wanted]


def print_markdown(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str) -> None:
    """Print a table under its title. Columns are aligned to the right as numbers, except those in `OF_WORDS`."""
    print(f"\n### {title}\n")
    print(_line(columns))
    print(_line(["---" if column in OF_WORDS else "---:" for column in columns]))
    for row in rows:
        print(_line(row), flush=True)
    print(f"\n{note}", flush=True)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
