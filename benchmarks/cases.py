"""Measures the same work on several sessions alternately, so that disturbances affect all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from benchmarks.clients import timed

Times = dict[tuple[str, str], list[list[float]]]  # seconds by case and method, with a list per round


@dataclass(frozen=True)
class Case:
    """A session, and the methods to read it."""

    what: str
    ways: dict[str, Callable[[], object]]


def replay(cursor: "psycopg.Cursor[tuple[object, ...]]", statements: Sequence[str]) -> None:
    """Execute recorded queries again, and read the results."""
    for statement in statements:
        cursor.execute(statement.encode())
        if cursor.description:
            cursor.fetchall()


def measured(cases: Sequence[Case], *, rounds: int, repeats: int) -> Times:
    """Measure each case with each method, `repeats` times per round, after a warm-up round."""
    times: Times = {(case.what, way): [] for case in cases for way in case.ways}
    for number in range(rounds + 1):
        for case in cases:
            for way, ask in case.ways.items():
                taken = [timed(ask) for _ in range(repeats)]
                if number:
                    times[case.what, way].append(taken)
    return times
