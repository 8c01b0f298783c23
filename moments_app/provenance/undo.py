"""Undo a retraction: restore the turns or items, and everything that was withdrawn with them.

Data that was derived in the meantime to replace them is removed. Newer turns are then processed again on top of the
restored data. People's changes to streams' texts are kept.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from moments_app.jobs.process import queue_embedding
from moments_app.models import (
    Cause,
    Contradiction,
    CorrectedTurn,
    Correction,
    EpisodeDraft,
    Job,
    KnownPerson,
    MemoryAtom,
    MemoryStream,
    Moment,
    Release,
    ReleaseSource,
    RetractedItem,
    Retraction,
    StatementChange,
    Summary,
)
from moments_app.models.known_person import person_key
from moments_app.models.moment import moment_key
from moments_app.models.retraction import CannotRestoreRows, RetractionQuerySet
from moments_app.models.stream import MemoryStreamQuerySet
from moments_app.provenance.dependents import formations_of, generic_tables, moments_on
from moments_app.provenance.rebuild import (
    MEMORIES,
    MOMENTS,
    REBUILDS,
    Rebuild,
    refresh,
    request_summary,
)
from moments_app.provenance.retract import (
    CannotRetract,
    TurnsAreArchived,
    lock_person,
    lock_session,
    lock_sessions,
    log_event,
    recount,
)
from moments_app.provenance.rewording import apply_edits_since
from moments_app.streams.texts import undo_since
from moments_app.streams.timeline import (
    ENDED_BY_FACT,
    facts_ended_by,
    recompute_timelines,
    refresh_derived,
    reopen,
    reopened_columns,
)
from sessions_app.database.sql import lock_rows
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.models.message import SequenceRange


@transaction.atomic
def undo_retraction(retraction: Retraction, *, requested_by: str) -> Retraction:
    """Restore the turns or items, and what was withdrawn with them. Remove data that was derived in the meantime.

    Also undo the retractions of answers that repeated them, except those with missing or archived turns.

    Args:
        retraction: the newest retraction in force for this person and the streams it touched.
        requested_by: `key:…`, `operator:…` or `command`.

    Raises:
        CannotRetract: it was already undone; a newer one must be undone first; or its session, some of its turns, or a
            stream were deleted.
        TurnsAreArchived: some of its turns were archived since.
    """
    if retraction.cause_id and not retraction.is_orphaned:
        raise CannotRetract(f"This retraction was caused by another one. Undo {retraction.cause_id} instead.")
    consequences = list(_consequences(retraction))
    _lock_all([retraction, *consequences])
    if retraction.session and retraction.archived_turns().exists():
        archived = retraction.session.session_id
        raise TurnsAreArchived(f"The session {archived} has archived turns. Restore the session first.")
    for consequence in consequences:
        with suppress(CannotRestoreRows), transaction.atomic():
            _undo(consequence, requested_by=retraction.actor)
    try:
        return _undo(retraction, requested_by=requested_by)
    except CannotRestoreRows as error:
        raise CannotRetract(str(error)) from error


def sessions_to_restore(retraction: Retraction) -> QuerySet[Session]:
    """Return the sessions with archived turns of a retraction and of its consequences."""
    archived = [each.archived_turns().values("session") for each in (retraction, *_consequences(retraction))]
    return Session.objects.filter(pk__in=archived[0].union(*archived[1:]))


def _consequences(retraction: Retraction) -> RetractionQuerySet:
    """Return the retractions of answers that repeated the turns, newest first."""
    return retraction.consequences().in_effect().exclude(session=None).order_by("-pk")


def _undo(retraction: Retraction, *, requested_by: str) -> Retraction:
    retraction = Retraction.objects.select_for_update(of=("self",)).select_related("session").get(pk=retraction.pk)
    _lock(retraction)
    _refuse(retraction)
    _restore_all(retraction, Cause(requested_by, retraction.actor))
    retraction.items.all().delete()
    retraction.undone_at = timezone.now()
    retraction.save(update_fields=["undone_at"])
    log_event("retraction_undone", retraction, requested_by)
    return retraction


def _lock_all(retractions: Sequence[Retraction]) -> None:
    """Lock the sessions, the person and the streams of retractions, in the same order as `retract`."""
    lock_sessions([each.session for each in retractions if each.session])
    lock_rows(UserProfile.objects.filter(pk__in=[each.user_id for each in retractions if each.user_id]))
    items = RetractedItem.objects.for_model(MemoryStream).filter(retraction__in=retractions)
    lock_rows(MemoryStream.objects.filter(pk__in=items.values("object_pk")))


def _lock(retraction: Retraction) -> None:
    """Lock the same rows as a retraction, to prevent newer retractions in the meantime."""
    if retraction.session is not None:
        retraction.session = lock_session(retraction.session.pk)
    elif retraction.user_id is not None:
        lock_person(retraction.user_id)
    elif retraction.stream_id is not None:
        MemoryStream.objects.select_for_update(no_key=True).get(pk=retraction.stream_id)


def _refuse(retraction: Retraction) -> None:
    if retraction.undone_at:
        raise CannotRetract("This retraction was already undone.")
    if retraction.session is None and retraction.item_ids is None:
        raise CannotRestoreRows("The session of this retraction was deleted, so it can't be undone.")
    if retraction.turns().count() < retraction.result["turns"]:
        raise CannotRestoreRows("Some turns of this retraction are no longer in the transcript, so it can't be undone.")
    streams = retraction.items.for_model(MemoryStream).values("object_pk")
    same_streams = Q(items__model=MemoryStream._meta.label_lower, items__object_pk__in=streams)
    owner = Q(stream_id=retraction.stream_id) if retraction.user_id is None else Q(user_id=retraction.user_id)
    newer = Retraction.objects.in_effect().filter(owner | same_streams, pk__gt=retraction.pk).order_by("-pk")
    # Retractions of repeating answers don't prevent the undo.
    by_repetition = [retraction.actor, retraction.requested_by] if retraction.cause_id else [retraction.actor]
    newer = newer.exclude(requested_by__in=by_repetition)
    if last := next((each for each in newer if not each.is_orphaned), None):
        raise CannotRetract(f"There is a newer retraction. Undo {last.retraction_id} first.")


def _restore_all(retraction: Retraction, cause: Cause) -> None:
    if retraction.item_ids is not None:
        _restore_streams(retraction, cause)
        refresh(retraction, _streams_of(retraction))
    else:
        assert retraction.session is not None  # checked by `_refuse`
        _restore_session(retraction, retraction.session, cause)
    for table in generic_tables():
        retraction.items.restore_missing(table.model)


def _restore_session(retraction: Retraction, session: Session, cause: Cause) -> None:
    was = retraction.items.for_model(Session).get().data
    sequences = list(retraction.turns().order_by("sequence").values_list("sequence", flat=True))
    for rebuild in REBUILDS:
        rebuild.cancel(session, requested_by=retraction.actor)
    newer = _remove_moments(retraction, session, sequences)
    retraction.turns().update(retracted_at=None)
    _restore_streams(retraction, cause, _remove_newer_items(retraction, session, cause))
    _restore_moments(retraction, session, newer)
    _restore_drafts(retraction, session)
    _restore_events(retraction, session, sequences)
    has_summaries = _restore_summaries(retraction, session)
    _apply_later_corrections(retraction, session)
    if session.last_sequence == was["last_sequence"]:
        session.status = was["status"]
    session.embedded_sequence = min(session.embedded_sequence, sequences[0] - 1)
    session.save(update_fields=["embedded_sequence"])
    recount(session)
    formed = _unformed_ranges(session, sequences, was)
    _queue_jobs(retraction, session, {MOMENTS: newer.built_to, MEMORIES: formed})
    if has_summaries:
        request_summary(session, requested_by=retraction.actor)


# --- moments ---


@dataclass(frozen=True)
class NewMoments:
    """The moments that were built over a retraction's turns in the meantime."""

    built_to: int  # sequence number of the last turn in a moment; −1 if there were no moments
    moments: list[Moment]


def _remove_moments(retraction: Retraction, session: Session, sequences: Sequence[int]) -> NewMoments:
    """Remove the moments that restored moments replace, and those that were built without the turns."""
    built_to = session.built_to
    rebuilt = moments_on(session, sequences, formations_of(session, sequences))
    firsts = [moment.first_sequence for moment in rebuilt]
    firsts += [item.data["first_sequence"] for item in retraction.items.withdrawn(Moment)]
    if not firsts:
        return NewMoments(built_to, [])
    removed = list(session.moments.filter(first_sequence__gte=min(firsts)).select_related("job"))
    Moment.objects.filter(pk__in=[moment.pk for moment in removed]).delete()
    if built_to >= min(firsts):
        session.built_to = min(firsts) - 1
    return NewMoments(built_to, removed)


def _restore_moments(retraction: Retraction, session: Session, newer: NewMoments) -> None:
    withdrawn = retraction.items.withdrawn(Moment)
    moments_of_user = Moment.objects.for_user(session.user)
    used_keys = list(moments_of_user.values_list("key", flat=True))
    for item in withdrawn.filter(data__key__in=used_keys):  # another session's moment took the key in the meantime
        starts_at = parse_datetime(item.data["starts_at"])
        assert starts_at is not None  # the column is not nullable
        item.data["key"] = moment_key(item.data["name"], starts_at, set(moments_of_user.values_list("key", flat=True)))
        item.save(update_fields=["data"])
    withdrawn.restore(Moment)
    moments = list(Moment.objects.filter(pk__in=withdrawn.ids()))
    for moment in moments:
        turns = session.messages.turns().unretracted().filter(user_id=session.user_id)
        turns.filter(sequence__range=(moment.first_sequence, moment.last_sequence)).update(moment=moment)
        session.built_to = max(session.built_to, moment.last_sequence)
    Moment.objects.relink(session.user_id, [*newer.moments, *moments])
    for item in retraction.items.rewritten(Moment):
        Moment.objects.filter(pk=item.object_pk).update(journey=item.data["journey"])


def _restore_drafts(retraction: Retraction, session: Session) -> None:
    """Restore the drafts whose turns are in no moment. They replace newer drafts."""
    EpisodeDraft.objects.filter(session=session).delete()
    retraction.items.restore(EpisodeDraft)
    session.save(update_fields=["last_moment_message_idx"])
    EpisodeDraft.objects.publish([session])


def _restore_events(retraction: Retraction, session: Session, sequences: Sequence[int]) -> None:
    """Restore the session's partition events, which replace later ones, and other rows that referred to the moments."""
    first = 0 if retraction.sequences is None else sequences[0]
    Message.objects.boundaries_of(session).filter(sequence__gte=first).delete()
    retraction.items.restore(Message, Job, Event)


# --- summaries ---


def _restore_summaries(retraction: Retraction, session: Session) -> bool:
    """Restore the summaries, which replace newer ones. Return whether any were restored or removed."""
    since = Summary.objects.for_session(session).filter(created_at__gte=retraction.created_at)
    removed, _ = Summary.objects.filter(pk__in=list(since.values_list("pk", flat=True))).delete()
    return bool(retraction.items.restore(Summary)) or bool(removed)


def _apply_later_corrections(retraction: Retraction, session: Session) -> None:
    """Apply to the restored texts the corrections that were made or undone since the retraction."""
    rows = (
        table.objects.filter(pk__in=retraction.items.withdrawn(table).ids(), **of_session)
        for table, of_session in (
            (Moment, {"source_session": session}),
            (Summary, {"session": session}),
            (Message, {"session": session, "kind": Message.Kind.PARTITION}),
        )
    )
    apply_edits_since(chain.from_iterable(rows), session, retraction.created_at)


# --- streams ---


def _remove_newer_items(retraction: Retraction, session: Session, cause: Cause) -> list[MemoryAtom]:
    """Remove newer items that restored items replace. Return these items and the facts that they ended."""
    formed = {"process": MEMORIES.process, "result__again": True, "finished_at__gte": retraction.created_at}
    since = list(session.atoms.filter(job__in=session.jobs.filter(**formed)))
    ended = facts_ended_by(since)
    reopen(ended, cause)
    MemoryAtom.objects.filter(pk__in=[atom.pk for atom in since]).delete()
    return [*since, *ended]


def _streams_of(retraction: Retraction) -> MemoryStreamQuerySet:
    return MemoryStream.objects.filter(pk__in=retraction.items.for_model(MemoryStream).values("object_pk")).order_by(
        "pk"
    )


def _restore_streams(retraction: Retraction, cause: Cause, removed: Sequence[MemoryAtom] = ()) -> None:
    """Restore statements, including the lines of texts. They replace newer consolidations.

    Args:
        removed: the newer statements that were removed, and the statements that they had ended.
    """
    items, streams = retraction.items, _streams_of(retraction)
    for stream in streams.select_for_update(no_key=True):
        given = items.withdrawn(MemoryAtom).filter(data__stream=stream.pk).exclude(data__consolidated_at=None)
        if given.exists():
            undo_since(stream, retraction.created_at, cause)
    _restore_atoms(retraction, cause)
    changed = [*removed, *MemoryAtom.objects.filter(pk__in=items.for_model(MemoryAtom).values("object_pk"))]
    refresh_derived([*changed, *recompute_timelines(changed, cause)])
    streams.refresh()


def _restore_atoms(retraction: Retraction, cause: Cause) -> None:
    items, undone = retraction.items, StatementChange.Action.UNDONE
    before: dict[int, dict[str, Any]] = {}
    _blank_lost_references(retraction)
    restored_keys: set[tuple[int, int | None, str]] = set()
    existing = set(MemoryAtom.objects.filter(pk__in=items.rewritten(MemoryAtom).ids()).values_list("pk", flat=True))
    for item in items.for_model(MemoryAtom).filter(data__state=MemoryAtom.State.ACTIVE).order_by("object_pk"):
        if item.is_rewritten and item.object_pk not in existing:
            continue
        atom = cast(MemoryAtom, item.row().object)
        key = (atom.stream_id, atom.user_id, atom.content_hash)
        has_duplicate = (
            key in restored_keys or MemoryAtom.objects.duplicates_of(atom).exclude(pk=item.object_pk).exists()
        )
        restored_keys.add(key)
        if has_duplicate:  # the newer statement stays
            before[item.object_pk] = {"state": item.data["state"]}
            item.data["state"] = MemoryAtom.State.EVICTED
            item.save(update_fields=["data"])
    ended_by_person = set(
        MemoryAtom.objects.filter(pk__in=existing).exclude(ENDED_BY_FACT).values_list("pk", flat=True)
    )
    for item in items.rewritten(MemoryAtom):
        original = cast(MemoryAtom, item.row().object)
        columns = ["merged_into_id", "position", "consolidated_at"]
        if item.object_pk not in ended_by_person:
            columns += ["replaced_by_id", *reopened_columns(original)]
        kept = {name: getattr(original, name) for name in columns if name != "replaced_by"}
        MemoryAtom.objects.filter(pk=item.object_pk).change(undone, cause, **kept)
    _restore_people(retraction)
    withdrawn = items.withdrawn(MemoryAtom)
    withdrawn.restore(MemoryAtom)
    # Restore contradictions first. Otherwise, `recompute_timelines` would ask the same questions again.
    items.restore(StatementChange, Release, ReleaseSource, Contradiction, Correction, CorrectedTurn)
    restored = MemoryAtom.objects.filter(pk__in=withdrawn.ids()).order_by("pk")
    StatementChange.objects.record(undone, cause, [(atom, before.get(atom.pk, {})) for atom in restored])


def _blank_lost_references(retraction: Retraction) -> None:
    """Blank references to deleted statements. Items of a deleted line wait for another consolidation."""
    items = list(retraction.items.for_model(MemoryAtom))
    names = ("merged_into", "replaced_by")
    referenced = {item.data[name] for item in items for name in names if item.data.get(name)}
    existing = set(MemoryAtom.objects.filter(pk__in=referenced).values_list("pk", flat=True))
    existing |= set(retraction.items.withdrawn(MemoryAtom).values_list("object_pk", flat=True))
    for item in items:
        lost = [name for name in names if item.data.get(name) and item.data[name] not in existing]
        if "merged_into" in lost and item.data["state"] == MemoryAtom.State.ABSORBED:
            item.data["state"] = MemoryAtom.State.ACTIVE
        if lost:
            item.data |= dict.fromkeys(lost)
            item.save(update_fields=["data"])


def _restore_people(retraction: Retraction) -> None:
    """Restore known people. A newer one with the same key is the same person, unless the relationships differ."""
    items = retraction.items
    used_keys = {item.data["key"] for item in items.for_model(KnownPerson)}
    for item in items.for_model(KnownPerson):
        restored = cast(KnownPerson, item.row().object)
        people_by_key = {person.key: person for person in KnownPerson.objects.filter(user=restored.user_id)}
        if (newer := people_by_key.get(restored.key)) is None:
            continue
        if newer.relationship and restored.relationship and newer.relationship != restored.relationship:
            item.data["key"] = person_key(restored.name, {*people_by_key, *used_keys})
            used_keys.add(item.data["key"])
            item.save(update_fields=["data"])
            continue
        for atom in items.withdrawn(MemoryAtom).filter(data__about=restored.pk):
            atom.data["about"] = newer.pk
            atom.save(update_fields=["data"])
        item.delete()
    items.restore(KnownPerson)


# --- what else is derived ---


def _unformed_ranges(session: Session, sequences: Sequence[int], was: dict[str, Any]) -> list[SequenceRange]:
    """Return the turns that formations have skipped since the retraction."""
    formed = -1 if was["last_formation_sequence"] is None else was["last_formation_sequence"]
    return [(sequence, sequence) for sequence in sequences if formed < sequence <= session.formed_to]


def _queue_jobs(retraction: Retraction, session: Session, wanted: dict[Rebuild, Any]) -> None:
    """Queue jobs for the restored and newer turns, and for rebuilds that were waiting before the retraction."""
    for rebuild, its in wanted.items():
        whole = rebuild.merge_with(its, retraction.waiting.get(rebuild.process, {}))
        if whole > session.built_to if rebuild is MOMENTS else whole:
            rebuild.queue(session, whole, requested_by=retraction.actor)
    if settings.EMBEDDING.turns:
        queue_embedding(retraction.actor, session=session)
    refresh(retraction, _streams_of(retraction))
