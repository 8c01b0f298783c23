"""Erase data that has no foreign key to the person: shard items learned from them, word counts, and errors of calls.

A shard loses everything that the agent learned only from this person: the candidates and their releases. If a text was
derived from such items, its former version is restored, and newer items from others are consolidated again.
"""

import json
from functools import partial

from django.db import connection, transaction
from django.db.models import CharField, F, Func, Min, QuerySet, Value

from moments_app.context.input import LAYER_CACHE
from moments_app.models import (
    Cause,
    EngineCall,
    Job,
    MemoryAtom,
    MemoryStream,
    Release,
    RetractedItem,
    Vocabulary,
    Word,
)
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.recall.index_words import CountInput, count
from moments_app.streams.consolidate import Consolidate
from moments_app.streams.texts import undo_since
from sessions_app.models import Session, UserProfile

REQUESTED_BY = "erase_user"


def forget_contexts(user: UserProfile) -> None:
    """Drop the cached parts of the person's contexts in this process, once the erasure is committed."""
    sessions = list(Session.objects.for_user(user).values_list("pk", flat=True))
    transaction.on_commit(partial(LAYER_CACHE.drop, sessions))


def unlink_calls(user: UserProfile) -> int:
    """Unlink a person's engine calls from jobs, and blank the errors.

    Return the number of calls. Costs stay recorded.
    """
    return EngineCall.objects.filter(job__user=user).update(job=None, error="")


def forget_words(user: UserProfile) -> None:
    _words(user)._raw_delete(connection.alias)


def count_words_of(user: UserProfile) -> dict[str, int]:
    return {"words": _words(user).count()}


def _words(user: UserProfile) -> QuerySet[Word]:
    return Word.objects.filter(vocabulary__user=user)


# --- items of other people ---


def forget_in_memories(user: UserProfile) -> None:
    """Remove a person's items from shards, and the person's name from other people's items."""
    forget_names(user)
    forget_in_shards(user)


def count_in_memories(user: UserProfile) -> dict[str, int]:
    """Count a person's items in shards, and items of other people that mention the person."""
    names = MemoryAtom.objects.about(user).exclude(user=user).count()
    names += sum(user.user_id in json.loads(item.data["related_users"]) for item in _retracted_about(user))
    shared = _in_shards(user).exclude(user=user).exclude(source_user=user).count()
    return {
        "facts and observations of shared memory": shared,  # items without a foreign key to the person
        "releases": Release.objects.only_from(user).count(),
        "names in other people's items": names,
    }


def forget_names(user: UserProfile) -> None:
    """Remove a person from `related_users` of other people's items, including items stored by retractions."""
    named = Value(user.user_id, output_field=CharField(max_length=255))
    left = Func(F("related_users"), named, function="array_remove")
    MemoryAtom.objects.about(user).update(related_users=left)
    for item in _retracted_about(user):
        names = json.loads(item.data["related_users"])
        item.data["related_users"] = json.dumps([name for name in names if name != user.user_id])
        item.save(update_fields=["data"])


def _retracted_about(user: UserProfile) -> QuerySet[RetractedItem]:
    """Return retracted items of other people that may mention a person, ignoring case."""
    items = RetractedItem.objects.for_model(MemoryAtom).filter(user__application=user.application_id).exclude(user=user)
    # `related_users` is stored as a JSON list in a string.
    return items.filter(data__related_users__icontains=json.dumps(user.user_id)).order_by("pk")


# --- shards ---


def forget_in_shards(user: UserProfile) -> None:
    """Remove a person's items from agents' shards, and restore the texts from before these items."""
    releases = list(Release.objects.only_from(user).values_list("pk", flat=True))
    pks = set(_in_shards(user).values_list("pk", flat=True))
    concerned = MemoryAtom.objects.filter(pk__in=pks).values("stream")
    shards = MemoryStream.objects.filter(pk__in=concerned).order_by("pk").select_for_update(no_key=True)
    for shard in shards:
        _forget_in_shard(shard, shard.atoms.filter(pk__in=pks))
    Release.objects.filter(pk__in=releases).delete()


def _in_shards(user: UserProfile) -> MemoryAtomQuerySet:
    """Return a person's items in shards: candidates, and items released from this person alone."""
    released = MemoryAtom.objects.filter(release__in=Release.objects.only_from(user))
    return MemoryAtom.objects.in_shards_from(user) | released


def _forget_in_shard(shard: MemoryStream, theirs: MemoryAtomQuerySet) -> None:
    first = theirs.aggregate(first=Min("consolidated_at"))["first"]
    is_shared = theirs.filter(is_candidate=False).exists()
    if first:
        if written := shard.atoms.written_since(first).order_by("pk").first():
            # An editor may have copied the person's words from the text into these lines.
            shard.atoms.filter(position__isnull=False, engine="", pk__gt=written.pk).delete()
        undo_since(shard, first, Cause(REQUESTED_BY))
    theirs.delete()
    if first and shard.consolidation_prompt and shard.atoms.waiting().exists():
        Job.objects.request(Consolidate.name, stream=shard, requested_by=REQUESTED_BY, force=True)
    if is_shared:
        if Vocabulary.objects.filter(stream=shard).exists():
            count(CountInput(None, user=None, stream=shard.pk))
        shard.refresh()
