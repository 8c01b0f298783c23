"""Give existing statements their kind, and make those current again that a full buffer had evicted.

What an operator evicted stays out, and so does what was withdrawn with a release or formed again. A fact with an
attribute is over if a later one has another value. Each batch is a transaction of its own and can run again.
"""

from collections import defaultdict
from typing import Any

from django.db import connection, migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from moments_app.engines.statements import kind_of

AT_ONCE = 1_000
ABOUT = {"user": "user", "agent": "agent", "session": "session"}
BY_BUFFER = """
    SELECT atom.id, later.id, later.formed_at FROM moments_app_memoryatom atom
    LEFT JOIN moments_app_job job ON job.id = atom.job_id
    LEFT JOIN LATERAL (
        SELECT other.id, other.formed_at FROM moments_app_memoryatom other
        WHERE other.user_id = atom.user_id AND other.attribute = atom.attribute AND other.subject = atom.subject
            AND other.attribute IN ('home', 'work', 'name', 'age', 'relationship')
            AND (other.formed_at, other.id) > (atom.formed_at, atom.id) AND other.value <> atom.value
            AND other.state IN ('active', 'absorbed') AND NOT other.is_candidate
        ORDER BY other.formed_at, other.id LIMIT 1
    ) later ON NOT atom.is_candidate
    WHERE atom.id = ANY(%(atoms)s) AND atom.state = 'evicted' AND atom.atom_type = 'fact' AND NOT atom.is_pinned
        AND NOT atom.is_wrong
        AND NOT EXISTS (SELECT FROM moments_app_release WHERE atom_id = atom.id)
        AND NOT EXISTS (
            SELECT FROM django_admin_log entry JOIN django_content_type type ON type.id = entry.content_type_id
            WHERE type.model = 'memoryatom' AND entry.object_id = atom.id::text
                AND entry.change_message LIKE '%%Evicted.%%'
        )
        AND NOT EXISTS (
            SELECT FROM moments_app_job again
            WHERE again.process = job.process AND again.session_id = job.session_id AND again.id > job.id
                AND again.params->'again' @> jsonb_build_array(
                    jsonb_build_array(job.result->'first_sequence', job.result->'last_sequence')
                )
        )
        AND NOT EXISTS (
            SELECT FROM moments_app_memoryatom same
            WHERE same.stream_id = atom.stream_id AND same.user_id IS NOT DISTINCT FROM atom.user_id
                AND same.content_hash = atom.content_hash AND same.id <> atom.id
                AND (same.state <> 'evicted' OR same.id > atom.id)
        )
"""  # of several with the same words the last comes back


def describe(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Go over all statements, a batch at a time."""
    atoms = apps.get_model("moments_app", "MemoryAtom").objects
    columns = ("pk", "content", "stream__stream_type", "stream__name", "source_message_ids")
    rows = atoms.order_by("pk").values_list(*columns)
    after = 0
    while batch := list(rows.filter(pk__gt=after)[:AT_ONCE]):
        _write_kinds(atoms, batch)
        _write_speakers(apps, batch)
        _bring_back(atoms, [row[0] for row in batch])
        after = batch[-1][0]


def _write_kinds(atoms: Any, batch: list[Any]) -> None:
    kinds: dict[tuple[str, str], list[int]] = defaultdict(list)
    for pk, content, stream_type, name, _ in batch:
        kind = "lesson" if name == "lessons" else kind_of(content)
        kinds[kind, ABOUT[stream_type]].append(pk)
    for (kind, about), pks in kinds.items():
        atoms.filter(pk__in=pks).update(kind=kind, about_kind=about)


def _write_speakers(apps: StateApps, batch: list[Any]) -> None:
    last = {pk: sources[-1] for pk, *_, sources in batch if sources}
    turns = apps.get_model("sessions_app", "Message").objects.filter(pk__in=last.values())
    said_by = {pk: name or role for pk, name, role in turns.values_list("pk", "name", "role")}
    speakers: dict[str, list[int]] = defaultdict(list)
    for pk, source in last.items():
        if source in said_by:
            speakers[said_by[source]].append(pk)
    for speaker, pks in speakers.items():
        apps.get_model("moments_app", "MemoryAtom").objects.filter(pk__in=pks).update(speaker=speaker)


def _bring_back(atoms: Any, pks: list[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(BY_BUFFER, {"atoms": pks})
        found = list(cursor)
    atoms.filter(pk__in=[pk for pk, later, _ in found if later is None]).update(state="active")
    for pk, later, time in (row for row in found if row[1] is not None):
        atoms.filter(pk=pk).update(state="ended", valid_until=time, ended_at=time, replaced_by=later)


class Migration(migrations.Migration):
    atomic = False  # so that no row is held for longer than a moment

    dependencies = [
        ("moments_app", "0089_kinds_of_statements"),
        ("admin", "0001_initial"),
        ("contenttypes", "0001_initial"),
    ]

    operations = [migrations.RunPython(describe, migrations.RunPython.noop, elidable=True)]
