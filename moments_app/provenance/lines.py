"""What a retraction does to the lines of a profile: those that rest on its turns alone go, and no others.

An engine that was shown a turn may have used it anywhere, whatever it names as its sources. So a line that rests on
other turns too, or that came after, stays only if these have each word that it shares with what is retracted.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db.models import Func, QuerySet, TextField

from moments_app.engines.calls.profile import Line, lines_of, text_of
from moments_app.models import ProfileLine
from sessions_app import lexemes
from sessions_app.models import Message, UserProfile

# Of a turn, also of one whose text is archived.
STEMS = Func("search_vector", function="tsvector_to_array", output_field=ArrayField(TextField()))
JOB = "job"  # so begins the actor of a line that an engine wrote; exports say no more of it


@dataclass(frozen=True)
class LinesLeft:
    """The lines of a profile, sorted by what becomes of them.

    Args:
        withdrawn: rest on the turns alone; some had ended before.
        staying: stand, or stand again: what ended them is withdrawn. In their order.
        turns: primary keys of the turns, which no line names any more.
    """

    withdrawn: list[ProfileLine]
    staying: list[ProfileLine]
    turns: frozenset[int]

    @property
    def text(self) -> str:
        """The profile that is left."""
        return text_of([Line(row.text, row.heading, row.joint) for row in self.staying])

    def write(self) -> None:
        """Take out the lines that go, and have the others say what they rest on still."""
        ProfileLine.objects.filter(pk__in=[row.pk for row in self.withdrawn]).delete()
        for place, row in enumerate(self.staying):
            row.position, row.source_message_ids = place, _besides(row, self.turns)
            row.ended_at, row.ended_by, row.end_reason, row.replaced_by = None, "", "", None
        fields = ["position", "source_message_ids", "ended_at", "ended_by", "end_reason", "replaced_by"]
        ProfileLine.objects.bulk_update(self.staying, fields)


def lines_left(user: UserProfile, turns: QuerySet[Message], builds: Collection[str], base: str) -> LinesLeft | None:
    """Return what becomes of a person's lines; None when none of them has to do with the turns.

    Args:
        user: whose profile.
        turns: that are retracted.
        builds: ids of the jobs that are withdrawn.
        base: the profile before the first of them, for lines whose sources aren't known.
    """
    retracted = dict(turns.values_list("pk", "content"))
    rows = list(ProfileLine.objects.filter(user=user.pk).select_related("job").order_by("position", "pk"))
    touched = [row for row in rows if _is_touched(row, retracted.keys(), builds)]
    if not touched:
        return None
    since = min(row.created_at for row in touched)
    said = _stems_said(rows)
    known = {line.text for line in lines_of(base)}
    withdrawn = [
        row
        for row in rows
        if (
            row.text not in known
            if not row.actor
            else _is_carried(row, since) and not _is_borne_out(row, retracted, said)
        )
    ]
    gone = {row.pk for row in withdrawn}
    ended_by = {f"{JOB}:{build}" for build in builds}
    staying = [row for row in rows if row.pk not in gone and (not row.ended_at or _is_revived(row, gone, ended_by))]
    return LinesLeft(withdrawn, staying, frozenset(retracted))


def _is_touched(row: ProfileLine, turns: Collection[int], builds: Collection[str]) -> bool:
    is_of_build = row.job is not None and str(row.job.job_id) in builds
    return is_of_build or any(pk in turns for pk in row.source_message_ids)


def _is_carried(row: ProfileLine, since: datetime) -> bool:
    """Tell whether an engine that may have been shown what is retracted wrote a line, or one of which this was made."""
    is_of_engine = row.actor.startswith(JOB) or (row.source_message_ids and not row.is_pinned)
    return bool(is_of_engine) and row.created_at >= since


def _is_revived(row: ProfileLine, gone: Collection[int], ended_by: Collection[str]) -> bool:
    """Tell whether a line stands again: what took its place goes, or the build that ended it."""
    return row.replaced_by_id in gone if row.replaced_by_id else row.ended_by in ended_by


def _is_borne_out(row: ProfileLine, retracted: dict[int, str], said: dict[int, frozenset[str]]) -> bool:
    """Tell whether the other sources of a line have all that it shares with the retracted turns."""
    left = [said[pk] for pk in _besides(row, retracted) if pk in said]
    shared = lexemes.stems_in(row.text) & stems_of(retracted.values())
    return bool(left) and shared <= frozenset().union(*left)


def _besides(row: ProfileLine, turns: Collection[int]) -> list[int]:
    return [pk for pk in row.source_message_ids if pk not in turns]


def stems_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the stems of texts, as they are indexed."""
    return frozenset(stem for text in texts for stem in lexemes.stems_in(text))


def _stems_said(rows: Sequence[ProfileLine]) -> dict[int, frozenset[str]]:
    """Return the stems of the turns that lines rest on, as far as they are believed; archived ones have theirs."""
    pks = {pk for row in rows for pk in row.source_message_ids}
    there = Message.objects.said().believed().filter(pk__in=pks)
    return {pk: frozenset(stems or ()) for pk, stems in there.values_list("pk", STEMS)}
