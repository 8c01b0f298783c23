"""The layers of a context. Their modules add them: here, or a module `layers` of another app."""

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from importlib import import_module
from pkgutil import iter_modules

from moments_app.context.input import ContextInput
from moments_app.context.item import Item

ALWAYS = ("policy", "query")


@dataclass(frozen=True)
class Layer:
    """A part of a context with one kind of content.

    Args:
        name: Its name in requests and responses.
        items: Returns its items, in order.
        place: Its place in a context. Lasting text comes first and text that depends on the query last, so that
            providers' prompt caches match the beginning.
        tag: Its XML element. If two layers share an element, one follows the other.
        title: Its Markdown heading.
        ceiling: Its maximum share of the budget. 0 if `plan` fills the layer by a rule of its own.
        turn: Its place among the layers with a ceiling, which take room in turns.
        is_static: Whether its items stay the same until the stamp of the input changes.
        is_default: Whether a context includes it if the request lists no layers.
        items_then: Returns its items as they were at an earlier time. A context of that time leaves the layer out if
            this is None.
    """

    name: str
    items: Callable[[ContextInput], Iterable[Item]]
    _: KW_ONLY
    place: int
    tag: str
    title: str
    ceiling: float = 0.0
    turn: int = 100
    is_static: bool = False
    is_default: bool = True
    items_then: Callable[[ContextInput, datetime], Iterable[Item]] | None = None


LAYERS: dict[str, Layer] = {}  # by name, in the order of a context


def add_layer(layer: Layer) -> None:
    """Add a layer to all contexts."""
    ordered = sorted([*LAYERS.values(), layer], key=lambda each: each.place)
    LAYERS.clear()
    LAYERS.update({each.name: each for each in ordered})


def default_layers() -> list[str]:
    """Return the layers of a context if the request lists none."""
    return [name for name, layer in LAYERS.items() if layer.is_default]


def standing_layers() -> list[str]:
    """Return the layers with a ceiling, in the order in which they take room."""
    limited = [layer for layer in LAYERS.values() if layer.ceiling]
    return [layer.name for layer in sorted(limited, key=lambda layer: layer.turn)]


for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
