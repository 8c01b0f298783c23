"""The same work on several sessions, in turn, so that what disturbs one disturbs each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from benchmarks.clients import timed

Times = dict[tuple[str, str], list[list[float]]]  # of a case and a way, seconds, a list each round


@dataclass(frozen=True)
class Case:
    """One session, and the ways to ask for something of it."""

    what: str
    ways: dict[str, Callable[[], object]]


def replay(cursor: "psycopg.Cursor[tuple[object, ...]]", statements: Sequence[str]) -> None:
    """Asks the database what was asked before, and reads the answers."""
    for statement in statements:
        cursor.execute(statement.encode())
        if cursor.description:
            cursor.fetchall()


def measured(cases: Sequence[Case], *, rounds: int, repeats: int) -> Times:
    """Asks each case in each way `repeats` times a round, after a round to warm up."""
    times: Times = {(case.what, way): [] for case in cases for way in case.ways}
    for number in range(rounds + 1):
        for case in cases:
            for way, ask in case.ways.items():
                taken = [timed(ask) for _ in range(repeats)]
                if number:
                    times[case.what, way].append(taken)
    return times
