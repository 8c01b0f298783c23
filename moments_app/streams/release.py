"""Share an item that was learned from one person with other users, in new words, and revoke such releases.

A candidate belongs to one person. An operator who releases it writes the text for others, which must not quote anyone.
The first release is for the users of the agent that learned the item. A second step extends it to the users of every
agent. A release is signed and logged as an event.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields as fields_of
from typing import Any

from django.db import transaction
from django.db.models import Case, When
from django.utils import timezone

from moments_app.engines.words import plain_words
from moments_app.models import Cause, Job, MemoryAtom, MemoryStream, Release, ReleaseSource
from moments_app.models.atom import MemoryAtomQuerySet, content_hash
from moments_app.models.stream import Defaults
from moments_app.streams.add_atoms import add_atoms
from moments_app.streams.texts import undo_since
from sessions_app.database.sql import insert_if_missing
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.refusals import Refusal
from sessions_app.retention.read_archived import with_text
from sessions_app.text.invisible_characters import has_invisible, without_invisible

MAX_WORDING = 4_000  # maximum characters of a wording
MAX_SOURCE_TURNS = 50  # maximum source turns to compare a wording with
MAX_PEOPLE = 100  # maximum people per release
QUOTE_WORDS = 8  # minimum consecutive words that count as a quotation
SENTENCE_WORDS = 4  # minimum words of a whole sentence that counts as a quotation

Source = tuple[Any, int | None]  # primary keys of the person and of the candidate (None if it was deleted)

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*|\n+")


class CannotRelease(Refusal):
    """The item can't be released, or its release can't be revoked. The message says why."""


# --- content and audience of a release ---


def agent_of(candidate: MemoryAtom) -> str:
    session = candidate.source_session
    return candidate.stream.agent_id or (session.agent_id if session else "")


def source_turns(candidate: MemoryAtom) -> Sequence[Message]:
    turns = Message.objects.filter(pk__in=candidate.source_message_ids, user=candidate.user_id)
    found = list(turns.select_related("session", "user").in_order()[:MAX_SOURCE_TURNS])
    return with_text(found[0].user, found) if found else []


def matching_candidates(candidate: MemoryAtom) -> MemoryAtomQuerySet:
    """Return the candidate, followed by candidates of its shard with the same words, one per person."""
    candidates = MemoryAtom.objects.active().candidates().filter(stream=candidate.stream_id)
    same = candidates.filter(content_hash=candidate.content_hash)
    first = Case(When(pk=candidate.pk, then=0), default=1)
    return same.select_related("stream", "source_session", "user").order_by(first, "pk")


def account_ages(candidate: MemoryAtom) -> list[int]:
    """Return the ages in days of the accounts of people with a matching candidate, youngest first.

    Return at most `MAX_PEOPLE` + 1 ages.
    """
    # Exclude test persons, whose messages are written by an operator.
    people = matching_candidates(candidate).filter(user__is_test=False).order_by("-user__created_at")
    made = people.values_list("user__created_at", flat=True)[: MAX_PEOPLE + 1]
    return [(timezone.now() - at).days for at in made]


def release(candidate: MemoryAtom, wording: str, *, actor: str, note: str = "") -> Release:
    """Share the content of a candidate, in new words, with all users of an agent. The candidate itself stays private.

    Args:
        wording: the text that others see.
        actor: `operator:…`.

    Raises:
        CannotRelease: the wording quotes its source or exists already, or the candidate is no longer in memory.
    """
    wording = validate_wording(wording, matching_candidates(candidate)[:MAX_PEOPLE])
    with transaction.atomic():
        found = _locked_with_same(candidate)
        _review(found)
        stream = shard_for(candidate.stream, agent_of(candidate))
        sources = [(atom.user_id, atom.pk) for atom in found]
        return _share(stream, wording, candidate.atom_type, sources, actor=actor, note=note)


@transaction.atomic
def decline(candidate: MemoryAtom, *, actor: str) -> None:
    """Keep a candidate and matching candidates of others private. They no longer need a decision.

    Raises:
        CannotRelease: the candidate is no longer in memory.
    """
    found = _locked_with_same(candidate)
    _review(found)
    for atom in found:
        payload = {"atom_id": str(atom.atom_id), "stream_id": str(atom.stream.stream_id)}
        Event.objects.create(type="memory_kept_private", actor=actor, user_pk=atom.user_id, payload=payload)


@transaction.atomic
def extend(narrower: Release, *, actor: str) -> Release:
    """Share a release for one agent with the users of every agent.

    Raises:
        CannotRelease: the release was revoked, or every agent's users see it already.
    """
    found = _lock_in_force(narrower)
    stream = found.stream
    if not stream.agent_id:
        raise CannotRelease("It is already released to the users of every agent.")
    kind = found.atom.atom_type if found.atom else MemoryAtom.Type.OBSERVATION
    return _share(shard_for(stream, ""), found.wording, kind, _sources(found), actor=actor, narrower=found)


def reword(former: Release, wording: str, *, actor: str, note: str = "") -> Release:
    """Replace a release with another wording.

    Raises:
        CannotRelease: it was revoked, or the wording quotes a source or exists already.
    """
    sources = [source.atom for source in former.sources.select_related("atom__stream") if source.atom]
    wording = validate_wording(wording, sources)
    with transaction.atomic():
        found = _lock_in_force(former)
        kind = found.atom.atom_type if found.atom else MemoryAtom.Type.OBSERVATION
        revoke_locked(found, actor)
        return _share(found.stream, wording, kind, _sources(found), actor=actor, note=note, replaces=found)


@transaction.atomic
def revoke(release: Release, *, actor: str) -> Release:
    """Remove a release from all contexts and searches, and from the text of its shard.

    The extension to every agent's users is revoked as well.

    Raises:
        CannotRelease: it was already revoked.
    """
    found = _lock_in_force(release)
    revoke_locked(found, actor)
    return found


# --- the wording ---


def validate_wording(wording: str, sources: Iterable[MemoryAtom]) -> str:
    """Check a wording, and return it with normalized spaces.

    Raises:
        CannotRelease: it is blank, too long, has invisible characters, or quotes a source.
    """
    wording = " ".join(wording.replace("\0", "").split())
    if not wording or len(wording) > MAX_WORDING:
        raise CannotRelease(f"wording: enter the text to share, with at most {MAX_WORDING:,} characters.")
    if has_invisible(wording):
        raise CannotRelease("wording: the text has invisible characters. Type it by hand.")
    texts = [text for atom in sources for text in (atom.content, *(turn.content for turn in source_turns(atom)))]
    if quotes(wording, texts):
        raise CannotRelease("wording: the text repeats the person word for word. Write it in neutral words.")
    return wording


def quotes(wording: str, sources: Collection[str]) -> bool:
    """Return whether a wording occurs in a source, or repeats a sentence or `QUOTE_WORDS` consecutive words of one."""
    own = plain_words(wording)
    texts = [without_invisible(text) for text in sources]
    return any(_contains(text, own) for text in map(plain_words, texts)) or any(
        _contains(own, sentence) for text in texts for sentence in _sentences(text)
    )


def _contains(text: str, part: str) -> bool:
    padded, words = f" {text} ", part.split(" ")
    runs = (words[first : first + QUOTE_WORDS] for first in range(max(len(words) - QUOTE_WORDS, 0) + 1))
    return any(f" {' '.join(run)} " in padded for run in runs)


def _sentences(text: str) -> list[str]:
    found = map(plain_words, _SENTENCE_END.split(text))
    return [sentence for sentence in found if sentence.count(" ") >= SENTENCE_WORDS - 1]


# --- sharing ---


def shard_for(shard: MemoryStream, agent_id: str) -> MemoryStream:
    """Return the shard with the same name for one agent, or for every agent. Create it if it doesn't exist.

    A new shard has the settings of the given one, but learns nothing from conversations.
    """
    if shard.agent_id == agent_id:
        return shard
    settings_of = {field.name: getattr(shard, field.name) for field in fields_of(Defaults)}
    takes_nothing = {"extracts_observations": False, "extracts_facts": False}
    scope = {
        "stream_type": MemoryStream.Type.AGENT,
        "application_id": shard.application_id,
        "agent_id": agent_id,
        "name": shard.name,
    }
    insert_if_missing(MemoryStream(**scope, **settings_of | takes_nothing))
    return MemoryStream.objects.get(**scope)


def _share(
    stream: MemoryStream, wording: str, atom_type: str, sources: Iterable[Source], *, actor: str, **values: Any
) -> Release:
    atom = MemoryAtom(stream=stream, atom_type=atom_type, content=wording, content_hash=content_hash(wording))
    if not add_atoms(stream, [atom], requested_by=actor):
        raise CannotRelease(f"{stream.title} already has an item with these words.")
    made = Release.objects.create(stream=stream, atom=atom, wording=wording, actor=actor, **values)
    ReleaseSource.objects.bulk_create(ReleaseSource(release=made, user_id=user, atom_id=pk) for user, pk in sources)
    log_release("memory_released", made, actor)
    return made


def _sources(release: Release) -> list[Source]:
    return list(release.sources.order_by("pk").values_list("user_id", "atom_id"))


def _locked_with_same(candidate: MemoryAtom) -> list[MemoryAtom]:
    """Return the current candidate and matching ones, locked against erasures and retractions."""
    same = matching_candidates(candidate)
    before = list(same[:MAX_PEOPLE])
    UserProfile.objects.protect({atom.user_id for atom in before if atom.user_id})
    list(Session.objects.locked().filter(pk__in=[atom.source_session_id for atom in before]).order_by("pk"))
    named = same.filter(pk__in=[atom.pk for atom in before])
    found = list(named.select_for_update(no_key=True, of=("self",)))
    if candidate.pk not in {atom.pk for atom in found}:
        raise CannotRelease("The item is no longer in memory, or no longer belongs to one person.")
    return found


def _review(candidates: Sequence[MemoryAtom]) -> None:
    """Record the decision on candidates, and on the same people's matching candidates in every agent's shard."""
    same = (
        MemoryAtom.objects.active()
        .candidates()
        .filter(
            user__in=[atom.user_id for atom in candidates],
            content_hash__in=[atom.content_hash for atom in candidates],
            stream__name=candidates[0].stream.name,
        )
    )
    MemoryAtom.objects.filter(pk__in=[*same.values_list("pk", flat=True)]).update(reviewed_at=timezone.now())


# --- revoking ---


def _lock_in_force(release: Release) -> Release:
    found = Release.objects.select_for_update(of=("self",)).select_related("stream", "atom").get(pk=release.pk)
    if found.revoked_at:
        raise CannotRelease("The release was already revoked.")
    return found


def revoke_locked(release: Release, actor: str) -> None:
    """Revoke a locked release that is in force, and the releases that extend it to the users of all agents."""
    for wider in release.wider.in_effect().select_related("stream", "atom"):
        revoke_locked(wider, actor)
    release.revoked_at, release.revoked_by = timezone.now(), actor
    release.save(update_fields=["revoked_at", "revoked_by"])
    if release.atom:
        _withdraw(release.stream, release.atom, Cause(actor, f"release:{release.release_id}"))
    log_release("memory_release_revoked", release, actor)


def _withdraw(stream: MemoryStream, atom: MemoryAtom, cause: Cause) -> None:
    stream = MemoryStream.objects.select_for_update(no_key=True).get(pk=stream.pk)
    time = MemoryAtom.objects.get(pk=atom.pk).consolidated_at
    if time:
        undo_since(stream, time, cause)
    MemoryAtom.objects.filter(pk=atom.pk).evict(cause)
    stream.refresh()
    if time and stream.consolidation_prompt and stream.atoms.waiting().exists():
        Job.objects.request("consolidate", stream=stream, requested_by=cause.actor, force=True)
    Job.objects.request("count_words", stream=stream, requested_by=cause.actor, force=True)


def log_release(event: str, release: Release, actor: str) -> None:
    """Log an event of a release, without any of its text."""
    people = release.sources.values("user").distinct().count()
    payload = {"release_id": str(release.release_id), "stream_id": str(release.stream.stream_id), "people": people}
    Event.objects.create(type=event, actor=actor, application_id=release.stream.application_id, payload=payload)
