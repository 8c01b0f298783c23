"""Revoke a release.

The release disappears from every context and search. The consolidations that may have used it are undone.
"""

from django.utils import timezone

from moments_app.models import Cause, Job, MemoryAtom, MemoryStream, Release
from moments_app.streams.texts import take_back
from sessions_app.models import Event


def take_release_back(release: Release, actor: str) -> None:
    """Revoke a locked release that is in force, and its extension to every agent's users.

    Args:
        release: the release, with its stream and item.
        actor: who revokes it.
    """
    for wider in release.wider.standing().select_related("stream", "atom"):
        take_release_back(wider, actor)
    release.revoked_at, release.revoked_by = timezone.now(), actor
    release.save(update_fields=["revoked_at", "revoked_by"])
    if release.atom:
        _withdraw(release.stream, release.atom, Cause(actor, f"release:{release.release_id}"))
    log_release("memory_release_revoked", release, actor)


def _withdraw(stream: MemoryStream, atom: MemoryAtom, cause: Cause) -> None:
    """Remove an item from memory and from the text."""
    stream = MemoryStream.objects.select_for_update(no_key=True).get(pk=stream.pk)
    time = MemoryAtom.objects.get(pk=atom.pk).consolidated_at
    if time:
        take_back(stream, time, cause)
    MemoryAtom.objects.filter(pk=atom.pk).evict(cause)
    stream.touch()
    if time and stream.consolidation_prompt and stream.atoms.waiting().exists():
        Job.objects.request("consolidate", stream=stream, requested_by=cause.actor, force=True)
    Job.objects.request("count_words", stream=stream, requested_by=cause.actor, force=True)


def log_release(event: str, release: Release, actor: str) -> None:
    """Log an event of a release, without any of its text."""
    people = release.sources.values("user").distinct().count()
    payload = {"release_id": str(release.release_id), "stream_id": str(release.stream.stream_id), "people": people}
    Event.objects.create(type=event, actor=actor, application_id=release.stream.application_id, payload=payload)
