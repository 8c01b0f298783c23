import re
from itertools import islice
from typing import Any

from django.db import migrations
from django.db.models import Q

# What was served before its lines were kept is known by what stands around it, and only where that is whole.
SERVED = re.compile(
    r"<MemoryContext>.*?<Policy>.*?</MemoryContext>|\[TOOL RESULT: session_partition\]\n.*?\[/TOOL RESULT\]", re.DOTALL
)
BATCH = 500


def note_what_was_served_before(apps: Any, schema_editor: Any) -> None:
    """Reads the transcript once and holds no lock over it."""
    message, own_text = apps.get_model("sessions_app", "Message"), apps.get_model("moments_app", "OwnText")
    fenced = Q(content__contains="</MemoryContext>") | Q(content__contains="[TOOL RESULT: session_partition]")
    turns = message.objects.filter(fenced, kind="turn").exclude(role="system")
    rows = turns.values_list("session_id", "user_id", "sequence", "content").iterator(BATCH)
    while some := list(islice(rows, BATCH)):
        own = [
            own_text(session_id=session, user_id=user, sequence=sequence, places=places_in(content))
            for session, user, sequence, content in some
            if SERVED.search(content)
        ]
        own_text.objects.bulk_create(own, ignore_conflicts=True)


def places_in(content: str) -> list[int] | None:
    """The places of its lines that were served; None for a text that has nothing else."""
    if content.lstrip()[:1] in ("{", "[") or not SERVED.sub("", content).strip():
        return None
    places, start = [], 0
    spans = [match.span() for match in SERVED.finditer(content)]
    for place, line in enumerate(content.splitlines(keepends=True)):
        end = start + len(line.rstrip())
        places += [place] if any(first < end and start < last for first, last in spans) else []
        start += len(line)
    return places


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("moments_app", "0029_own_text"),
    ]

    operations = [migrations.RunPython(note_what_was_served_before, migrations.RunPython.noop)]
