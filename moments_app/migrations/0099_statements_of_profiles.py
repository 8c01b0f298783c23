"""Make lines and phrases of profiles statements, where no statement says the same, and derive the profiles from them.

Each person is a transaction of its own and can run again.
"""

import json
from dataclasses import asdict
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import connection, migrations, models, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from moments_app.models.stream import USER_DEFAULTS
from moments_app.streams.former_profile import FormerLine, FormerProfile, said_in, statements_of
from moments_app.streams.profile import READ, Said, derived
from sessions_app import lexemes

AT_ONCE = 500
EXCLUSIVE = ("home", "work", "name", "age", "relationship")  # attributes with one value at a time
HOLDING = ("active", "absorbed")
GONE = ("moments_app.profileline", "moments_app.profilephrase", "sessions_app.profileversion")
FIELDS = ("summary", "interests", "preferred_topics")


def write(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Go over all people."""
    people = apps.get_model("sessions_app", "UserProfile").objects.order_by("pk").values_list("pk", flat=True)
    after = 0
    while batch := list(people.filter(pk__gt=after)[:AT_ONCE]):
        for pk in batch:
            with transaction.atomic():
                _write(apps, pk)
        after = batch[-1]
    jobs = apps.get_model("moments_app", "Job").objects.filter(process="rebuild_profile")
    jobs.filter(status__in=["queued", "processing"]).update(status="skipped", finished_at=timezone.now())


def _write(apps: StateApps, pk: int) -> None:
    user = apps.get_model("sessions_app", "UserProfile").objects.select_for_update(no_key=True).filter(pk=pk).first()
    if user is None:
        return
    _keep_retracted(apps, user)
    atoms = apps.get_model("moments_app", "MemoryAtom").objects.filter(user=user, is_candidate=False)
    if _is_derived(atoms, user):
        return
    former = _former(apps, user)
    there = atoms.filter(content_hash__in=said_in(former))
    known, holding = (
        set(rows.values_list("content_hash", flat=True)) for rows in (there, there.filter(state__in=HOLDING))
    )
    new = statements_of(former, known, holding)
    if new:
        stream, sessions = _stream(apps, user), _sessions(apps, new)
        rows = [
            atoms.model(
                stream=stream,
                user=user,
                source_session_id=next(
                    (sessions[pk] for pk in reversed(columns["source_message_ids"]) if pk in sessions), None
                ),
                **columns | _end(atoms, columns),
            )
            for columns in new
        ]
        for row in rows:
            row.__dict__["search_vector"] = lexemes.vector(row.content)  # the model of that time can't compute it
        atoms.bulk_create(rows, ignore_conflicts=True)
    user.summary, user.interests, user.preferred_topics = _derived(atoms)
    user.save(update_fields=FIELDS)


def _derived(atoms: Any) -> Any:
    said = atoms.filter(state__in=HOLDING, about_kind="user").order_by("-is_pinned", "-worth", "-formed_at", "-id")
    return derived([Said(*row) for row in said.values_list(*Said._fields)[:READ]], timezone.get_default_timezone())


def _is_derived(atoms: Any, user: Any) -> bool:
    return _derived(atoms) == tuple(getattr(user, name) for name in FIELDS)


def _former(apps: StateApps, user: Any) -> FormerProfile:
    lines = apps.get_model("moments_app", "ProfileLine").objects.filter(user=user).order_by("position", "pk")
    phrases = apps.get_model("moments_app", "ProfilePhrase").objects.filter(user=user).order_by("pk")
    return FormerProfile(
        user.summary,
        [
            FormerLine(
                line.text,
                line.heading,
                line.source_message_ids,
                line.actor,
                line.is_pinned,
                line.engine,
                line.created_at,
                line.ended_at,
                line.ended_by,
            )
            for line in lines
        ],
        user.interests,
        user.preferred_topics,
        {(one.kind, one.text.casefold()): one.source_message_ids for one in phrases},
        user.updated_at,
    )


def _stream(apps: StateApps, user: Any) -> Any:
    own = apps.get_model("moments_app", "MemoryStream").objects.filter(user=user, stream_type="user")
    found = own.filter(agent_id="default").first() or own.order_by("pk").first()
    return found or own.create(user=user, stream_type="user", agent_id="default", **asdict(USER_DEFAULTS))


def _sessions(apps: StateApps, new: list[dict[str, Any]]) -> dict[int, int]:
    sources = {pk for columns in new for pk in columns["source_message_ids"]}
    turns = apps.get_model("sessions_app", "Message").objects.filter(pk__in=sources)
    return dict(turns.values_list("pk", "session_id"))


def _end(atoms: Any, columns: dict[str, Any]) -> dict[str, Any]:
    """Return how a statement ended: as a fact with its value did, or by a fact with a later value."""
    if columns["state"] != "active" or columns["is_pinned"] or columns["attribute"] not in EXCLUSIVE:
        return {}
    told = atoms.filter(attribute=columns["attribute"], subject=columns["subject"], is_wrong=False)
    same = told.filter(value__iexact=columns["value"])
    if same.filter(state__in=HOLDING).exists():
        return {}
    if ended := same.filter(state="ended").order_by("-ended_at").first():
        until, at, by, actor = ended.valid_until, ended.ended_at, ended.replaced_by_id, ended.ended_by
    elif later := told.filter(state__in=HOLDING, formed_at__gte=columns["formed_at"]).order_by("formed_at").first():
        until, at, by, actor = later.valid_from or later.formed_at, later.formed_at, later.pk, ""
    else:
        return {}
    return {"state": "ended", "valid_until": until, "ended_at": at, "replaced_by_id": by, "ended_by": actor}


# --- what retractions keep ---


def _keep_retracted(apps: StateApps, user: Any) -> None:
    """Make lines that a retraction keeps statements that it keeps: undoing it restores them."""
    items = apps.get_model("moments_app", "RetractedItem").objects.filter(user=user)
    lines = items.filter(model=GONE[0], is_rewritten=False)
    if lines.exists():
        stream = _stream(apps, user)
        for item in lines:
            _replace(apps, item, user, stream)
    items.filter(model__in=GONE).delete()


def _replace(apps: StateApps, item: Any, user: Any, stream: Any) -> None:
    atom = apps.get_model("moments_app", "MemoryAtom")
    there = apps.get_model("moments_app", "RetractedItem").objects.filter(retraction=item.retraction_id)
    texts = {name: item.data[name] for name in ("text", "heading", "actor", "is_pinned", "engine", "ended_by")}
    times = {name: item.data[name] and parse_datetime(item.data[name]) for name in ("created_at", "ended_at")}
    kept_sources = item.data["source_message_ids"]  # an array is kept as JSON text
    sources = [int(pk) for pk in (json.loads(kept_sources) if isinstance(kept_sources, str) else kept_sources)]
    line = FormerLine(sources=sources, **texts, **times)
    for columns in statements_of(FormerProfile("", [line], [], [], {}, line.created_at), ()):
        kept = there.filter(model="moments_app.memoryatom", data__content_hash=columns["content_hash"])
        if kept.exists() or atom.objects.filter(user=user, content_hash=columns["content_hash"]).exists():
            continue
        with connection.cursor() as cursor:
            cursor.execute("SELECT nextval(pg_get_serial_sequence('moments_app_memoryatom', 'id'))")
            [pk] = cursor.fetchone()
        row = atom(pk=pk, stream=stream, user=user, created_at=line.created_at, **columns)
        fields = [field for field in atom._meta.concrete_fields if field.name not in ("id", "search_vector")]
        data = {field.name: getattr(row, field.attname) for field in fields}
        there.create(
            retraction_id=item.retraction_id, user=user, model="moments_app.memoryatom", object_pk=pk, data=data
        )


class Migration(migrations.Migration):
    atomic = False  # so that no row is held for longer than a moment

    dependencies = [("moments_app", "0098_help_texts"), ("sessions_app", "0051_help_texts")]

    operations = [
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                condition=models.Q(about_kind="user", is_candidate=False, state__in=["active", "absorbed"]),
                fields=["user", "-is_pinned", "-worth", "-formed_at", "-id"],
                name="atom_in_profile",
            ),
        ),
        migrations.RunPython(write, migrations.RunPython.noop, elidable=True),
    ]
