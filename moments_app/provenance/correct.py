"""Correct, end or withdraw a fact together with all texts that say the same thing, and undo such corrections.

These texts are found by search, and by provenance: they were derived from the same turns. A turn keeps its words and is
marked. Engines receive the corrected form of a marked turn, so they don't derive the wrong fact again. Ending a fact
changes only facts and stream texts, because these describe the present. Moments, summaries, digests and turns describe
their own time.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from moments_app.models import (
    Cause,
    CorrectedTurn,
    Correction,
    EntityLink,
    EpisodeDraft,
    MemoryAtom,
    MemoryStream,
    Moment,
    StatementChange,
)
from moments_app.models.atom import TEXT_ATTRIBUTES, WRITTEN_ATTRIBUTES, content_hash
from moments_app.provenance.rewording import (
    KINDS,
    Rewording,
    Row,
    TextChange,
    inverse_rewording,
    restore,
    reword,
    rows_of_sessions,
    rows_since,
    set_text,
    text_changes,
)
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from moments_app.streams.add_atoms import queue_indexing
from moments_app.streams.known_people import link_corrected
from moments_app.streams.texts import merged_text, remove_lines_with, write_text
from moments_app.streams.timeline import recompute_timelines, refresh_derived
from moments_app.turns.engine_input import as_corrected
from sessions_app.database.sql import insert_if_missing, lock_rows
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.refusals import Refusal
from sessions_app.retention.read_archived import with_text

MAX_FOUND = 100  # maximum results of the search for matching texts
FACT, STREAM, TURN = "fact", "stream", "turn"
TEXT_KINDS = FACT, *KINDS.values(), STREAM, TURN
END_COLUMNS = ("state", "valid_until", "ended_at", "ended_by", "end_message_ids", "replaced_by_id")  # how a fact ended
LINE_COLUMNS = ("engine", "job", "prompt_version", "consolidated_at")  # columns that record what wrote a line


class CannotCorrect(Refusal):
    """The fact can't be corrected. The message says why."""

    code = "cannot_correct"


@dataclass(frozen=True)
class CorrectionRequest:
    kind: str
    after: str = ""
    valid_until: datetime | None = None


def replacement_request(content: str) -> CorrectionRequest:
    """Return the request to replace the text of a fact that was never true."""
    return CorrectionRequest(Correction.Kind.CORRECTED, content.strip())


def end_request(valid_until: datetime | None = None) -> CorrectionRequest:
    return CorrectionRequest(Correction.Kind.ENDED, valid_until=valid_until or timezone.now())


def withdrawal_request() -> CorrectionRequest:
    """Return the request to withdraw a fact that was never true, without a replacement."""
    return CorrectionRequest(Correction.Kind.WITHDRAWN)


def preview(fact: MemoryAtom, request: CorrectionRequest) -> list[TextChange]:
    """Return the changes to the fact and to all texts that say the same thing. Runs a constant number of queries.

    Raises:
        CannotCorrect: the fact belongs to no person, was corrected already, or already has this text.
    """
    _person_of(fact)
    _refuse(fact, request)
    return _matching(fact, request)


def matching_texts(fact: MemoryAtom) -> list[TextChange]:
    """Return all other texts that say the same thing as a fact, and how each would read without the fact.

    Raises:
        CannotCorrect: the fact belongs to no person.
    """
    return _matching(fact, withdrawal_request())[1:]


def _matching(fact: MemoryAtom, request: CorrectionRequest) -> list[TextChange]:
    """Return the change of the fact, followed by the changes of other texts that say the same thing."""
    rewording = Rewording(fact.content, request.after)
    own = TextChange(FACT, fact.uri, fact.pk, "content", fact.content, request.after)
    found = recall(_person_of(fact), fact.stream.agent_id, RecallRequest(fact.content, mode="text"), most=MAX_FOUND)
    pks = {kind: {one.pk for one in found if one.kind == kind} for kind in ("fact", "moment")}
    turns = _turns(fact, [(one.pk, one.sequence) for one in found if one.kind == TURN])
    changes = [own, *_facts(fact, request, rewording, pks["fact"], turns)]
    if request.kind != Correction.Kind.ENDED:
        marks = _turn_marks(fact, rewording, turns)
        marked = {*fact.source_message_ids, *(mark.pk for mark in marks)}
        sessions = {turn.session_id for turn in turns if turn.pk in marked}
        moments = {*pks["moment"], *(turn.moment_id for turn in turns if turn.moment_id)}
        changes += [*_texts(fact, rewording, moments, sessions), *marks]
    return changes


@transaction.atomic
def correct(
    fact: MemoryAtom, request: CorrectionRequest, *, requested_by: str, leave: Collection[str] = ()
) -> Correction:
    """Correct, end or withdraw a fact and everything that says the same thing.

    Args:
        requested_by: `key:…` or `operator:…`.
        leave: addresses of matching texts that must not change.

    Raises:
        CannotCorrect: as in `preview`.
    """
    user = _lock_person(_person_of(fact).pk)
    fact = MemoryAtom.objects.select_related("user", "stream").get(pk=fact.pk)
    changes = [change for change in preview(fact, request) if change.ref == fact.uri or change.ref not in leave]
    correction = Correction.objects.create(
        user=user,
        fact=fact,
        kind=request.kind,
        before=fact.content,
        after=request.after,
        valid_until=request.valid_until,
        requested_by=requested_by,
    )
    changes.sort(key=lambda change: change.kind != STREAM)  # change lines of texts before their items end
    correction.changes = [_apply(change, correction) for change in changes]
    _move_parts(correction)
    correction.save(update_fields=["changes"])
    _refresh(correction, Cause(requested_by, correction.reason))
    queue_indexing(fact, requested_by=requested_by)
    _log("fact_" + str(request.kind), correction, requested_by)
    return correction


@transaction.atomic
def undo_correction(correction: Correction, *, requested_by: str) -> Correction:
    """Undo a correction. Everything that it changed is restored, and people's later changes are kept.

    Raises:
        CannotCorrect: it was undone already, or the fact has a later correction.
    """
    _lock_person(correction.user_id)
    correction = Correction.objects.select_for_update().get(pk=correction.pk)
    _refuse_undoing(correction)
    for change in reversed(correction.changes):
        _undo(change, correction, requested_by)
    if correction.kind == Correction.Kind.CORRECTED:
        for session in Session.objects.filter(pk__in=correction.turns.values("session")):
            _reword_later_texts(session, correction)
    pks = [change["pk"] for change in correction.changes if "made" in change]
    cause = Cause(requested_by, correction.reason)
    _undo_facts(correction, pks, cause)
    correction.turns.all().delete()
    correction.undone_at = timezone.now()
    correction.save(update_fields=["undone_at"])
    _refresh(correction, cause)
    _log("correction_undone", correction, requested_by)
    return correction


def _lock_person(user: int) -> UserProfile:
    """Lock a person and their streams, to prevent consolidations between reading and writing a text."""
    person = UserProfile.objects.locked().get(pk=user)
    lock_rows(MemoryStream.objects.filter(user=user))
    return person


# --- refusals ---


def _person_of(fact: MemoryAtom) -> UserProfile:
    if fact.user is None or fact.is_candidate:
        raise CannotCorrect("This fact is shared. Shared facts can't be corrected; revoke the release instead.")
    return fact.user


def _refuse(fact: MemoryAtom, request: CorrectionRequest) -> None:
    if fact.is_wrong or fact.state == MemoryAtom.State.EVICTED:
        raise CannotCorrect("The fact was already corrected or removed, so it can't be corrected.")
    if request.kind == Correction.Kind.ENDED:
        if fact.state == MemoryAtom.State.ENDED:
            raise CannotCorrect("The fact has already ended.")
        if request.valid_until and request.valid_until > timezone.now():
            raise CannotCorrect("valid_until must not be in the future.")
    if request.kind == Correction.Kind.CORRECTED:
        if content_hash(request.after) == content_hash(fact.content):
            raise CannotCorrect("content: the fact already says this.")
        if (
            MemoryAtom.objects.active()
            .filter(stream=fact.stream_id, user=fact.user_id, content_hash=content_hash(request.after))
            .exists()
        ):
            raise CannotCorrect("content: another fact already says this. Remove this fact instead.")


def _refuse_undoing(correction: Correction) -> None:
    if correction.undone_at:
        raise CannotCorrect("The correction was already undone.")
    changed = {pk for change in correction.changes if "made" in change for pk in (change["pk"], change["made"])}
    later = Correction.objects.in_effect().filter(user=correction.user_id, pk__gt=correction.pk)
    for other in later.order_by("-pk"):
        if changed & {change["pk"] for change in other.changes if "made" in change}:
            raise CannotCorrect(f"The fact was corrected again. Undo the correction {other.correction_id} first.")


# --- matching texts ---


def _facts(
    fact: MemoryAtom, request: CorrectionRequest, rewording: Rewording, found: Collection[int], turns: Sequence[Message]
) -> list[TextChange]:
    """Return the person's other statements that say the same thing, including lines and candidates for a shard."""
    line = Q(state=MemoryAtom.State.LINE)
    own = (MemoryAtom.objects.current() | MemoryAtom.objects.filter(line)).filter(user=fact.user_id)
    twins = Q(content_hash=fact.content_hash)
    # The search returns turns instead of facts that only repeat them, so also check the facts from these turns.
    of_turns = Q(source_message_ids__overlap=[*fact.source_message_ids, *(turn.pk for turn in turns)])
    same = own.filter(Q(pk__in=found) | twins | of_turns | Q(attribute__in=WRITTEN_ATTRIBUTES) | line)
    changes = []
    for other in same.exclude(pk=fact.pk).defer("search_vector").order_by("pk"):
        is_twin = other.content_hash == fact.content_hash
        is_same = is_twin or rewording.says_same(other.content)
        # Possibly only some sentences of a line say the same thing.
        is_line = other.state == MemoryAtom.State.LINE
        is_text = other.attribute in TEXT_ATTRIBUTES or is_line
        is_reworded = is_text or request.kind == Correction.Kind.CORRECTED
        after = request.after if is_twin else rewording.apply_to(other.content) if is_reworded else ""
        if after != other.content and (is_same or after or is_text):
            kind = STREAM if is_line else FACT
            changes.append(TextChange(kind, other.uri, other.pk, "content", other.content, after))
    return changes


def _texts(
    fact: MemoryAtom, rewording: Rewording, moments: Collection[int], sessions: Collection[int]
) -> list[TextChange]:
    assert fact.user_id is not None  # checked by `preview`
    found = Moment.objects.filter(user=fact.user_id, pk__in=moments).defer("search_vector").order_by("pk")
    rows = chain(found, rows_of_sessions(fact.user_id, sessions))
    return [change for _, change in text_changes(rows, rewording)]


def _turns(fact: MemoryAtom, places: Sequence[tuple[int, int | None]]) -> Sequence[Message]:
    """Return the source turns of the fact and the turns at `places`, with corrections applied."""
    own = Message.objects.all_turns().unretracted().filter(user_id=fact.user_id)
    sessions = {session for session, _ in places}
    candidates = own.filter(session__in=sessions, sequence__in={sequence for _, sequence in places})
    wanted = set(places)
    found = [turn for turn in candidates.select_related("session") if (turn.session_id, turn.sequence) in wanted]
    sources = list(own.filter(pk__in=fact.source_message_ids).select_related("session"))
    turns = sorted({turn.pk: turn for turn in [*sources, *found]}.values(), key=lambda turn: turn.pk)
    return as_corrected(with_text(_person_of(fact), turns))


def _turn_marks(fact: MemoryAtom, rewording: Rewording, turns: Sequence[Message]) -> list[TextChange]:
    """Return a mark for each turn that states the wrong fact. Engines then read the corrected turn."""
    # The source turns of the fact may state it in other words, such as "Oscar, my guinea pig".
    sources = set(fact.source_message_ids)
    return [
        TextChange(
            TURN, f"rem://sessions/{turn.session.session_id}/messages/{turn.sequence}", turn.pk, "content", wrong, right
        )
        for turn in turns
        for wrong, right in rewording.wrong_in(turn.content)
        or (rewording.names_in(turn.content) if turn.pk in sources else [])
    ]


# --- changes ---


def _apply(change: TextChange, correction: Correction) -> dict[str, Any]:
    """Make a change, and return the data to undo it."""
    kept = asdict(change)
    if change.kind in (FACT, STREAM):
        replacement = _change_fact(change, correction)
        return kept | {"made": replacement.pk if replacement else None}
    if change.kind == TURN:
        turn = Message.objects.get(pk=change.pk)
        place = {"user_id": correction.user_id, "session_id": turn.session_id, "sequence": turn.sequence}
        CorrectedTurn.objects.create(**place, correction=correction, wrong=change.before, right=change.after)
        return kept
    if row := _row(kept):
        set_text(row, change.field, change.after)
    return kept


def _change_fact(change: TextChange, correction: Correction) -> MemoryAtom | None:
    """End a fact, and replace it with the corrected one. Return the replacement if it is new."""
    atom = MemoryAtom.objects.select_related("stream", "user").get(pk=change.pk)
    cause, is_line = Cause(correction.requested_by, correction.reason), atom.position is not None
    is_wrong = correction.kind != Correction.Kind.ENDED
    until = (atom.valid_from or atom.formed_at) if is_wrong else correction.valid_until
    remove_lines_with([atom], cause)
    same, action = MemoryAtom.objects.filter(pk=atom.pk), StatementChange.Action(correction.kind)
    if change.after and atom.is_listed:  # a client's task, goal or problem keeps its ids and links
        same.change(action, cause, content=change.after, formed_at=correction.created_at)
        _index_again(atom.pk, cause)
        return None
    right = _replacement(atom, change.after, correction) if change.after else None
    is_new = right is not None and insert_if_missing(right)
    if right and is_new:
        _move_links(atom.pk, right.pk)
    elif right:
        right = MemoryAtom.objects.duplicates_of(right).first()
    same.change(
        action,
        cause,
        state=MemoryAtom.State.EVICTED if is_line else MemoryAtom.State.ENDED,
        valid_until=until,
        ended_at=correction.created_at,
        ended_by=correction.requested_by,
        is_wrong=is_wrong,
        replaced_by_id=right.pk if right else atom.replaced_by_id,
    )
    return right if is_new else None


def _index_again(pk: int, cause: Cause) -> None:
    atom = MemoryAtom.objects.get(pk=pk)
    atom.save(update_fields=["content"])
    atom.embeddings.all().delete()
    queue_indexing(atom, requested_by=cause.actor)


def _move_links(before: int, after: int) -> None:
    EntityLink.objects.filter(from_entity=before).update(from_entity=after)
    EntityLink.objects.filter(to_entity=before).update(to_entity=after)


def _move_parts(correction: Correction) -> None:
    """Move the contents of replaced lines to their replacements, except items ended by the correction."""
    cause = Cause(correction.requested_by, correction.reason)
    for change in correction.changes:
        if change.get("made"):
            parts = MemoryAtom.objects.filter(merged_into=change["pk"], state=MemoryAtom.State.ABSORBED)
            parts.change(StatementChange.Action.MERGED, cause, merged_into_id=change["made"])


def _replacement(atom: MemoryAtom, content: str, correction: Correction) -> MemoryAtom:
    """Return the replacement of a wrong fact. It has the same times, but counts as known only since the correction."""
    is_line = atom.position is not None
    state = MemoryAtom.State.LINE if is_line else MemoryAtom.State.ACTIVE
    ended = {"state": state} | ({name: getattr(atom, name) for name in END_COLUMNS} if atom.ended_by else {})
    right = MemoryAtom(
        stream=atom.stream,
        user=atom.user,
        position=atom.position,
        atom_type=atom.atom_type,
        content=content,
        content_hash=content_hash(content),
        kind=atom.kind,
        is_candidate=atom.is_candidate,
        source_user_id=atom.source_user_id,
        attribute=atom.attribute if atom.attribute in WRITTEN_ATTRIBUTES else "",
        about_kind=atom.about_kind,
        subject=atom.subject,
        speaker=atom.speaker,
        formed_at=atom.formed_at,
        valid_from=atom.valid_from,
        due_at=atom.due_at,
        corrected_at=correction.created_at,
        is_pinned=not is_line,
        confidence=1.0,
        source_session_id=atom.source_session_id,
        source_message_ids=atom.source_message_ids,
        **ended,
    ).describe()
    if not is_line:
        link_corrected(right, atom)
        return right
    for name in LINE_COLUMNS:
        setattr(right, name, getattr(atom, name))
    return right


def _undo_facts(correction: Correction, pks: Collection[int], cause: Cause) -> None:
    replacements = {change["made"]: change["pk"] for change in correction.changes if change.get("made")}
    for right, wrong in replacements.items():
        parts = MemoryAtom.objects.filter(merged_into=right)
        parts.change(StatementChange.Action.UNDONE, cause, merged_into_id=wrong)
        _move_links(right, wrong)
    MemoryAtom.objects.filter(pk__in=replacements).delete()
    changed = StatementChange.objects.filter(statement__in=pks, action=correction.kind, reason=correction.reason)
    after = {change["pk"]: change["after"] for change in correction.changes}
    for change in changed.newest_first():
        atom, columns = MemoryAtom.objects.filter(pk=change.statement_id), dict(change.columns)
        if "content" in columns and not atom.filter(content=after.get(change.statement_id)).exists():
            del columns["content"], columns["formed_at"]  # keep the text of a fact that was reworded since
        atom.change(StatementChange.Action.UNDONE, cause, **columns)
        if "content" in columns:
            _index_again(change.statement_id, cause)


def _undo(change: dict[str, Any], correction: Correction, actor: str) -> None:
    """Restore a text that an engine wrote, or the text of a stream. Later changes to it are kept."""
    before, after = change["before"], change["after"]
    if row := _row(change):
        restore(row, change, correction)
    # Before lines became statements, a correction stored the whole text of a stream.
    is_whole = change["kind"] == STREAM and "made" not in change
    if is_whole and (stream := MemoryStream.objects.filter(pk=change["pk"]).first()):
        now = stream.consolidated_content
        write_text(stream, before if now == after else merged_text(before, after, now), actor=actor)


def _row(change: Mapping[str, Any]) -> Row | None:
    table = next((table for table, kind in KINDS.items() if kind == change["kind"]), None)
    return table.objects.filter(pk=change["pk"]).first() if table else None


def _reword_later_texts(session: Session, correction: Correction) -> None:
    """Restore the original words in texts that were written since the correction."""
    # If newer turns contain the new words, these may mean something else. Then only reword sentences that say the same
    # thing.
    since = session.messages.turns().filter(user_id=session.user_id, arrived_at__gte=correction.created_at)
    new = Rewording(correction.before, correction.after).new_words
    said = any(since.filter(content__iregex=rf"\m{re.escape(word)}\M").exists() for word in new)
    reword(rows_since(session, correction.created_at), inverse_rewording(correction, replaces_names=not said))


def _refresh(correction: Correction, cause: Cause) -> None:
    changed = [change for change in correction.changes if "made" in change]
    pks = [change[name] for change in changed for name in ("pk", "made")]
    facts = list(MemoryAtom.objects.filter(pk__in=pks))
    refresh_derived([*facts, *recompute_timelines(facts, cause)])
    EpisodeDraft.objects.filter(user=correction.user_id).delete()  # builds create new drafts from the corrected facts
    UserProfile.objects.filter(pk=correction.user_id).update(updated_at=timezone.now())  # invalidates cached contexts


def _log(event: str, correction: Correction, actor: str) -> None:
    kinds = [change["kind"] for change in correction.changes]
    counts = {kind: kinds.count(kind) for kind in TEXT_KINDS if kind in kinds}
    payload = {"correction_id": str(correction.correction_id), "changed": counts}
    Event.objects.create(type=event, actor=actor, user_pk=correction.user_id, payload=payload)
