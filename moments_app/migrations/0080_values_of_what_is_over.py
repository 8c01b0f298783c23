from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from moments_app.engines.statements import statement_of

AT_ONCE = 1_000


def take_out(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Take the value out of facts that say that something is over, as newer ones have none."""
    atoms = apps.get_model("moments_app", "MemoryAtom").objects
    valued = atoms.exclude(attribute="").exclude(value="").order_by("pk").values_list("pk", "content")
    after = 0
    while batch := list(valued.filter(pk__gt=after)[:AT_ONCE]):
        over = [pk for pk, content in batch if (said := statement_of(content)) and said.is_over]
        atoms.filter(pk__in=over).update(value="")
        after = batch[-1][0]


class Migration(migrations.Migration):
    """Give facts from before that say that something is over no value either."""

    atomic = False  # batch by batch, so that no row is held for longer than a moment

    dependencies = [("moments_app", "0079_workers_of_jobs")]

    operations = [migrations.RunPython(take_out, migrations.RunPython.noop, elidable=True)]
