"""Row 11: an erased person leaves no trace, and whatever is somebody else's stays."""

from pathlib import Path

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import connection
from django.utils import timezone
from django_q.models import OrmQ, Task
from pytest_django.fixtures import Settings

from moments_app.models import EngineCall, Job, MemoryAtom, MemoryStream, Moment
from moments_app.models.job import RUN_TASK
from moments_app.recall import accesses, receipts
from sessions_app.models import ApiKey, Archive, Event, Session, UserProfile
from sessions_app.processes.erase import erase_user
from tests.support.api import Api
from tests.support.jobs import build, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.streams import fold, form, shard
from tests.support.transcript import START

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "archive_folder")]


@pytest.fixture
def archive_folder(settings: Settings, tmp_path: Path) -> Path:
    """Where archives lie during a test."""
    kept = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": tmp_path}}
    settings.STORAGES = settings.STORAGES | {"archive": kept}
    return tmp_path


def dumped() -> dict[str, list[str]]:
    """Every row of every table as text, the queue's and its results unpacked."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        for (table,) in cursor.fetchall():
            cursor.execute(f'SELECT row_table::text FROM "{table}" row_table ORDER BY 1')
            found[table] = [row for (row,) in cursor.fetchall()]
    found["queue"] = [str(entry.task) for entry in OrmQ.objects.all()]
    found["results"] = [f"{task.args} {task.kwargs} {task.result}" for task in Task.objects.all()]
    return found


def rows_of(user: UserProfile) -> dict[str, list[str]]:
    """Every row that carries a person's key, as text."""
    named = """
        SELECT table_name, column_name FROM information_schema.columns
        WHERE column_name ~ '^user_(id|pk)$' AND data_type = 'bigint' AND table_name ~ '^(sessions|moments)_app'
        UNION ALL VALUES ('sessions_app_userprofile', 'id')
    """
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(named)
        for table, column in cursor.fetchall():
            cursor.execute(f"SELECT t::text FROM {table} t WHERE {column} = %s ORDER BY 1", [user.pk])
            found[table] = [row for (row,) in cursor.fetchall()]
    return found


def traces(marker: str, folder: Path) -> list[str]:
    """Where the marker is found: tables, the queue, files, the cache, what waits to be written."""
    places = [table for table, rows in dumped().items() if any(marker in row.lower() for row in rows)]
    files = [path for path in folder.rglob("*") if path.is_file()]
    places += [str(path) for path in files if marker.encode() in path.read_bytes().lower()]
    kept = getattr(cache, "_cache", {})
    places += [f"cache {key}" for key, value in kept.items() if marker.encode() in value.lower()]
    return places


def plant(marker: str, service: Api, folder: Path) -> UserProfile:
    """A person with the marker in every field that takes a text, through the real interfaces where there is one."""
    name = f"user-{marker}"
    session = f"session-{marker}"
    text = {"metadata": {marker: [marker]}}
    service.post("sessions", user_id=name, session_id=session, source=marker[:60], title=marker, **text)
    said = [
        {"role": "assistant" if n % 2 else "user", "content": f"Kiln number {n} of {marker} is hot.", **text}
        | {"payload": {marker: marker}, "external_id": f"{marker}-{n}", "tool_name": marker}
        for n in range(40)
    ]
    assert service.post(f"sessions/{session}/messages", user_id=name, messages=said).status_code == 201
    for summary in (marker, f"Knows {marker}."):
        service.patch(f"users/{name}", summary=summary, interests=[marker], preferred_topics=[marker], **text)
    user, row = UserProfile.objects.get(user_id=name), Session.objects.get(session_id=session)
    work_off()
    build(row, lag=4)
    form(row)
    service.post("entities", user_id=name, kind="task", title=f"Task {marker}", body=marker, session_id=session)
    made = [service.post("entities", user_id=name, kind="goal", title=f"{marker} {n}").json() for n in range(2)]
    service.post(f"entities/{made[0]['entity_id']}/links", user_id=name, to=made[1]["entity_id"], relation="blocks")
    fold(MemoryStream.objects.get(user=user, stream_type="user"))
    again = [*said[:1], {"role": "user", "content": marker}]
    service.post(f"sessions/{session}/messages", user_id=name, messages=again)
    work_off()
    asked = {"user_id": name, "session_id": session, "query": f"kiln {marker}"}
    assert marker in service.get("memory/context", **asked).content.decode()
    receipts.waiting.flush()
    accesses.waiting.flush()
    service.get("memory/context", **asked)  # and a receipt that waits to be written
    _key, text_of_key = ApiKey.objects.issue(marker, user=user, scope="admin")
    Api(text_of_key).patch(f"users/{name}", summary=f"Still {marker}.")
    plant_by_hand(marker, user, row, folder)
    return user


def plant_by_hand(marker: str, user: UserProfile, session: Session, folder: Path) -> None:
    """What comes from accidents, other hosts, or other parts of the product."""
    [login] = User.objects.all()
    for row in (user, session, MemoryAtom.objects.filter(user=user)[0], Moment.objects.filter(user=user)[0]):
        LogEntry.objects.log_actions(login.pk, [row], CHANGE, change_message=f"Changed {marker}.")
    Job.objects.filter(user=user).update(error=marker, params={marker: marker}, result={marker: marker})
    job = Job.objects.filter(user=user).first()
    assert job is not None
    EngineCall.objects.filter(job=job).update(error=marker)
    job.enqueue()
    now = timezone.now()
    failed = {"func": RUN_TASK, "args": (str(job.job_id),), "result": marker, "started": now, "stopped": now}
    Task.objects.create(id=marker[:32], name=marker, success=False, **failed)
    Event.objects.filter(user_pk=user.pk).update(payload={marker: marker})
    for name in ("kept.gz", "unreferenced.gz"):
        storages["archive"].save(f"{user.pk}/{session.pk}/{name}", ContentFile(marker.encode()))
    counts = {"first_sequence": 0, "last_sequence": 1, "turn_count": 2, "byte_count": 3}
    Archive.objects.create(
        session=session, user=user, month=START.date(), name=f"{user.pk}/{session.pk}/kept.gz", sha256=marker, **counts
    )


def test_row_11_an_erased_person_leaves_no_trace(
    rolling: None,
    settings: Settings,
    service: Api,
    model_server: OpenAIServer,
    embeddings_server: OpenAIServer,
    archive_folder: Path,
) -> None:
    settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"receipt_days": 30})
    settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"turns": True})
    shard("kilns", extracts_facts=True)
    operator()
    bo = plant("zqbo", service, archive_folder)
    receipts.waiting.flush()
    before = rows_of(bo)
    ada = plant("zqada", service, archive_folder)
    assert len(traces("zqada", archive_folder)) >= 23
    erased = erase_user(ada.user_id, actor="operator:root")
    receipts.waiting.flush()
    accesses.waiting.flush()
    assert traces("zqada", archive_folder) == []
    assert rows_of(bo) == before
    assert traces("zqbo", archive_folder)
    assert not erased.has_files_left
