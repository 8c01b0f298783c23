"""Store texts that an operator or the application writes into a profile, or pins to a stream, as pinned statements.

A new time zone changes the days of statements, and when plans end.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from moments_app.models import Cause, MemoryAtom, MemoryStream, StatementChange
from moments_app.models.atom import (
    INTEREST,
    PINNED_TEXT,
    SUMMARY,
    TOPIC,
    MemoryAtomQuerySet,
    content_hash,
    profile_sentence,
)
from moments_app.streams.add_atoms import add_atoms
from moments_app.streams.profile import rebuild_profiles
from moments_app.streams.timeline import ZONE, count_again, touch
from sessions_app.database.sql import lock_rows
from sessions_app.models import UserProfile
from sessions_app.models.session import DEFAULT_AGENT

ATTRIBUTES = {"summary": SUMMARY, "interests": INTEREST, "preferred_topics": TOPIC}  # keyed by profile field


def edit_profile(profile: UserProfile, edits: Mapping[str, Any], *, actor: str) -> None:
    """Replace the texts that were written into a profile. The caller has locked the profile.

    Args:
        profile: the profile of the person, with its new time zone.
        edits: fields of the profile, with the text of `summary` or the phrases of lists.
        actor: `key:…` or `operator:…`.
    """
    for field in edits.keys() & ATTRIBUTES.keys():
        texts = [edits[field]] if field == "summary" else [text.strip() for text in edits[field]]
        stream = MemoryStream.objects.ensure_of_person(profile, DEFAULT_AGENT)
        _write(stream, ATTRIBUTES[field], [text for text in texts if text.strip()], actor)
    if "timezone" in edits:
        count_again(MemoryAtom.objects.planned().filter(user=profile), Cause(actor, ZONE))
    rebuild_profiles([profile.pk])  # needed even if no statement changed, to replace the edited text


@transaction.atomic
def pin_text(stream: MemoryStream, text: str, *, actor: str) -> None:
    """Replace the pinned text of a stream.

    Args:
        stream: a stream of a person, or a shard.
        text: the new text; blank to remove the pinned text.
        actor: `key:…` or `operator:…`.
    """
    lock_rows(UserProfile.objects.filter(pk__in=[stream.user_id] if stream.user_id else []))
    lock_rows(MemoryStream.objects.filter(pk=stream.pk))
    _write(stream, PINNED_TEXT, [text] if text.strip() else [], actor)
    stream.touch()


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
    return MemoryAtom.objects.holding().filter(is_candidate=False, **where).in_order()


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
            same = MemoryAtom.objects.like(atom)
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
        touch([*ended, *MemoryAtom.objects.filter(pk__in=kept)])
