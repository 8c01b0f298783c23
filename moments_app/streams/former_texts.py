"""Convert stream texts of earlier releases, which were stored as versions, to lines, which are statements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moments_app.models.atom import content_hash
from moments_app.streams.texts import line_key, split_lines
from sessions_app import lexemes


@dataclass(frozen=True)
class FormerVersion:
    """A text after a consolidation."""

    text: str
    # primary keys of the observations in each line; None for a line written by hand. Empty or None if not recorded.
    lines: Sequence[Sequence[int] | None] | None
    engine: str
    time: datetime
    job: int | None = None


def add_lines(atoms: Any, stream: Any, versions: Iterable[FormerVersion]) -> None:
    """Add the lines of a stream's text. A line that is not in the last version was written by hand.

    Args:
        atoms: the manager of the statements, possibly the one of a migration.
        stream: the stream, which has no lines.
        versions: the versions in force, oldest first.
    """
    known: dict[str, tuple[FormerVersion, Sequence[int]]] = {}  # first version and items of each line, by `line_key`
    for version in versions:
        before, known = known, {}
        texts, lines = split_lines(version.text), version.lines or ()
        for text, carries in zip(texts, lines if len(lines) == len(texts) else [[]] * len(texts), strict=True):
            if carries is not None:
                first, _ = before.get(line_key(text), (version, ()))
                known[line_key(text)] = first, carries
    own = {line_key(text): text for text in split_lines(stream.consolidated_content)}
    for position, (key, text) in enumerate(own.items()):
        columns = {"formed_at": stream.last_updated_at}
        if written := known.get(key):
            first, _ = written
            time = {"formed_at": first.time, "consolidated_at": first.time}
            columns = {"engine": first.engine, "job_id": first.job} | time
        row = atoms.model(
            stream=stream,
            user_id=stream.user_id,
            atom_type="observation",
            state="line",
            content=text,
            content_hash=content_hash(text),
            position=position,
            **columns,
        )
        row.__dict__["search_vector"] = lexemes.vector(text)  # the model of a migration can't compute it
        row.save()
        if written:
            atoms.filter(stream=stream, pk__in=written[1], state="absorbed").update(merged_into=row)
