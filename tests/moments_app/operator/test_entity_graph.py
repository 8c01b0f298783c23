"""The layout of a person's tasks, goals and problems."""

from moments_app.models import Entity, EntityLink
from moments_app.operator.entity_graph import Graph, graph_of


def laid_out(*links: tuple[int, int], count: int = 5) -> Graph:
    entities = [Entity(pk=pk, title=f"Number {pk} of a long row of them", kind="task") for pk in range(1, count + 1)]
    return graph_of(entities, [EntityLink(from_entity_id=start, to_entity_id=to) for start, to in links])


def columns(graph: Graph) -> dict[int, int]:
    """The column of each box, by its entity."""
    xs = sorted({box.x for box in graph.boxes})
    return {box.entity.pk: xs.index(box.x) for box in graph.boxes}


def test_whoever_points_stands_left_of_whom_they_point_to() -> None:
    assert columns(laid_out((1, 2), (2, 3), (1, 3))) == {1: 0, 2: 1, 3: 2}


def test_what_has_no_link_has_no_box_and_without_links_nothing_is_drawn() -> None:
    assert 4 not in columns(laid_out((1, 2), (2, 3)))
    assert laid_out().boxes == []


def test_a_circle_has_an_end_and_each_box_its_own_place() -> None:
    graph = laid_out((1, 2), (2, 3), (3, 1), (3, 4), (4, 4 + 1))
    places = [(box.x, box.y) for box in graph.boxes]
    assert len(places) == len(set(places)) == 5
    assert len(graph.arrows) == 5
    assert all(0 < x < graph.width and 0 < y < graph.height for x, y in places)


def test_long_titles_are_cut_where_the_box_ends() -> None:
    assert laid_out((1, 2)).boxes[0].title.endswith("…")
