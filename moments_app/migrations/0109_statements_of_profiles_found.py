"""Ask for the vectors and word counts of statements that an upgrade made of profiles; workers do the work.

Each batch of people can run again.
"""

from django.conf import settings
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.db.models import Exists, OuterRef

AT_ONCE = 1_000
MODELS = ("Job", "MemoryAtom", "FactEmbedding", "Vocabulary")


def ask(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Go over all people."""
    job, atom, embedding, vocabulary = (apps.get_model("moments_app", name) for name in MODELS)
    people = apps.get_model("sessions_app", "UserProfile").objects.order_by("pk").values_list("pk", flat=True)
    counted = vocabulary.objects.filter(user=OuterRef("user"), counted_at__gte=OuterRef("created_at"))
    embedded = embedding.objects.filter(source=OuterRef("pk"))
    missing = {"count_words": counted} | ({"embed": embedded} if settings.EMBEDDING.is_on else {})
    after = 0
    while batch := list(people.filter(pk__gt=after)[:AT_ONCE]):
        # No job made these statements, unlike those of engines.
        own = atom.objects.filter(user__in=batch, job=None, is_candidate=False).exclude(state="evicted")
        for process, made in missing.items():
            wanted = own.exclude(Exists(made)).order_by("user").values_list("user", flat=True).distinct()
            jobs = [job(process=process, user_id=user, requested_by="migrate") for user in wanted]
            job.objects.bulk_create(jobs, ignore_conflicts=True)
        after = batch[-1]


class Migration(migrations.Migration):
    atomic = False  # so that no job waits for the last

    dependencies = [("moments_app", "0108_hashes_of_marked_words")]

    operations = [migrations.RunPython(ask, migrations.RunPython.noop, elidable=True)]
