"""What a retraction takes and nothing makes again: retention has deleted turns that it came of."""

from collections.abc import Sequence

from django.db.models import F

from moments_app.models import MemoryAtom, Moment
from moments_app.provenance.derived import Derived
from sessions_app.models import Message, UserProfile


def told_of_lost(found: Derived, *, is_whole: bool) -> str:
    """Return a sentence about what is withdrawn and not made again; blank where there is nothing such.

    Args:
        found: what is withdrawn.
        is_whole: with the whole session; then nothing of its own is to be made again.
    """
    user = found.session.user
    atoms = 0 if is_whole else _without_turns(user, found.atoms)
    builds = _builds_without_turns(user, found.profile.builds, found.moments) if found.profile else 0
    told = [f"facts and observations ({atoms})"] if atoms else []
    if builds:  # which of its turns told a build of an interest is not recorded
        told.append(f"interests and topics that came of earlier builds ({builds})")
    return f"Not made again, as retention has deleted the turns: {', '.join(told)}." if told else ""


def _without_turns(user: UserProfile, atoms: Sequence[MemoryAtom]) -> int:
    """Return how many of some items rest on a turn that is deleted."""
    sources = {pk for atom in atoms for pk in atom.source_message_ids}
    there = set(Message.objects.said().filter(user_id=user.pk, pk__in=sources).values_list("pk", flat=True))
    return sum(not there.issuperset(atom.source_message_ids) for atom in atoms)


def _builds_without_turns(user: UserProfile, builds: Sequence[str], withdrawn: Sequence[Moment]) -> int:
    """Return how many of some builds have a moment, beside those withdrawn, of which turns are deleted."""
    own = Moment.objects.for_user(user).filter(job__job_id__in=builds).exclude(pk__in=[row.pk for row in withdrawn])
    old = own.filter(first_sequence__lt=F("source_session__kept_from_sequence"))
    built_by = dict(old.values_list("pk", "job"))
    archived = Message.objects.archived().filter(user_id=user.pk, moment__in=built_by)
    there = set(archived.values_list("moment_id", flat=True))
    return len({job for pk, job in built_by.items() if pk not in there})
