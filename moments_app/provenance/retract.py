"""`retract`: some turns of a session, or all it has, are no longer believed, nor anything that was made of them.

In one transaction the turns are marked and everything derived from them is withdrawn: from then on no engine, context
or search gets any of it. What had other sources too is made anew by the ordinary processes, whose jobs are asked for in
the same transaction. Nothing is destroyed: what was withdrawn is kept, and `undo` puts it back.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Max, Q, QuerySet, Sum
from django.utils import timezone

from moments_app.engines.base import Profile
from moments_app.models import (
    Job,
    MemoryAtom,
    MemoryStream,
    Moment,
    Retraction,
    StreamVersion,
    Summary,
    TurnEmbedding,
)
from moments_app.models.embedding import ask_to_embed
from moments_app.moments import build as build_moments
from moments_app.moments import rebuild_profile
from moments_app.moments.mentions import take_keys_out
from moments_app.provenance.derived import (
    Derived,
    Stretch,
    calls_for,
    calls_for_builds,
    derived_from,
    text_without,
    united,
)
from moments_app.recall import count_words
from moments_app.streams import consolidate
from moments_app.streams import form as form_memories
from moments_app.summaries import roll as roll_summary
from sessions_app.models import Event, Message, ProfileVersion, Session, UserProfile
from sessions_app.refusals import Refusal

MOST_TURNS = 10_000  # named one by one; a whole session may have more


class CannotRetract(Refusal):
    """What was asked for can't be done as things are; the message says why."""


def sequences_of(text: str) -> list[int]:
    """The sequences in a text like `3,4,7-9`, at most `MOST_TURNS`.

    Raises:
        CannotRetract: it isn't one, or names more.
    """
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        if not re.fullmatch(r"[0-9]{1,18}(-[0-9]{1,18})?", part):
            raise CannotRetract("Turns are named by their sequences, like 3,4,7-9.")
        first, _, last = part.partition("-")
        stretch = range(int(first), int(last or first) + 1)
        if not stretch or len(found) + len(stretch) > MOST_TURNS:
            raise CannotRetract(f"A stretch of turns has at least one, and all together at most {MOST_TURNS}.")
        found.update(stretch)
    return sorted(found)


@dataclass(frozen=True)
class Preview:
    """What a retraction would do.

    Args:
        turns: that would be retracted.
        moment_keys: of the moments that would be withdrawn.
        withdrawn: number of rows that would be withdrawn, by kind.
        engine_calls: about how many it takes to make anew what had other sources too.
        derived: the rows themselves.
    """

    turns: int
    moment_keys: list[str]
    withdrawn: dict[str, int]
    engine_calls: int
    derived: Derived


def preview(session: Session, sequences: Sequence[int] | None) -> Preview:
    """What `retract` would do; nothing is changed.

    Raises:
        CannotRetract: as `retract`.
    """
    found = _found(session, sequences)
    keys = [moment.key for moment in found.moments]
    calls = _engine_calls(found, is_whole=sequences is None)
    return Preview(found.turns.count(), keys, _counts(found), calls, found)


@transaction.atomic
def retract(session: Session, sequences: Sequence[int] | None, *, reason: str, requested_by: str) -> Retraction:
    """Withdraws turns and everything made of them, and asks for the rest to be made anew.

    Args:
        session: whose turns.
        sequences: of the turns; None: all the session has.
        reason: for whoever reads about it later.
        requested_by: key:…, operator:… or command.

    Raises:
        CannotRetract: there are no such turns, they are retracted already, or were archived.
    """
    session = locked(session.pk)
    found = _found(session, sequences)
    retraction = Retraction.objects.create(
        user=session.user,
        session=session,
        sequences=None if sequences is None else sorted(set(sequences)),
        reason=reason,
        requested_by=requested_by,
        result={"turns": found.turns.count(), "withdrawn": _counts(found)},
        waiting=_waiting(session),
    )
    turn_ids = list(found.turns.values_list("pk", flat=True))
    Message.objects.filter(pk__in=turn_ids).update(retracted_at=retraction.created_at)
    TurnEmbedding.objects.filter(source_id__in=turn_ids).delete()
    _withdraw(retraction, found, is_whole=sequences is None)
    _make_anew(retraction, found, is_whole=sequences is None)
    tell("memory_retracted", retraction, requested_by)
    return retraction


def locked(session_id: int) -> Session:
    """The session and its person, locked, and counted as changed: work begun before this writes nothing."""
    session = Session.objects.locked().get(pk=session_id)
    session.user = UserProfile.objects.locked().get(pk=session.user_id)
    session.retraction_count += 1
    session.save(update_fields=["retraction_count"])
    session.user.save(update_fields=["updated_at"])  # contexts that were kept are made anew
    return session


def _found(session: Session, sequences: Sequence[int] | None) -> Derived:
    turns = _turns(session, sequences)
    found = derived_from(session, turns, is_whole=sequences is None)
    first = min((moment.first_sequence for moment in found.moments), default=session.kept_from_sequence)
    first = 0 if sequences is None else first
    if first < session.kept_from_sequence and session.archives.filter(last_sequence__gte=first).exists():
        raise CannotRetract(f"Turns from {first} on were archived; restore the session first.")
    return found


def _waiting(session: Session) -> dict[str, Any]:
    """What earlier retractions still have to be made anew, by process."""
    own = Q(session=session, process__in=(build_moments.NAME, form_memories.NAME))
    persons = Q(user=session.user, process=rebuild_profile.NAME)
    return {job.process: job.params for job in Job.objects.open().filter(own | persons)}


def _turns(session: Session, sequences: Sequence[int] | None) -> QuerySet[Message]:
    """The turns that are meant, all of them still believed.

    Raises:
        CannotRetract: there are none, or they are not all there, or not all believed.
    """
    turns = session.messages.turns().filter(user_id=session.user_id)
    if sequences is None:
        if not turns.believed().exists():
            raise CannotRetract("The session has no turn that could be retracted.")
        return turns.believed()
    if not sequences:
        raise CannotRetract("Name at least one turn, or the whole session.")
    turns = turns.filter(sequence__in=sequences)
    if missing := sorted(set(sequences) - set(turns.values_list("sequence", flat=True))):
        if session.messages.archived().filter(user_id=session.user_id, sequence=missing[0]).exists():
            raise CannotRetract(f"Turn {missing[0]} was archived; restore the session first.")
        raise CannotRetract(f"The session has no turn {missing[0]} in its transcript.")
    if retracted := turns.exclude(retracted_at=None).order_by("sequence").first():
        raise CannotRetract(f"Turn {retracted.sequence} is retracted already.")
    return turns


def _counts(found: Derived) -> dict[str, int]:
    return {
        "moments": len(found.moments),
        "summaries": len(found.summaries),
        "atoms": len(found.atoms),
        "stream_versions": len(found.versions),
        "profile_versions": len(found.profile.versions) if found.profile else 0,
        "partition_events": len(found.events),
        "mentions": len(found.mentions),
        "journeys": len(found.journeys),
    }


def _engine_calls(found: Derived, *, is_whole: bool) -> int:
    calls = calls_for_builds(found.session.user, found.profile.builds) if found.profile else 0
    calls += len({version.stream_id for version in found.versions})
    if is_whole:
        return calls
    if found.moments:
        ours = (min(m.first_sequence for m in found.moments), found.session.last_moment_message_idx)
        calls += calls_for(found.session.messages.turns().filter(sequence__range=ours).exclude(pk__in=found.turns))
    return calls + len(found.stretches) + bool(found.summaries)


# --- withdrawing ---


def _withdraw(retraction: Retraction, found: Derived, *, is_whole: bool) -> None:
    _withdraw_from_streams(retraction, found)
    _withdraw_moments(retraction, found)
    _rewrite_mentions(retraction, found)
    _set_profile_back(retraction, found)
    retraction.items.keep(retraction, [found.session], is_rewritten=True)
    retraction.items.keep(retraction, found.summaries)
    retraction.items.keep(retraction, found.events)
    Summary.objects.filter(pk__in=_pks(found.summaries)).delete()
    Message.objects.filter(pk__in=_pks(found.events)).delete()
    if found.moments and not is_whole:
        first = min(moment.first_sequence for moment in found.moments)
        found.session.last_moment_message_idx = first - 1 if first else None
    if any(_payload(event).get("partition_type") == "session_cleared" for event in found.events):
        found.session.status = Session.Status.ACTIVE
    recount(found.session)


def _withdraw_from_streams(retraction: Retraction, found: Derived) -> None:
    items, withdrawn = retraction.items, _pks(found.atoms)
    for stream in found.streams.select_for_update(no_key=True):
        versions = [version for version in found.versions if version.stream_id == stream.pk]
        items.keep(retraction, [stream], is_rewritten=True)
        if versions:
            stream.consolidated_content = text_without(stream, versions)
        stream.last_updated_at = timezone.now()
        stream.save(update_fields=["consolidated_content", "last_updated_at"])
    items.keep(retraction, found.atoms)
    items.keep(retraction, found.versions)
    concerned = _given_to(found.versions).exclude(pk__in=withdrawn).order_by("pk")
    items.keep(retraction, concerned.select_for_update(no_key=True), is_rewritten=True)
    MemoryAtom.objects.filter(pk__in=withdrawn).delete()
    consolidate.wait_again(found.versions)
    StreamVersion.objects.filter(pk__in=_pks(found.versions)).delete()
    for stream in found.streams:
        consolidate.carry_again(stream)


def _given_to(versions: Sequence[StreamVersion]) -> QuerySet[MemoryAtom]:
    """What these consolidations were given: observations, and those that the lines before them carried."""
    firsts = {version.stream: version for version in reversed(versions)}
    before = [stream.versions.filter(pk__lt=first.pk, undone_at=None).first() for stream, first in firsts.items()]
    carried = {pk for version in before if version for line in version.lines or () for pk in line or ()}
    pks = _pks(versions)
    return MemoryAtom.objects.filter(Q(absorbed_in__in=pks) | Q(shown_in__in=pks) | Q(pk__in=carried))


def _withdraw_moments(retraction: Retraction, found: Derived) -> None:
    retraction.items.keep(retraction, found.moments)
    retraction.items.keep(retraction, found.journeys, is_rewritten=True)
    Moment.objects.filter(pk__in=_pks(found.journeys)).update(journey="")
    Moment.objects.filter(pk__in=_pks(found.moments)).delete()
    Moment.objects.relink(retraction.user_id, found.moments)


def _rewrite_mentions(retraction: Retraction, found: Derived) -> None:
    """Takes the moments' keys, which are made of their names, and the journey out of what is told elsewhere."""
    keys = {moment.key for moment in found.moments}
    retraction.items.keep(retraction, found.mentions, is_rewritten=True)
    for row in found.mentions:
        take_keys_out(row, keys, recent_moments_summary="")


def _set_profile_back(retraction: Retraction, found: Derived) -> None:
    if found.profile is None:
        return
    user = found.session.user
    retraction.items.keep(retraction, [user], is_rewritten=True)
    retraction.items.keep(retraction, found.profile.versions)
    ProfileVersion.objects.filter(pk__in=_pks(found.profile.versions)).delete()
    set_profile(user, found.profile.profile)


def set_profile(user: UserProfile, profile: Profile) -> None:
    """Gives a profile another state, of which no version is kept: the versions are part of what changes hands."""
    user.summary, user.interests = profile.summary, list(profile.interests)
    user.preferred_topics = list(profile.preferred_topics)
    user.save(update_fields=["summary", "interests", "preferred_topics", "updated_at"])


def recount(session: Session) -> None:
    """Makes the session's counters say what is there now."""
    events = session.messages.partitions().aggregate(last=Max("sequence"))
    session.live_from_sequence = 0 if events["last"] is None else events["last"] + 1
    live = session.messages.turns().believed().filter(sequence__gte=session.live_from_sequence)
    session.live_tokens = live.aggregate(total=Sum("tokens"))["total"] or 0
    summed = Summary.objects.for_session(session).completed().aggregate(last=Max("end_sequence"))["last"]
    digests = session.messages.partitions().exclude(payload__partition_type="moment_compression")
    digested = digests.aggregate(last=Max("sequence"))["last"]
    session.summarised_sequence = max((n for n in (summed, digested) if n is not None), default=None)
    session.save(
        update_fields=["last_moment_message_idx", "live_from_sequence", "live_tokens", "summarised_sequence", "status"]
    )


# --- making the rest anew ---


def _make_anew(retraction: Retraction, found: Derived, *, is_whole: bool) -> None:
    """Asks for the work that makes up for what was withdrawn."""
    session, by = found.session, retraction.actor
    if found.profile and found.profile.builds:
        replay(session.user, found.profile.builds, by)
    if not is_whole:
        if found.moments:
            build_again(session, max(moment.last_sequence for moment in found.moments), by)
        if found.summaries:
            Job.objects.request(roll_summary.NAME, session, requested_by=by, hasten=True)
        if found.stretches:
            form_again(session, found.stretches, by)
    refresh(retraction, found.streams)


def replay(user: UserProfile, builds: Sequence[str], requested_by: str) -> None:
    """Asks for what these builds told the profile, besides those that wait to be replayed already."""
    job = Job.objects.request_anew(rebuild_profile.NAME, user_id=user.pk, requested_by=requested_by)
    waiting = {*job.params.get(rebuild_profile.BUILDS, []), *builds}
    known = Job.objects.filter(job_id__in=waiting).order_by("pk").values_list("job_id", flat=True)
    job.params[rebuild_profile.BUILDS] = [str(job_id) for job_id in known]
    job.save(update_fields=["params"])


def form_again(session: Session, stretches: Sequence[Stretch], requested_by: str) -> None:
    """Asks for the memories of these stretches, besides those that wait to be formed again already."""
    job = Job.objects.request_anew(form_memories.NAME, session, requested_by=requested_by)
    waiting = united([*(tuple(stretch) for stretch in job.params.get(form_memories.AGAIN, [])), *stretches])
    job.params[form_memories.AGAIN] = [list(stretch) for stretch in waiting]
    job.save(update_fields=["params"])


def build_again(session: Session, last_sequence: int, requested_by: str) -> None:
    """Asks for moments up to this turn."""
    job = Job.objects.request_anew(build_moments.NAME, session, requested_by=requested_by)
    job.params[build_moments.AGAIN] = max(last_sequence, job.params.get(build_moments.AGAIN, -1))
    job.save(update_fields=["params"])


def refresh(retraction: Retraction, streams: QuerySet[MemoryStream]) -> None:
    """Texts folded, words counted and vectors made, of the person and of the shards that were touched."""
    by = retraction.actor
    for stream in streams:
        if consolidate.is_due(stream):
            Job.objects.request(consolidate.NAME, stream=stream, requested_by=by)
        if stream.user_id is None:
            Job.objects.request(count_words.NAME, stream=stream, requested_by=by, force=True)
            ask_to_embed(by, stream=stream)
    Job.objects.request(count_words.NAME, user_id=retraction.user_id, requested_by=by, force=True)
    ask_to_embed(by, user_id=retraction.user_id)


def tell(event: str, retraction: Retraction, actor: str) -> None:
    """Says it in the event log."""
    Event.objects.create(
        type=event,
        actor=actor,
        user_pk=retraction.user_id,
        session_pk=retraction.session_id,
        payload={"retraction_id": str(retraction.retraction_id)} | retraction.result,
    )


def _pks(rows: Sequence[Any]) -> list[int]:
    return [row.pk for row in rows]


def _payload(event: Message) -> dict[str, Any]:
    return event.payload if isinstance(event.payload, dict) else {}
