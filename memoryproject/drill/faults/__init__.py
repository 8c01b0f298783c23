"""The faults, by the names that the command takes, in the order in which they are done."""

from collections.abc import Callable, Iterator

from memoryproject.drill.course import Course
from memoryproject.drill.faults import kills
from memoryproject.drill.report import Row

PARTS: dict[str, Callable[[Course], Iterator[Row]]] = {
    "kills": kills.each_kind,
}
