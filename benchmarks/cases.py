"""Measurement of the same work on several sessions in turn, so that a disturbance affects all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from benchmarks.clients import timed

Times = dict[tuple[str, str], list[list[float]]]  # seconds by case and way, with a list per round


@dataclass(frozen=True)
class Case:
    """One session, and the ways to request something from it."""

    what: str
    ways: dict[str, Callable[[], object]]


def replay(cursor: "psycopg.Cursor[tuple[object, ...]]", statements: Sequence[str]) -> None:
    """Execute recorded statements again, and read the results."""
    for statement in statements:
        cursor.execute(statement.encode())
        if cursor.description:
            cursor.fetchall()


def measured(cases: Sequence[Case], *, rounds: int, repeats: int) -> Times:
    """Measure each case in each way, `repeats` times per round, after a round of warm-up."""
    times: Times = {(case.what, way): [] for case in cases for way in case.ways}
    for number in range(rounds + 1):
        for case in cases:
            for way, ask in case.ways.items():
                taken = [timed(ask) for _ in range(repeats)]
                if number:
                    times[case.what, way].append(taken)
    return times
