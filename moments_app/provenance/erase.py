"""What of a person's erasure only memory knows: what agents learned from them, their words, and entries of the queue.

An agent's shard is shared by all its users. What it has from this person goes; where a text was made of that, the text
goes back to what it was before, and what others said since is consolidated again.
"""

from functools import partial
from typing import Any

from django.core.cache import cache
from django.db import connection, transaction
from django.db.models import Min, Q
from django.utils import timezone
from django_q.models import OrmQ, Task

from moments_app.context.assemble import cache_key
from moments_app.models import EngineCall, Job, MemoryAtom, MemoryStream, Vocabulary, Word
from moments_app.models.job import RUN_TASK
from moments_app.recall.count_words import CountInput, count
from moments_app.streams.consolidate import Consolidate
from moments_app.streams.texts import go_back_before
from sessions_app.models import Session, UserProfile

REQUESTED_BY = "erase_user"


def forget(user: UserProfile) -> dict[str, int]:
    """Removes what does not itself refer to the profile, within the transaction of the erasure.

    Returns:
        How many rows went, by what they are.
    """
    kept = [cache_key(pk) for pk in Session.objects.for_user(user).values_list("pk", flat=True)]
    transaction.on_commit(partial(cache.delete_many, kept))
    # What calls cost stays on record, but not for what.
    EngineCall.objects.filter(job__user=user).update(job=None, error="")
    return {
        "facts and observations of shards": _forget_in_shards(user),
        "words": Word.objects.filter(vocabulary__user=user)._raw_delete(connection.alias),
        "queue entries": _forget_in_queue(user),
    }


# --- shards ---


def _forget_in_shards(user: UserProfile) -> int:
    concerned = MemoryAtom.objects.in_shards_from(user).values("stream")
    shards = MemoryStream.objects.filter(pk__in=concerned).order_by("pk").select_for_update(no_key=True)
    return sum(_forget_in_shard(shard, user) for shard in shards)


def _forget_in_shard(shard: MemoryStream, user: UserProfile) -> int:
    theirs = shard.atoms.in_shards_from(user)
    # An undone text no longer names what it was made of; any since the person's first item may be of it.
    since = theirs.aggregate(first=Min("created_at"))["first"]
    shard.versions.filter(undone_at__isnull=False, created_at__gte=since).delete()
    given = Q(absorbed__in=theirs) | Q(shown__in=theirs)
    first_text = shard.versions.filter(given).order_by("pk").first()
    removed = theirs.count()
    theirs.delete()
    if first_text:
        go_back_before(first_text)
        if shard.consolidation_prompt and shard.atoms.waiting().exists():
            Job.objects.request(Consolidate.name, stream=shard, requested_by=REQUESTED_BY, force=True)
    if Vocabulary.objects.filter(stream=shard).exists():
        count(CountInput(None, user=None, stream=shard.pk))
    MemoryStream.objects.filter(pk=shard.pk).update(last_updated_at=timezone.now())
    return removed


# --- the queue ---


def _forget_in_queue(user: UserProfile) -> int:
    """Removes what waits, and what failed, of the person's jobs; neither table is ever long."""
    waiting = {entry.pk: entry.task for entry in OrmQ.objects.iterator()}
    failed = {task["pk"]: task for task in Task.objects.values("pk", "func", "args").iterator()}
    return sum(
        model.objects.filter(pk__in=_about(user, tasks)).delete()[0]
        for model, tasks in ((OrmQ, waiting), (Task, failed))
    )


def _about(user: UserProfile, tasks: dict[Any, dict[str, Any]]) -> list[Any]:
    """The keys of those tasks that would run one of the person's jobs."""
    job_ids = {pk: task["args"][0] for pk, task in tasks.items() if task.get("func") == RUN_TASK}
    theirs = Job.objects.for_user(user).filter(job_id__in=job_ids.values()).values_list("job_id", flat=True)
    named = {str(job_id) for job_id in theirs}
    return [pk for pk, job_id in job_ids.items() if job_id in named]
