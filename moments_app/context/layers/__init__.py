"""The registry of layers. The modules of this folder, and the module `layers` of another app, add layers."""

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from importlib import import_module
from pkgutil import iter_modules

from moments_app.context.input import ContextInput, Item

ALWAYS = ("policy", "query")


@dataclass(frozen=True)
class Layer:
    """A part of a context with one kind of content."""

    name: str  # its name in requests and responses
    items: Callable[[ContextInput], Iterable[Item]]
    _: KW_ONLY
    # Lasting text comes first and text that depends on the query last, so that providers' prompt caches match the
    # beginning.
    place: int
    tag: str  # its XML element; layers with the same element must be adjacent
    title: str  # its Markdown heading
    ceiling: float = 0.0  # maximum share of the budget; 0: `budget.py` has a separate rule for the layer
    turn: int = 100  # order among the layers with a ceiling, which add one item each in rotation
    is_static: bool = False  # whether its items stay the same until the stamp of the input changes
    is_default: bool = True  # whether it is included if the request lists no layers
    # Its items as of an earlier time. If None, contexts as of earlier times don't include the layer.
    items_as_of: Callable[[ContextInput, datetime], Iterable[Item]] | None = None


LAYERS: dict[str, Layer] = {}  # by name, in the order of a context


def add_layer(layer: Layer) -> None:
    ordered = sorted([*LAYERS.values(), layer], key=lambda each: each.place)
    LAYERS.clear()
    LAYERS.update({each.name: each for each in ordered})


def default_layers() -> list[str]:
    return [name for name, layer in LAYERS.items() if layer.is_default]


for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
