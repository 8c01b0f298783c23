"""A person's export, and the way back."""

import zipfile
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from moments_app.models import MemoryStream
from sessions_app.models import UserProfile
from sessions_app.processes.erase import erase_user
from sessions_app.processes.export import export_user
from tests.support.api import Api
from tests.support.jobs import build, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.streams import fold, form, shard
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


def exported(user_id: str) -> dict[str, str]:
    """The files of a person's export; the time it was made is left out."""
    file = BytesIO()
    export_user(user_id, file)
    with zipfile.ZipFile(file) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
    found.pop("manifest.json")
    return found


def live(user: UserProfile, service: Api) -> None:
    """Everything that can be of a person, through the real processes."""
    name = user.user_id
    session = talk(user, 40, text=f"{name} fires the kiln at noon.")
    talk(user, 3, session_id="s2", text=f"{name} likes tea.")
    work_off()
    build(session, lag=4)
    form(session)
    fold(MemoryStream.objects.get(user=user, stream_type="user"))
    talk(user, 2, text=f"{name} says more.")
    work_off()
    service.patch(f"users/{name}", summary=f"{name} has a kiln.", interests=[name], metadata={"of": name})
    first = service.post("entities", user_id=name, kind="task", title=f"{name} task", session_id="s1").json()
    second = service.post("entities", user_id=name, kind="goal", title=f"{name} goal").json()
    service.post(f"entities/{first['entity_id']}/links", user_id=name, to=second["entity_id"], relation="blocks")


@pytest.fixture
def lived(rolling: None, model_server: OpenAIServer, service: Api, ada: UserProfile, bo: UserProfile) -> None:
    """Ada and Bo, with like data and a shard in common."""
    shard("kilns")
    for person in (ada, bo):
        live(person, service)


def test_row_9_an_export_has_nothing_of_anothers(lived: None) -> None:
    for person, other in (("ada", "bo"), ("bo", "ada")):
        files = exported(person)
        assert len(files) > 12
        for name, text in files.items():
            assert f"{other} " not in text and f'"{other}"' not in text, name
            assert text or name == "events.jsonl", name


# --- the way back ---


def written(user_id: str, path: Path) -> Path:
    call_command("export_user", user_id, str(path), stdout=StringIO())
    return path


def imported(path: Path, *options: str) -> str:
    out = StringIO()
    call_command("import_user", str(path), *options, stdout=out)
    return out.getvalue()


# Those that tell of the installation they were made in.
LOCAL = {"events.jsonl", "jobs.jsonl", "context_receipts.jsonl", "shard_atoms.jsonl"}


def restorable(files: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if name not in LOCAL}


def test_what_is_exported_erased_and_imported_is_exported_again_to_the_byte(lived: None, tmp_path: Path) -> None:
    before, of_bo = exported("ada"), exported("bo")
    path = written("ada", tmp_path / "ada.zip")
    erase_user("ada", actor="test")
    imported(path)
    assert restorable(exported("ada")) == restorable(before)
    assert exported("bo") == of_bo
    work_off()


def test_an_import_can_be_repeated(lived: None, tmp_path: Path) -> None:
    path = written("ada", tmp_path / "ada.zip")
    erase_user("ada", actor="test")
    imported(path)
    after = exported("ada")
    assert "0 rows added" in imported(path)
    assert exported("ada") == after


def test_an_import_under_another_name_leaves_the_first_alone(lived: None, tmp_path: Path) -> None:
    path = written("ada", tmp_path / "ada.zip")
    before = exported("ada")
    for _ in range(2):
        imported(path, "--as", "eve")
    assert exported("ada") == before
    eve = exported("eve")
    for name in ("messages.jsonl", "moments.jsonl", "summaries.jsonl", "profile_versions.jsonl"):
        assert eve[name] == before[name]
    assert eve["atoms.jsonl"].count("\n") == before["atoms.jsonl"].count("\n")
