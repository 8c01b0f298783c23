"""The lines of a stream's text: which observations each of them carries, and what an engine's answer makes of them.

An observation is absorbed only when a line that remains in the text carries it. So nothing is cut: lines stand in the
text whole, the newest first as long as they fit, and what no line carries waits on, in contexts and searches by itself.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from moments_app.engines.calls.consolidation import DraftLine, Labelled
from moments_app.models.atom import content_hash

# The time of a line of which nobody knows what it carries: it stays, for nothing would wait in its place.
ALWAYS = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Line:
    """A line of a text as it is.

    Args:
        text: as it stands.
        carries: primary keys of the observations it says.
        is_by_hand: somebody wrote it into the text: it stays word for word.
    """

    text: str
    carries: tuple[int, ...] = ()
    is_by_hand: bool = False


@dataclass(frozen=True)
class Piece:
    """Something that an engine may put into a line: a line so far, or an observation.

    Args:
        label: by which the answer names it.
        text: with its date, where it is an observation.
        carries: primary keys of observations: those of the line, or the one.
        time: of the newest of them.
    """

    label: str
    text: str
    carries: tuple[int, ...]
    time: datetime = ALWAYS

    @property
    def labelled(self) -> Labelled:
        """The piece as an engine gets it."""
        return Labelled(self.label, self.text)


@dataclass(frozen=True)
class ConsolidatedText:
    """A new text of a stream.

    Args:
        lines: those written by hand first, then those that the answer left, then the answer's.
        dropped: how much of the answer was not taken, by reason.
    """

    lines: list[Line]
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def content(self) -> str:
        """The text as it stands in the stream."""
        return "\n".join(line.text for line in self.lines)

    @property
    def carried(self) -> set[int]:
        """Primary keys of the observations that the text carries."""
        return {pk for line in self.lines for pk in line.carries}


@dataclass(frozen=True)
class _Candidate:
    """A line that may stand in the new text, and what it names."""

    text: str
    pieces: tuple[Piece, ...]

    @property
    def labels(self) -> set[str]:
        return {piece.label for piece in self.pieces}

    @property
    def order(self) -> tuple[datetime, int]:
        """Rank of the line: what was said last is likeliest to hold; of equally new ones, what says more."""
        return max(piece.time for piece in self.pieces), sum(len(piece.carries) for piece in self.pieces)

    @property
    def words(self) -> int:
        return len(self.text.split())


def consolidated(
    fixed: Sequence[Line], old: Sequence[Piece], new: Sequence[Piece], drafts: Sequence[DraftLine], most: int
) -> ConsolidatedText:
    """Return the text that the lines of an answer make, and those of the text so far.

    A line that names nothing known is not taken: nobody could tell what it rests on. A piece is carried when each line
    that names it fits. A line so far that isn't carried stays as it is where there is room for it, and always when it
    isn't known what it carries.

    Args:
        fixed: lines that were written by hand; they stay.
        old: other lines of the text so far.
        new: observations.
        drafts: the engine's answer.
        most: words of the other lines together.
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
    """Return the candidates that fit, whole, in the order they are in."""
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
    """Return the lines, with those that say the same made one."""
    found: dict[str, Line] = {}
    for line in lines:
        key = content_hash(line.text)
        before = found.get(key, line)
        found[key] = Line(before.text, tuple(dict.fromkeys(before.carries + line.carries)))
    return list(found.values())
