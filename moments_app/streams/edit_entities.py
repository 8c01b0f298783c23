"""Add, change and delete a person's tasks, goals and problems, in the caller's transaction."""

from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from moments_app.models import Cause, Entity, MemoryAtom, MemoryStream
from moments_app.models.atom import ENTITY_KINDS, hash_of_id
from moments_app.models.entity import EntityStatus, ending, text_of
from moments_app.streams.add_atoms import queue_indexing
from moments_app.streams.texts import take_out_lines
from moments_app.streams.timeline import touch
from sessions_app.database.sql import insert_if_missing, lock_rows
from sessions_app.models import UserProfile
from sessions_app.transcript.append import IdTaken

WORDS = ("title", "body")


def add_entity(user: UserProfile, values: Mapping[str, Any], *, requested_by: str) -> tuple[Entity, bool]:
    """Add an entity that a client wrote. Return it, or the existing one with its `external_id`; and whether it is new.

    The existing one may have been withdrawn.

    Args:
        values: the title, and other columns and properties of the entity.

    Raises:
        IdTaken: another kind of item has this `external_id`.
    """
    stream = MemoryStream.objects.ensure_list(user)
    values = {"status": EntityStatus.OPEN, "written_by": requested_by} | dict(values)
    status = values.pop("status")
    entity = Entity.written(stream, **values, **ending(status, timezone.now(), requested_by))
    if insert_if_missing(entity):
        queue_indexing(entity, requested_by=requested_by)
        return entity, True
    statements = Entity._base_manager.select_related("source_session")  # with withdrawn ones
    there = statements.get(stream=stream, user=user, external_id=entity.external_id)
    if there.kind not in ENTITY_KINDS:
        raise IdTaken("This external_id already belongs to an item that isn't a task, goal or problem.")
    return there, False


def change_entity(entity: Entity, values: Mapping[str, Any], *, requested_by: str) -> Entity:
    """Change the title, body, kind, due time or status of a locked entity."""
    now, cause = timezone.now(), Cause(requested_by)
    columns = {name: values[name] for name in ("kind", "due_at") if name in values}
    if is_reworded := not values.keys().isdisjoint(WORDS):
        columns["content"] = text_of(values.get("title", entity.title), values.get("body", entity.body))
    status = values.get("status", entity.status)
    is_open_again = status == EntityStatus.OPEN != entity.status
    if columns or is_open_again:
        columns["formed_at"] = now
    if is_reworded or is_open_again:  # the person may have another one with these words
        columns["content_hash"] = hash_of_id(entity.atom_id)
    if is_reworded or status != entity.status:
        _take_out_line(entity, cause)
    if status != entity.status:
        columns |= ending(status, now, requested_by)
    for name, value in columns.items():
        setattr(entity, name, value)
    if columns:
        entity.save_edit(cause, update_fields=columns)
        touch([entity])
    if is_reworded:
        entity.embeddings.all().delete()  # the vectors of the former text
        queue_indexing(entity, requested_by=requested_by)
    return entity


def delete_entity(entity: Entity, *, requested_by: str) -> None:
    """Delete a locked entity that a client wrote, or withdraw one that was learned or imported. Delete its links."""
    cause = Cause(requested_by)
    entity.links_out.all().delete()
    entity.links_in.all().delete()
    _take_out_line(entity, cause)
    if entity.is_written and entity.is_listed:
        entity.delete()
    else:
        MemoryAtom.objects.filter(atom_id=entity.atom_id).evict(cause)
    touch([entity])


def lock_entity(entity: MemoryAtom) -> None:
    """Lock the person, the stream and then the entity, in the lock order of corrections."""
    lock_rows(UserProfile.objects.filter(pk__in=[entity.user_id]))
    lock_rows(MemoryStream.objects.filter(pk=entity.stream_id))
    lock_rows(Entity.objects.filter(pk=entity.pk))


def _take_out_line(entity: Entity, cause: Cause) -> None:
    """Remove the line that contains the entity, which then is no longer merged."""
    if entity.merged_into_id:
        take_out_lines([entity], cause)
        entity.refresh_from_db(fields=["state", "merged_into"])
