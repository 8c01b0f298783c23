"""A person's tasks, goals and problems with the links between them, laid out as a graph of boxes and arrows.

What is linked stands in columns: whoever points to something stands left of it, where links do not go in a circle. What
has no link is in the table alone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from moments_app.models import Entity, EntityLink

BOX_WIDTH, BOX_HEIGHT = 190, 44
COLUMN, ROW = 290, 64  # from a box to the next, in pixels
MARGIN = 8
TITLE = 26  # characters of a title that a box has room for
ROUNDS = 4  # of moving boxes nearer to what they are linked with


@dataclass(frozen=True)
class Box:
    """An entity of the graph, and where its box begins, in pixels."""

    entity: Entity
    x: int
    y: int

    @property
    def title(self) -> str:
        """As much of its title as the box has room for."""
        whole = self.entity.title
        return whole if len(whole) <= TITLE else whole[: TITLE - 1].rstrip() + "…"

    @property
    def text_x(self) -> int:
        """Where its text begins."""
        return self.x + 10

    @property
    def title_y(self) -> int:
        """Where its title stands."""
        return self.y + 19

    @property
    def kind_y(self) -> int:
        """Where its kind stands."""
        return self.y + 35


@dataclass(frozen=True)
class Arrow:
    """A link of the graph: its line and where its word stands."""

    link: EntityLink
    x1: int
    y1: int
    x2: int
    y2: int

    @property
    def word_x(self) -> int:
        """The middle of the line."""
        return (self.x1 + self.x2) // 2

    @property
    def word_y(self) -> int:
        """A little above the middle of the line."""
        return (self.y1 + self.y2) // 2 - 5


@dataclass(frozen=True)
class Graph:
    """The drawing: its boxes and arrows, and its size in pixels; without a link there is none."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow]

    box_width, box_height = BOX_WIDTH, BOX_HEIGHT

    @property
    def width(self) -> int:
        """The whole width."""
        return max((box.x for box in self.boxes), default=0) + BOX_WIDTH + MARGIN

    @property
    def height(self) -> int:
        """The whole height."""
        return max((box.y for box in self.boxes), default=0) + BOX_HEIGHT + MARGIN


def graph_of(entities: Iterable[Entity], links: Sequence[EntityLink]) -> Graph:
    """Lay out the entities that are linked.

    Args:
        entities: of one person.
        links: between these entities.
    """
    there = {entity.pk: entity for entity in entities}
    ends = [(link.from_entity_id, link.to_entity_id) for link in links]
    linked = [pk for pk in there if any(pk in pair for pair in ends)]
    columns = _columns(linked, ends)
    rows = _rows(columns, ends)
    boxes = {
        pk: Box(there[pk], MARGIN + COLUMN * column, MARGIN + ROW * rows[pk])
        for column, pks in columns.items()
        for pk in pks
    }
    return Graph([*boxes.values()], [_arrow(link, boxes) for link in links])


def _columns(linked: Sequence[int], ends: Collection[tuple[int, int]]) -> dict[int, list[int]]:
    """Return who stands in which column: one right of the last that points to them, as far as there is no circle."""
    column = dict.fromkeys(linked, 0)
    for _ in linked:
        moved = {to: column[start] + 1 for start, to in ends if column[to] <= column[start] < len(linked) - 1}
        if not moved:
            break
        column |= moved
    column |= {pk: min(column[to] for start, to in ends if start == pk) - 1 for pk in _first_ones(linked, ends)}
    narrow = {number: place for place, number in enumerate(sorted(set(column.values())))}
    columns: dict[int, list[int]] = defaultdict(list)
    for pk, number in column.items():
        columns[narrow[number]].append(pk)
    return columns


def _first_ones(linked: Sequence[int], ends: Collection[tuple[int, int]]) -> list[int]:
    """Return those to whom nobody points: they stand right beside the first to whom they point."""
    pointed_to = {to for _, to in ends}
    return [pk for pk in linked if pk not in pointed_to]


def _rows(columns: dict[int, list[int]], ends: Collection[tuple[int, int]]) -> dict[int, int]:
    """Return who stands in which row: near to those whom they are linked with, so that few lines cross."""
    beside: dict[int, set[int]] = defaultdict(set)
    for start, to in ends:
        beside[start].add(to)
        beside[to].add(start)
    rows = {pk: row for pks in columns.values() for row, pk in enumerate(pks)}
    for _ in range(ROUNDS):
        for number in sorted(columns):
            middle = {pk: sum(rows[other] for other in beside[pk]) / len(beside[pk]) for pk in columns[number]}
            columns[number].sort(key=lambda pk: (middle[pk], pk))
            rows |= {pk: row for row, pk in enumerate(columns[number])}
    return rows


def _arrow(link: EntityLink, boxes: dict[int, Box]) -> Arrow:
    """Return the line from the side of one box to the side of the other."""
    start, end = boxes[link.from_entity_id], boxes[link.to_entity_id]
    half = BOX_HEIGHT // 2
    if start.x == end.x:  # in a circle
        return Arrow(link, start.x + BOX_WIDTH, start.y + half, end.x + BOX_WIDTH, end.y + half)
    leaves, arrives = (BOX_WIDTH, 0) if start.x < end.x else (0, BOX_WIDTH)
    return Arrow(link, start.x + leaves, start.y + half, end.x + arrives, end.y + half)
