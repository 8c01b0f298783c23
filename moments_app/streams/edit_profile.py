"""`edit_profile`: what an operator or the application writes into a profile becomes pinned statements.

A new time zone changes the days on which statements were made, and when plans end.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils import timezone

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.models.atom import INTEREST, SUMMARY, TOPIC, content_hash, profile_sentence
from moments_app.streams.add_atoms import add_atoms
from moments_app.streams.profile import rebuild_profiles
from moments_app.streams.timeline import count_again, touch
from sessions_app.models import UserProfile
from sessions_app.models.session import DEFAULT_AGENT

ATTRIBUTES = {"summary": SUMMARY, "interests": INTEREST, "preferred_topics": TOPIC}  # by the field of a profile


def edit_profile(profile: UserProfile, edits: Mapping[str, Any], *, actor: str) -> None:
    """Write texts into a profile, in place of those that were written before; the caller has it locked.

    Args:
        profile: of the person, with its new time zone.
        edits: fields of the profile, with the text of `summary` or the phrases of lists.
        actor: key:… or operator:….
    """
    for field in edits.keys() & ATTRIBUTES.keys():
        texts = [edits[field]] if field == "summary" else [text.strip() for text in edits[field]]
        stream = MemoryStream.objects.ensure_of_person(profile, DEFAULT_AGENT)
        _write(stream, ATTRIBUTES[field], [text for text in texts if text.strip()], actor)
    if "timezone" in edits:
        count_again(MemoryAtom.objects.planned().filter(user=profile))
    rebuild_profiles([profile.pk])  # an edit that changes no statement must not leave its text in the profile


def own_texts(profile: UserProfile) -> dict[str, Any]:
    """Return what was written into a profile, by field."""
    rows = _written(profile.pk).values_list("attribute", "content", "value")
    texts = [content for attribute, content, _ in rows if attribute == SUMMARY]
    phrases = {
        field: [value for found, _, value in rows if found == attribute]
        for field, attribute in ATTRIBUTES.items()
        if attribute != SUMMARY
    }
    return {"summary": "\n".join(texts), **phrases}


def _written(user: int) -> Any:
    return MemoryAtom.objects.holding().filter(user=user, is_candidate=False).of_profile().in_order()


def _write(stream: MemoryStream, attribute: str, texts: Iterable[str], actor: str) -> None:
    """Make these the statements of an attribute: add the new ones, pin all, and end the others."""
    assert stream.user_id is not None  # it is a person's
    wanted = {content_hash(sentence): sentence for sentence in (profile_sentence(attribute, text) for text in texts)}
    present = {atom.content_hash: atom for atom in _written(stream.user_id).filter(attribute=attribute)}
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
    added = {atom.content_hash for atom in add_atoms(stream, new, requested_by=actor)}
    kept = [atom.pk for digest, atom in present.items() if digest in wanted]
    for digest, sentence in wanted.items():
        if digest in present and present[digest].content != sentence:  # other marks or capitals, the same words
            present[digest].content = sentence
            present[digest].describe().save()
    for atom in new:
        if atom.content_hash not in added:  # the stream says so already
            same = MemoryAtom.objects.like(atom)
            kept += same.values_list("pk", flat=True)
            if attribute != SUMMARY:
                names = ("attribute", "subject", "value", "kind", "about_kind")
                same.update(**{name: getattr(atom.describe(), name) for name in names})
    MemoryAtom.objects.filter(pk__in=kept).update(is_pinned=True)
    ended = [atom for digest, atom in present.items() if digest not in wanted]
    now = timezone.now()
    MemoryAtom.objects.filter(pk__in=[atom.pk for atom in ended]).update(
        state=MemoryAtom.State.ENDED, valid_until=now, ended_at=now, ended_by=actor
    )
    if kept or ended:
        touch([*ended, *MemoryAtom.objects.filter(pk__in=kept)])
