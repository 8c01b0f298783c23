"""A person corrects one line of a profile, takes it out, or has it stand again."""

from django.db import transaction

from moments_app.engines.calls.profile import Line, changed_text, text_of
from moments_app.models import ProfileLine
from moments_app.moments.profile_lines import Writer, kept_lines, write_lines
from sessions_app.models import UserProfile
from sessions_app.refusals import Conflict


class LineMoved(Conflict):
    """The line is not as whoever asks saw it: it has ended, or stands again."""

    code = "line_moved"


@transaction.atomic
def edit_line(line: ProfileLine, text: str, *, actor: str) -> None:
    """Have a line say something else; engines leave it as it is from then on.

    Args:
        line: that stands.
        text: blank takes the line out.
        actor: operator:….

    Raises:
        LineMoved: the line has ended meanwhile.
    """
    user, lines = _profile(line)
    place = _place(lines, line)
    new = changed_text(lines[place], text)
    lines[place : place + 1] = [new] if new else []
    _write(user, lines, Writer(actor, is_pinned=True))


@transaction.atomic
def restore_line(line: ProfileLine, *, actor: str) -> None:
    """Have a line that ended stand again, in place of what took its place.

    Args:
        line: that ended.
        actor: operator:….

    Raises:
        LineMoved: it stands already.
    """
    user, lines = _profile(line)
    if not ProfileLine.objects.filter(pk=line.pk).exclude(ended_at=None).exists():
        raise LineMoved("text: the profile already has this line.")
    again = Line(line.text, line.heading, line.joint, line.pk, line.is_pinned)
    instead = [place for place, other in enumerate(lines) if other.key == line.replaced_by_id]
    place = instead[0] if instead else min(line.position, len(lines))
    lines[place : place + len(instead)] = [again]
    ProfileLine.objects.filter(pk=line.pk).update(ended_at=None, ended_by="", end_reason="", replaced_by=None)
    _write(user, lines, Writer(actor))


def _profile(line: ProfileLine) -> tuple[UserProfile, list[Line]]:
    user = UserProfile.objects.locked().get(pk=line.user_id)
    return user, kept_lines(user)


def _place(lines: list[Line], line: ProfileLine) -> int:
    places = [place for place, other in enumerate(lines) if other.key == line.pk]
    if not places:
        raise LineMoved("The line was changed in the meantime. Reload and try again.")
    return places[0]


def _write(user: UserProfile, lines: list[Line], writer: Writer) -> None:
    user.keep_version(writer.actor)
    write_lines(user, lines, writer)
    user.summary = text_of(lines)
    user.save(update_fields=["summary", "updated_at"])
