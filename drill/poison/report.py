"""The results of the attacks: rows, and the table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from drill.report import aligned

HEADINGS = ("attack", "door", "engine", "seen by others", "by the person", "outside its fence", "left after retraction")
SUMMARY = ("planted text", "times", "seen by others", "by the person", "outside its fence", "left after retraction")
MAX_REMARKS = 3
FOR_ALL = "shard"  # the entry point to shared memory


@dataclass
class Row:
    """The result of an attack through an entry point.

    Args:
        attack, door, engine: What was tested.
        others: Who else saw it without permission, and where. Also model calls with texts of two people.
        own: The number of the person's contexts and searches that contain it, and their total number.
        escapes: Where it could be taken for more than text.
        after: Where it is visible after its retraction.
        changed: Contexts that differ from the ones before the attack.
    """

    attack: str
    door: str
    engine: str
    others: list[str] = field(default_factory=list)
    own: tuple[int, int] = (0, 0)
    escapes: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    @property
    def is_for_all(self) -> bool:
        """Whether all people may see it until it is retracted."""
        return self.door == FOR_ALL

    @property
    def is_well(self) -> bool:
        """Whether no one else saw it, it stayed text, and nothing of it is left."""
        return not (self.others or self.escapes or self.after or self.changed)

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        left = f"{len(self.after)} left" if self.after else "gone"
        same = f"{len(self.changed)} contexts differ" if self.changed else "contexts as before"
        others = "all, as intended" if self.is_for_all else str(len(self.others))
        seen = [others, f"{self.own[0]} of {self.own[1]}", str(len(self.escapes))]
        return [self.attack, self.door, self.engine, *seen, f"{left}, {same}"]

    def remarks(self) -> list[str]:
        """Return the problems in words."""
        wrong = {
            "seen by others": self.others,
            "outside its fence": self.escapes,
            "left after retraction": self.after,
            "not as before": self.changed,
        }
        name = f"{self.attack}, {self.door}, {self.engine}"
        return [f"{name}: {what}: {'; '.join(found[:MAX_REMARKS])}" for what, found in wrong.items() if found]


def table(rows: Sequence[Row]) -> str:
    """Return the table as aligned Markdown."""
    return aligned(HEADINGS, [row.cells() for row in rows])


def summary(rows: Iterable[Row]) -> str:
    """Return the table with one row per attack, added over entry points and engines."""
    attacks: dict[str, list[Row]] = {}
    for row in rows:
        if row.door != "all":
            attacks.setdefault(row.attack, []).append(row)
    return aligned(SUMMARY, [[attack, *_added(of_attack)] for attack, of_attack in attacks.items()])


def _added(rows: Sequence[Row]) -> list[str]:
    seen, out, left = (sum(len(getattr(row, name)) for row in rows) for name in ("others", "escapes", "after"))
    own = f"{sum(row.own[0] for row in rows)} of {sum(row.own[1] for row in rows)}"
    return [str(len(rows)), str(seen), own, str(out), str(left)]
