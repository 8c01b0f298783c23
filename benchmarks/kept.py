"""Results of a run as JSON, and their comparison with saved results.

The comparison uses the ratio to the same work by psycopg alone, in the same run, which is meaningful on any machine.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.figures import Figure, print_markdown

KEPT = Path(__file__).parent / "kept.json"
NOTICED = 1.25  # two runs of the same code differ by less than this factor


@dataclass
class Results:
    """The figures of a run.

    Args:
        machine: The machine.
        tables: The figures by the title of their table.
        seconds: The duration.
    """

    machine: str
    tables: dict[str, list[Figure]] = field(default_factory=dict)
    seconds: float = 0.0

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read saved results."""
        values = json.loads(path.read_text())
        tables = {title: [Figure(**figure) for figure in figures] for title, figures in values["tables"].items()}
        return cls(values["machine"], tables, values["seconds"])

    def ratios(self) -> dict[tuple[str, str], float]:
        """Return the ratio of each figure to raw SQL, by table and name."""
        return {(title, one.what): one.ratio for title, figures in self.tables.items() for one in figures}


def print_comparison(now: Results, before: Results) -> None:
    """Print the new results next to the saved ones."""
    note = f"× raw, now and in the saved run: {before.machine} A change of less than {NOTICED} × is noise."
    columns = ["table", "", "× raw", "kept", "change", "judged"]
    print_markdown("Compared with the saved run", columns, list(_rows(now.ratios(), before.ratios())), note)


def _rows(now: Mapping[tuple[str, str], float], before: Mapping[tuple[str, str], float]) -> Iterator[Sequence[str]]:
    for (title, what), ratio in now.items():
        kept = before.get((title, what))
        if kept is None:
            yield title, what, f"{ratio:.1f}", "", "", "new"
        else:
            yield title, what, f"{ratio:.1f}", f"{kept:.1f}", f"{ratio / kept:.2f}", judged(ratio / kept)


def judged(change: float) -> str:
    """Return whether a ratio has changed noticeably, in a word or blank."""
    if 1 / NOTICED < change < NOTICED:
        return ""
    return "slower" if change > 1 else "faster"
