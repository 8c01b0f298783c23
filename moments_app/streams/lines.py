"""Map an engine's answer to the lines of a stream's text, and to the observations that each line carries.

An observation is absorbed only if a line that remains in the text carries it. Lines are included whole, newest first,
as long as they fit. Observations that no line carries keep waiting, and remain in contexts and searches as separate
items.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from moments_app.engines.calls.consolidation import DraftLine, Labelled
from moments_app.models.atom import content_hash

# The time of a line whose observations are unknown. It stays, because no observations would wait if it were removed.
ALWAYS = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Line:
    """A line of the current text.

    Args:
        carries: primary keys of its observations.
        is_by_hand: whether a person wrote it; it then stays unchanged.
    """

    text: str
    carries: tuple[int, ...] = ()
    is_by_hand: bool = False


@dataclass(frozen=True)
class Piece:
    """Input for a line: a current line, or an observation.

    Args:
        label: its name in the answer.
        text: its text; for an observation with its date.
        carries: primary keys of the line's observations, or of this observation.
        time: the time of the newest observation.
    """

    label: str
    text: str
    carries: tuple[int, ...]
    time: datetime = ALWAYS

    @property
    def labelled(self) -> Labelled:
        """The piece as an engine receives it."""
        return Labelled(self.label, self.text)


@dataclass(frozen=True)
class ConsolidatedText:
    """A new text of a stream.

    Args:
        lines: lines written by hand first, then remaining lines, then the answer's lines.
        dropped: the number of rejected parts of the answer, by reason.
    """

    lines: list[Line]
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def content(self) -> str:
        """The text of the stream."""
        return "\n".join(line.text for line in self.lines)

    @property
    def carried(self) -> set[int]:
        """Primary keys of the observations that the text carries."""
        return {pk for line in self.lines for pk in line.carries}


@dataclass(frozen=True)
class _Candidate:
    """A line that may become part of the new text, and the pieces that it names."""

    text: str
    pieces: tuple[Piece, ...]

    @property
    def labels(self) -> set[str]:
        return {piece.label for piece in self.pieces}

    @property
    def order(self) -> tuple[datetime, int]:
        """Rank of the line: recent lines are most likely to be valid. If times are equal, lines that carry more win."""
        return max(piece.time for piece in self.pieces), sum(len(piece.carries) for piece in self.pieces)

    @property
    def words(self) -> int:
        return len(self.text.split())


def consolidated(
    fixed: Sequence[Line], old: Sequence[Piece], new: Sequence[Piece], drafts: Sequence[DraftLine], most: int
) -> ConsolidatedText:
    """Return the text from an answer's lines and current lines.

    A line that names no known piece is rejected, because its sources would be unknown. A piece is carried if every line
    that names it fits. A current line that isn't carried stays if there is room for it; if its observations are
    unknown, it always stays.

    Args:
        fixed: lines that were written by hand; they stay.
        old: other current lines.
        new: observations.
        drafts: the engine's answer.
        most: maximum words of the other lines together.
    """
    pieces = {piece.label: piece for piece in [*old, *new]}
    dropped: Counter[str] = Counter()
    said = {content_hash(line.text) for line in fixed}
    unsaid = [draft for draft in drafts if content_hash(draft.text) not in said]
    dropped["written by hand already"] += len(drafts) - len(unsaid)
    candidates = [found for draft in unsaid if (found := _candidate(draft, pieces, dropped))]
    named = {label for one in candidates for label in one.labels}
    staying = sum(len(piece.text.split()) for piece in old if not piece.carries and piece.label not in named)
    fitting = _fitting(candidates, most - staying)
    dropped["over the word limit"] += len(candidates) - len(fitting)
    lost = {label for one in candidates if one not in fitting for label in one.labels}
    taken = [one for one in fitting if one.labels - lost]
    carried = {label for one in taken for label in one.labels} - lost
    left = [_Candidate(piece.text, (piece,)) for piece in old if piece.label not in carried]
    kept = _fitting(left, most - sum(one.words for one in taken))
    lines = [_line(one, set()) for one in kept] + [_line(one, lost) for one in taken]
    return ConsolidatedText([*fixed, *_united(lines)], +dropped)


def _candidate(draft: DraftLine, pieces: Mapping[str, Piece], dropped: Counter[str]) -> _Candidate | None:
    labels = list(dict.fromkeys(draft.carries))
    known = tuple(pieces[label] for label in labels if label in pieces)
    dropped["unknown label"] += len(labels) - len(known)
    text = " ".join(draft.text.split())
    if text and known:
        return _Candidate(text, known)
    dropped["line that carries nothing"] += 1
    return None


def _fitting(candidates: Sequence[_Candidate], most: int) -> list[_Candidate]:
    """Return the candidates that fit without cuts, in their current order."""
    chosen: list[int] = []
    room = most
    for number in sorted(range(len(candidates)), key=lambda n: candidates[n].order, reverse=True):
        if candidates[number].words <= room:
            chosen.append(number)
            room -= candidates[number].words
    return [candidates[number] for number in sorted(chosen)]


def _line(candidate: _Candidate, lost: set[str]) -> Line:
    carries = (pk for piece in candidate.pieces if piece.label not in lost for pk in piece.carries)
    return Line(candidate.text, tuple(dict.fromkeys(carries)))


def _united(lines: Sequence[Line]) -> list[Line]:
    """Return the lines, with equal lines merged."""
    found: dict[str, Line] = {}
    for line in lines:
        key = content_hash(line.text)
        before = found.get(key, line)
        found[key] = Line(before.text, tuple(dict.fromkeys(before.carries + line.carries)))
    return list(found.values())
