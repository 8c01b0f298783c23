"""Change memory directly, for operators and clients: profiles, pinned texts, tasks, goals, problems, and single items.

Evicting or moving an item deletes no row, so that former contexts and their sources can be explained.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.dispatch import receiver
from django.utils import timezone

from moments_app.models import Cause, Entity, MemoryAtom, MemoryStream, Release, StatementChange
from moments_app.models.atom import (
    ENTITY_KINDS,
    INTEREST,
    PINNED_TEXT,
    SUMMARY,
    TOPIC,
    MemoryAtomQuerySet,
    content_hash,
    id_hash,
    profile_sentence,
)
from moments_app.models.entity import EntityStatus, status_columns, text_of
from moments_app.streams.add_atoms import add_atoms, consolidate_if_due, process_manual_change, queue_indexing
from moments_app.streams.profile import rebuild_profiles
from moments_app.streams.texts import is_in_line, line_key, lock_stream, remove_lines_with
from moments_app.streams.timeline import (
    TIMEZONE,
    facts_ended_by,
    recompute_plan_ends,
    recompute_timelines,
    refresh_derived,
    reopen,
    reopened_columns,
)
from sessions_app.database.sql import insert_if_missing, lock_rows
from sessions_app.models import UserProfile
from sessions_app.models.session import DEFAULT_AGENT
from sessions_app.refusals import Refusal
from sessions_app.signals import profile_edited
from sessions_app.transcript.append import IdTaken

ATTRIBUTES = {"summary": SUMMARY, "interests": INTEREST, "preferred_topics": TOPIC}  # keyed by profile field


# --- profiles and pinned texts ---


@receiver(profile_edited)
def edit_profile(profile: UserProfile, edits: Mapping[str, Any], *, actor: str, **_: Any) -> None:
    """Replace the texts that were written into a profile, which the caller has locked.

    A new time zone changes the dates of statements and the end of plans.

    Args:
        profile: the profile with its new time zone.
        edits: new values, keyed by profile field: a text for `summary`, phrases for the lists.
        actor: `key:…` or `operator:…`.
    """
    for field in edits.keys() & ATTRIBUTES.keys():
        texts = [edits[field]] if field == "summary" else [text.strip() for text in edits[field]]
        stream = MemoryStream.objects.ensure_of_person(profile, DEFAULT_AGENT)
        _write(stream, ATTRIBUTES[field], [text for text in texts if text.strip()], actor)
    if "timezone" in edits:
        recompute_plan_ends(MemoryAtom.objects.planned().filter(user=profile), Cause(actor, TIMEZONE))
    rebuild_profiles([profile.pk])  # needed even if no statement changed, to replace the edited text


@transaction.atomic
def pin_text(stream: MemoryStream, text: str, *, actor: str) -> None:
    """Replace the pinned text of a person's stream or a shard. A blank text removes it."""
    lock_stream(stream.pk, stream.user_id)
    _write(stream, PINNED_TEXT, [text] if text.strip() else [], actor)
    stream.refresh()


def own_texts(profile: UserProfile) -> dict[str, Any]:
    """Return the texts that were written into a profile, keyed by field."""
    rows = _written(user=profile.pk).of_profile().values_list("attribute", "content", "value")
    texts = [content for attribute, content, _ in rows if attribute == SUMMARY]
    phrases = {
        field: [value for found, _, value in rows if found == attribute]
        for field, attribute in ATTRIBUTES.items()
        if attribute != SUMMARY
    }
    return {"summary": "\n".join(texts), **phrases}


def _written(**where: Any) -> MemoryAtomQuerySet:
    return MemoryAtom.objects.current().filter(is_candidate=False, **where).in_order()


def _write(stream: MemoryStream, attribute: str, texts: Iterable[str], actor: str) -> None:
    """Replace the statements of an attribute: add new ones, pin all given ones, and end the others."""
    where = {"stream": stream} if attribute == PINNED_TEXT else {"user": stream.user_id}
    wanted = {content_hash(sentence): sentence for sentence in (profile_sentence(attribute, text) for text in texts)}
    present = {atom.content_hash: atom for atom in _written(attribute=attribute, **where)}
    new = [
        MemoryAtom(
            stream=stream,
            user_id=stream.user_id,
            atom_type=MemoryAtom.Type.FACT,
            attribute=attribute,
            content=sentence,
            content_hash=digest,
            is_pinned=True,
            written_by=actor,
        )
        for digest, sentence in wanted.items()
        if digest not in present
    ]
    cause, edited = Cause(actor), StatementChange.Action.EDITED
    added = {atom.content_hash for atom in add_atoms(stream, new, requested_by=actor)}
    kept = [atom.pk for digest, atom in present.items() if digest in wanted]
    for digest, sentence in wanted.items():
        if digest in present and present[digest].content != sentence:  # only punctuation or capitalization differs
            present[digest].content = sentence
            present[digest].describe().save_edit(cause)
    for atom in new:
        if atom.content_hash not in added:  # the stream already has it
            same = MemoryAtom.objects.duplicates_of(atom)
            kept += same.values_list("pk", flat=True)
            if attribute != SUMMARY:
                names = ("attribute", "subject", "value", "kind", "about_kind")
                same.change(edited, cause, **{name: getattr(atom.describe(), name) for name in names})
    MemoryAtom.objects.filter(pk__in=kept).change(edited, cause, is_pinned=True)
    ended = [atom for digest, atom in present.items() if digest not in wanted]
    now = timezone.now()
    MemoryAtom.objects.filter(pk__in=[atom.pk for atom in ended]).change(
        StatementChange.Action.ENDED,
        cause,
        state=MemoryAtom.State.ENDED,
        valid_until=now,
        ended_at=now,
        ended_by=actor,
    )
    if kept or ended:
        refresh_derived([*ended, *MemoryAtom.objects.filter(pk__in=kept)])


# --- tasks, goals and problems ---

WORDS = ("title", "body")


def add_entity(user: UserProfile, values: Mapping[str, Any], *, requested_by: str) -> tuple[Entity, bool]:
    """Add an entity that a client wrote. If an entity already has the `external_id`, return that one instead.

    Also return whether the entity is new. An existing one may have been withdrawn.

    Args:
        values: the title, and other columns and properties of the entity.

    Raises:
        IdTaken: another kind of item has this `external_id`.
    """
    stream = MemoryStream.objects.ensure_list(user)
    values = {"status": EntityStatus.OPEN, "written_by": requested_by} | dict(values)
    status = values.pop("status")
    entity = Entity.written(stream, **values, **status_columns(status, timezone.now(), requested_by))
    if insert_if_missing(entity):
        queue_indexing(entity, requested_by=requested_by)
        return entity, True
    statements = Entity._base_manager.select_related("source_session")  # include withdrawn ones
    existing = statements.get(stream=stream, user=user, external_id=entity.external_id)
    if existing.kind not in ENTITY_KINDS:
        raise IdTaken("This external_id already belongs to an item that isn't a task, goal or problem.")
    return existing, False


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
        columns["content_hash"] = id_hash(entity.atom_id)
    if is_reworded or status != entity.status:
        _remove_line_with(entity, cause)
    if status != entity.status:
        columns |= status_columns(status, now, requested_by)
    for name, value in columns.items():
        setattr(entity, name, value)
    if columns:
        entity.save_edit(cause, update_fields=columns)
        refresh_derived([entity])
    if is_reworded:
        entity.embeddings.all().delete()  # the vectors of the former text
        queue_indexing(entity, requested_by=requested_by)
    return entity


def delete_entity(entity: Entity, *, requested_by: str) -> None:
    """Delete a locked entity that a client wrote, or evict one that was learned or imported. Delete its links."""
    cause = Cause(requested_by)
    entity.links_out.all().delete()
    entity.links_in.all().delete()
    _remove_line_with(entity, cause)
    if entity.is_written and entity.is_listed:
        entity.delete()
    else:
        MemoryAtom.objects.filter(atom_id=entity.atom_id).evict(cause)
    refresh_derived([entity])


def lock_entity(entity: MemoryAtom) -> None:
    lock_stream(entity.stream_id, entity.user_id)
    lock_rows(Entity.objects.filter(pk=entity.pk))


def _remove_line_with(entity: Entity, cause: Cause) -> None:
    if entity.merged_into_id:
        remove_lines_with([entity], cause)
        entity.refresh_from_db(fields=["state", "merged_into"])


# --- single items ---


class CannotCurate(Refusal):
    """The item can't be evicted, restored or moved. The message says why."""


_WHY_NOT = {
    MemoryAtom.State.ACTIVE: "The item is already in memory.",
    MemoryAtom.State.ABSORBED: "The item is part of its memory text. Undo that merge, or delete its line.",
    MemoryAtom.State.LINE: "The item is a line of its memory text.",
    MemoryAtom.State.ENDED: "The fact has ended. Ended facts are kept as history.",
    MemoryAtom.State.EVICTED: "The item was removed from memory. Restore it first.",
}


@transaction.atomic
def evict(atom: MemoryAtom, *, requested_by: str) -> None:
    """Remove an item from every context and search, or a line from its stream's text.

    Raises:
        CannotCurate: the item is not in memory, or a line contains it.
    """
    found = _locked(atom, [MemoryAtom.State.ACTIVE, MemoryAtom.State.ABSORBED, MemoryAtom.State.LINE])
    if is_in_line(found):
        raise CannotCurate(_WHY_NOT[MemoryAtom.State.ABSORBED])
    evict_all([found], Cause(requested_by))


def evict_all(atoms: Sequence[MemoryAtom], cause: Cause) -> None:
    """Evict items in the caller's transaction. Facts ended by them become valid again."""
    ended = facts_ended_by(atoms)
    MemoryAtom.objects.filter(pk__in=[atom.pk for atom in atoms]).evict(cause)
    reopen(ended, cause)
    refresh_derived([*atoms, *ended, *recompute_timelines(atoms, cause)])


@transaction.atomic
def restore(atom: MemoryAtom, *, requested_by: str) -> None:
    """Restore an evicted item.

    Raises:
        CannotCurate: it isn't evicted, or its stream already has the same item.
    """
    found = _locked(atom, [MemoryAtom.State.EVICTED])
    lines = found.stream.atoms.lines() if found.position is not None else MemoryAtom.objects.none()
    if line_key(found.content) in {line_key(line.content) for line in lines}:
        raise CannotCurate("The memory text already has this line.")
    _set(found, StatementChange.Action.RESTORED, Cause(requested_by), merged_into=None, **reopened_columns(found))
    _process_new_item(found, requested_by)


@transaction.atomic
def move(atom: MemoryAtom, stream: MemoryStream, *, requested_by: str) -> None:
    """Move an item to another stream of the same person, or a shard's item to another shard.

    Raises:
        CannotCurate: the item is not in memory, the stream belongs to another person, or the stream already has the
            same item.
    """
    if stream.pk == atom.stream_id:
        raise CannotCurate("The item is already in this memory text.")
    if stream.user_id != atom.user_id:
        raise CannotCurate("This item belongs to one person. It can only be moved between that person's memory texts.")
    found = _locked(atom, [MemoryAtom.State.ACTIVE], stream.pk)
    moved = {"stream": stream, "consolidated_at": None, "is_candidate": False}
    _set(found, StatementChange.Action.MOVED, Cause(requested_by), **moved)
    refresh_derived([found])
    found.stream = stream
    _process_new_item(found, requested_by)


def _locked(atom: MemoryAtom, states: Sequence[MemoryAtom.State], *streams: int) -> MemoryAtom:
    """Lock the person, the streams and then the item, as `lock_stream` does, and return the current item."""
    lock_rows(UserProfile.objects.filter(pk__in=[atom.user_id] if atom.user_id else []))
    locked = MemoryStream.objects.select_for_update(no_key=True).filter(pk__in=[atom.stream_id, *streams])
    locked_streams = {stream.pk for stream in locked.order_by("pk")}
    found = MemoryAtom.objects.select_for_update(no_key=True).filter(pk=atom.pk).first()
    if found is None or found.stream_id not in locked_streams:
        raise CannotCurate("The item was moved or erased in the meantime. Reload and try again.")
    if found.state not in states:
        raise CannotCurate(_WHY_NOT[MemoryAtom.State(found.state)])
    if Release.objects.filter(atom=found.pk).exists():
        raise CannotCurate("The item is released to others. Revoke or reword the release instead.")
    return found


def _set(atom: MemoryAtom, action: StatementChange.Action, cause: Cause, **fields: Any) -> None:
    try:
        with transaction.atomic():
            MemoryAtom.objects.filter(pk=atom.pk).change(action, cause, **fields)
    except IntegrityError as error:
        raise CannotCurate("The memory text already has an item with these words.") from error


def _process_new_item(atom: MemoryAtom, requested_by: str) -> None:
    process_manual_change(atom, requested_by=requested_by)
    consolidate_if_due(atom.stream, requested_by=requested_by)
