"""Hash again the texts that have words with marks: C, C++ and C# were one word.

Each batch is a transaction of its own and can run again. Where the new version wrote the same text meanwhile, the old
row keeps its hash.
"""

import hashlib
import re
from contextlib import suppress
from typing import Any

from django.db import IntegrityError, migrations, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

AT_ONCE = 500
MARKED = "[[:alnum:]_][-+#−]"  # in the database, which doesn't know all that Python does
WORD = re.compile(r"\w+(?:[+#]+|-(?:(?<=\b\w-)|(?<=\b\w\w-))(?![\w-]))?")


def hash_again(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Go over all such statements, and those that retractions keep."""
    atoms = apps.get_model("moments_app", "MemoryAtom").objects.filter(content__regex=MARKED).order_by("pk")
    after = 0
    while batch := list(atoms.filter(pk__gt=after).values_list("pk", "content", "content_hash")[:AT_ONCE]):
        for pk, content, was in batch:
            if (digest := _hash(content)) != was:
                _set(atoms.filter(pk=pk), digest)
        after = batch[-1][0]
    items = apps.get_model("moments_app", "RetractedItem").objects.filter(model="moments_app.memoryatom")
    for item in items.filter(data__content__regex=MARKED):
        item.data["content_hash"] = _hash(item.data["content"])
        item.save(update_fields=["data"])


def _set(atom: Any, digest: str) -> None:
    with suppress(IntegrityError), transaction.atomic():
        atom.update(content_hash=digest)


def _hash(text: str) -> str:
    words = WORD.findall(text.casefold().replace("−", "-"))
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


class Migration(migrations.Migration):
    atomic = False  # so that no row is held for longer than a moment

    dependencies = [("moments_app", "0107_help_texts")]

    operations = [migrations.RunPython(hash_again, migrations.RunPython.noop, elidable=True)]
