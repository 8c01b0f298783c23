"""The lines of a person's profile as they are kept: read for engines, written when the profile changes.

Whoever changes the profile's text has its lines follow: lines that the text still has stay as they are, others end, and
new ones begin.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils import timezone

from moments_app.engines.calls.profile import Line, Profile, rewritten, text_of
from moments_app.models import Job, ProfileLine, PromptVersion
from sessions_app.models import Message, Session, UserProfile

JOB = "job:"


@dataclass(frozen=True)
class Writer:
    """Who writes lines, and why others end.

    Args:
        actor: key:…, operator:… or job:…; blank where it isn't known.
        reason: why lines end that are not changed.
        job, prompt_version, engine: of an engine's lines.
        session: whose turns the sources are; None: there are none.
        is_pinned: engines leave new lines as they are.
    """

    actor: str
    reason: str = ProfileLine.Reason.BY_HAND
    job: Job | None = None
    prompt_version: PromptVersion | None = None
    engine: str = ""
    session: Session | None = None
    is_pinned: bool = False


def known_profile(user: UserProfile) -> Profile:
    """Return the profile as an engine gets it."""
    return Profile(user.summary, tuple(user.interests), tuple(user.preferred_topics), tuple(kept_lines(user)))


def kept_lines(user: UserProfile) -> list[Line]:
    """Return the lines of the profile's text."""
    lines = [_line(row) for row in ProfileLine.objects.filter(user=user.pk).standing().in_order()]
    return lines if text_of(lines) == user.summary.strip() else rewritten(lines, user.summary, by_hand=True)


def _line(row: ProfileLine) -> Line:
    return Line(row.text, row.heading, row.joint, row.pk, row.is_pinned)


def follow_text(user: UserProfile, actor: str) -> None:
    """Make the lines those of the profile's text, which somebody changed."""
    reason = ProfileLine.Reason.ENDED if actor.startswith(JOB) else ProfileLine.Reason.BY_HAND
    rows = ProfileLine.objects.filter(user=user.pk).standing().in_order()
    if text_of([_line(row) for row in rows]) != user.summary.strip():
        write_lines(user, kept_lines(user), Writer(actor, reason))


def write_lines(user: UserProfile, lines: Sequence[Line], writer: Writer) -> dict[Line, ProfileLine]:
    """Keep the lines of a profile, in the caller's transaction, which holds the person.

    Returns:
        The rows of the lines that are new.
    """
    rows = {row.pk: row for row in ProfileLine.objects.filter(user=user.pk).standing()}
    new = {line: _row(user, line, place, writer, rows) for place, line in enumerate(lines) if line.key not in rows}
    sources = _sources(new, writer.session)
    for line, row in new.items():
        own = {sources[sequence] for sequence in line.sources if sequence in sources}
        row.source_message_ids = sorted(own | {*row.source_message_ids})
    ProfileLine.objects.bulk_create(new.values())
    _move(lines, rows)
    _end(rows, {line.key for line in lines}, {line.before: row for line, row in new.items() if line.before}, writer)
    return new


def _row(user: UserProfile, line: Line, place: int, writer: Writer, rows: Mapping[int, ProfileLine]) -> ProfileLine:
    """Return a new row; one that takes the place of another rests on what that rested on as well."""
    before = rows.get(line.before) if line.before else None
    return ProfileLine(
        user=user,
        heading=line.heading,
        text=line.text,
        joint=line.joint,
        position=place,
        source_message_ids=before.source_message_ids if before else [],
        job=writer.job,
        prompt_version=writer.prompt_version,
        engine=writer.engine,
        actor=writer.actor,
        is_pinned=writer.is_pinned,
    )


def _sources(lines: Iterable[Line], session: Session | None) -> dict[int, int]:
    """Return the primary keys of the turns that lines name, by their sequences."""
    named = {sequence for line in lines for sequence in line.sources}
    if not named or session is None:
        return {}
    said = Message.objects.said_at(session, sequence__in=named)
    return dict(said.values_list("sequence", "pk"))


def _move(lines: Sequence[Line], rows: Mapping[int, ProfileLine]) -> None:
    moved = []
    for place, line in enumerate(lines):
        row = rows.get(line.key) if line.key else None
        if row and (row.position, row.heading, row.joint) != (place, line.heading, line.joint):
            row.position, row.heading, row.joint = place, line.heading, line.joint
            moved.append(row)
    ProfileLine.objects.bulk_update(moved, ["position", "heading", "joint"])


def _end(
    rows: Mapping[int, ProfileLine],
    kept: set[int | None],
    instead: Mapping[int, ProfileLine],
    writer: Writer,
) -> None:
    ended = [row for pk, row in rows.items() if pk not in kept]
    for row in ended:
        row.ended_at, row.ended_by = timezone.now(), writer.actor
        row.replaced_by = instead.get(row.pk)
        row.end_reason = ProfileLine.Reason.CHANGED if row.replaced_by else writer.reason
    ProfileLine.objects.bulk_update(ended, ["ended_at", "ended_by", "end_reason", "replaced_by"])
