"""The imports between the layers of both apps, as a diagram in docs/architecture.md: `make house`.

Arrows point from the importing layer to the imported one. The contracts in `pyproject.toml` allow only arrows that
point down. Arrows that follow from others are left out.
"""

import re
import sys
import tomllib
from pathlib import Path

import grimp

from memoryproject.conf import BASE_DIR

PAGE = BASE_DIR / "docs" / "architecture.md"
BEGIN, END = "<!-- house: made by `make house` -->", "<!-- /house -->"


def floors() -> dict[str, list[list[str]]]:
    """Return the floors of each app from the top, each with its rooms, as the contracts name them."""
    with (BASE_DIR / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layered = [contract for contract in contracts if contract["type"] == "layers"]
    return {
        app: [[room.strip() for room in floor.split("|")] for floor in contract["layers"]]
        for contract in layered
        for app in contract["containers"]
    }


def arrows(app: str, rooms: set[str]) -> dict[str, set[str]]:
    """Return the rooms that each room imports, without those that follow from other imports."""
    graph = grimp.build_graph(app)
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            a, b = _room(importer), _room(imported)
            if a != b and {a, b} <= rooms:
                found[a].add(b)
    reach = {room: _reach(room, found) for room in rooms}
    return {
        room: {other for other in below if not any(other in reach[third] for third in below - {other})}
        for room, below in found.items()
    }


def _room(module: str) -> str:
    return ([*module.split("."), ""])[1]


def _reach(room: str, found: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [room]
    while waiting:
        for below in found[waiting.pop()] - seen:
            seen.add(below)
            waiting.append(below)
    return seen


def drawn() -> str:
    """Return the diagram in Mermaid."""
    lines = ["```mermaid", "flowchart TD"]
    for app, app_floors in sorted(floors().items()):
        rooms = [room for floor in app_floors for room in floor]
        below = arrows(app, set(rooms))
        lines.append(f"  subgraph {app}")
        lines += [f"    {app}_{room}[{room}]" for room in rooms]
        lines += [f"    {app}_{room} --> {app}_{other}" for room in rooms for other in rooms if other in below[room]]
        lines.append("  end")
    lines.append("  moments_app --> sessions_app")
    return "\n".join([*lines, "```"])


def page() -> str:
    """Return the page with the current diagram."""
    block = f"{BEGIN}\n\n{drawn()}\n\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, PAGE.read_text(), flags=re.DOTALL)


if __name__ == "__main__":
    sys.path.insert(0, str(BASE_DIR))
    Path(PAGE).write_text(page())
