"""A layer, a kind of memory, and a field of a moment can be added from outside with few edits."""

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.apps import AppConfig, apps
from django.contrib import admin
from django.db import connection
from django.db.models import Model
from django.urls import include, path
from django.utils.module_loading import autodiscover_modules
from django_q.models import Schedule
from pytest_django.fixtures import Settings

from memoryproject import admin_menu, urls
from memoryproject.conf import BASE_DIR
from memoryproject.logins import register_groups
from memoryproject.schedules import register_schedules, run_schedule
from moments_app.context import receipts
from moments_app.context.input import ContextInput, Item
from moments_app.context.layers import LAYERS, Layer, add_layer
from moments_app.jobs import process as jobs_process
from moments_app.models import ContextReceipt, Job
from moments_app.provenance.repeated import check_retraction
from moments_app.provenance.retract import preview, retract
from moments_app.provenance.undo import undo_retraction
from sessions_app.admin.links import page_url
from sessions_app.api import fields
from sessions_app.database.database_roles import grant_privileges
from sessions_app.limited_operators import let_operators, of_person
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people import erase, provenance
from sessions_app.people.erase import erase_user
from sessions_app.people.export import export_user
from sessions_app.people.import_user import import_user
from sessions_app.row_security import protect
from sessions_app.transcript.append import NewMessage, append
from tests.support import contract
from tests.support.api import Api
from tests.support.jobs import work_off
from tests.support.migrated import migrated
from tests.support.operator import operator
from tests.support.other_database import another_database
from tests.support.pages import change_url, list_url, page
from tests.support.processes import database_url, environment
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

APP = "tests.support.promises_app"


def _forget_choices() -> None:
    """Build the input serializers and the schema again."""
    fields._validator.cache_clear()
    contract._description.cache_clear()


@pytest.fixture
def own_layers() -> Iterator[None]:
    """Remove the layers that a test adds."""
    before = dict(LAYERS)
    _forget_choices()
    yield
    LAYERS.clear()
    LAYERS.update(before)
    _forget_choices()


def context(api: Api, **query: Any) -> Any:
    answer = api.get("memory/context", user_id="ada", session_id="s1", **query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def layer(found: Any, name: str) -> list[str]:
    return [item["text"] for one in found["layers"] if one["name"] == name for item in one["items"]]


@pytest.mark.usefixtures("own_layers")
class TestALayer:
    """One edit adds a layer: its module, which calls `add_layer`."""

    @pytest.fixture
    def session(self, ada: UserProfile) -> Session:
        def items(source: ContextInput) -> list[Item]:
            return [Item(f"It rains where {source.user.user_id} lives.")]

        add_layer(Layer("weather", items, place=25, tag="Weather", title="The weather", ceiling=0.10))
        return talk(ada, 2)

    @pytest.mark.slow
    def test_it_is_in_contexts_of_every_format(self, session: Session, service: Api) -> None:
        names = [one["name"] for one in context(service)["layers"]]
        assert names[names.index("user") : names.index("moments") + 1] == ["user", "weather", "moments"]
        said = "It rains where ada lives."
        assert layer(context(service), "weather") == [said]
        assert f"<Weather>\n- {said}\n</Weather>" in context(service, format="xml")["context"]
        assert f"## The weather\n- {said}" in context(service, format="markdown")["context"]
        assert said in str(context(service, format="messages")["context"])
        assert layer(context(service, layers="weather"), "weather") == [said]
        assert layer(context(service, layers="user"), "weather") == []

    def test_it_is_limited_to_its_share_of_the_budget(self, session: Session, service: Api) -> None:
        def items(source: ContextInput) -> list[Item]:
            return [Item(f"It rained on day {day}.") for day in range(500)]

        add_layer(Layer("climate", items, place=26, tag="Climate", title="The climate", ceiling=0.10))
        found = context(service, max_tokens=1_000, plan="stable")
        [taken] = [one for one in found["layers"] if one["name"] == "climate"]
        assert 0 < taken["tokens"] <= 100
        assert any(part["layer"] == "climate" for part in found["trimmed"])

    @pytest.mark.slow
    def test_operators_see_it(self, session: Session, service: Api, settings: Settings) -> None:
        settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"receipt_days": 1})
        root = operator()
        assert "It rains where ada lives." in page(root, page_url(Session, "context", session.pk))
        context(service)
        receipts.waiting.flush()
        assert "weather" in page(root, change_url(ContextReceipt.objects.get()))


# --- a kind of memory ---


@pytest.fixture
def promise(own_layers: None, transactional_db: None, settings: Settings) -> Iterator[Any]:
    """Install an app with a kind of memory that the product doesn't know, and create its table."""
    app = AppConfig.create(APP)
    sidebar: Any = admin_menu.NAVIGATION
    entries = [list(section["items"]) for section in sidebar]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs_process, "_registered", dict(jobs_process._registered))
        patch.setattr(provenance, "_DECLARED", dict(provenance._DECLARED))
        patch.setattr(admin_menu, "ENTRIES", dict(admin_menu.ENTRIES))
        patch.setitem(apps.app_configs, app.label, app)
        app.apps = apps
        app.import_models()
        apps.clear_cache()
        autodiscover_modules("declared", "processes", "layers", "admin")  # as the product does
        model = app.get_model("Promise")
        settings.ROOT_URLCONF = _site(importlib.import_module(f"{APP}.urls"))
        erase._owner_columns.cache_clear()
        with _table_of(model):
            yield model
        admin.site.unregister(model)
    for section, items in zip(sidebar, entries, strict=True):
        section["items"][:] = items
    erase._owner_columns.cache_clear()
    apps.all_models.pop(app.label)
    apps.clear_cache()
    for name in [name for name in sys.modules if name.startswith(f"{APP}.")]:
        del sys.modules[name]


def _site(own: ModuleType) -> ModuleType:
    """Return the site's URLs, with those of the app and of its list."""
    site = ModuleType("site_with_promises")
    patterns = [path("", include(own)), path("admin/", admin.site.urls), *urls.urlpatterns]
    site.__dict__.update(vars(urls), urlpatterns=patterns)
    return site


@contextmanager
def _table_of(model: type[Model]) -> Iterator[None]:
    """Create the table as its migration would."""
    table = model._meta.db_table
    with connection.schema_editor() as editor:
        editor.create_model(model)
        for operation in (protect(table), let_operators(table, of_person(table))):
            editor.execute(str(operation.sql))
    grant_privileges()
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(model)


SAID = [
    NewMessage("user", "Good morning. I promise to water the quince."),
    NewMessage("assistant", "Noted."),
    NewMessage("user", "I promise to call Nora."),
]
PROMISES = ["to water the quince.", "to call Nora."]


@pytest.mark.slow(seconds=30)
class TestAKindOfMemory:
    """Five edits add a kind of memory: its table, process, declaration, resource and list. A sixth adds its layer."""

    @pytest.fixture
    def session(self, promise: Any, ada: UserProfile, bo: UserProfile) -> Session:
        """A session of Ada with two promises, and one of Bo."""
        append(bo, "s1", [NewMessage("user", "I promise nothing to Ada.")])
        session = append(ada, "s1", SAID).session
        assert set(Job.objects.filter(process="note_promises").values_list("requested_by", flat=True)) == {"append"}
        work_off()
        session.refresh_from_db()
        return session

    def test_its_process_runs_as_a_job_and_on_a_schedule(
        self, promise: Any, session: Session, ada: UserProfile
    ) -> None:
        job = Job.objects.get(process="note_promises", session=session)
        assert (job.status, job.result) == ("completed", {"promises": 2})
        assert list(promise.objects.for_user(ada).order_by("pk").values_list("text", "job")) == [
            (text, job.pk) for text in PROMISES
        ]
        promise.objects.all().delete()
        register_schedules()
        assert Schedule.objects.get(name="note_promises").minutes == 30
        run_schedule("note_promises")
        work_off()
        assert promise.objects.count() == 3

    def test_it_is_in_rest_and_in_contexts_of_its_person_only(
        self, session: Session, service: Api, as_ada: Api, as_stranger: Api
    ) -> None:
        for api, query in ((service, {"user_id": "ada"}), (as_ada, {})):
            shown = api.get("promises", **query).json()
            assert [row["text"] for row in shown["promises"]] == PROMISES[::-1]
        assert as_stranger.get("promises").json()["total"] == 0
        assert layer(context(service), "promises") == PROMISES[::-1]
        assert "<Promises>" in context(service)["context"]

    def test_operators_see_its_list(self, promise: Any, session: Session) -> None:
        register_groups()
        root = operator()
        for client in (root, operator(group="viewers")):
            shown = page(client, list_url(promise))
            assert all(text in shown for text in PROMISES)
            assert f'href="{list_url(promise)}"' in page(client, list_url(Session))  # in the sidebar
        first = change_url(promise.objects.get(text=PROMISES[0]))
        assert PROMISES[0] in page(operator(group="editors"), first)
        assert f'href="{first}"' in page(root, page_url(Session, "context", session.pk))
        assert f'href="{first}"' in page(root, change_url(Job.objects.get(process="note_promises", session=session)))
        found = page(operator("view_promise", "view_userprofile"), list_url(promise), q="bo")
        assert PROMISES[0] not in found and "nothing to Ada." in found

    def test_a_retraction_withdraws_it_and_undoing_restores_it(
        self, promise: Any, session: Session, service: Api, ada: UserProfile
    ) -> None:
        rows = list(promise.objects.order_by("pk").values())
        asked = preview(session, [0])
        assert asked.withdrawn["promises"] == 2  # both are of one job
        root = operator()
        assert "Promises" in page(root, page_url(Session, "retract", session.pk), sequences="0")
        made = retract(session, [0], reason="Planted.", requested_by="test")
        assert made.result["withdrawn"] == asked.withdrawn
        assert [row.text for row in promise.objects.all()] == ["nothing to Ada."]
        assert layer(context(service), "promises") == [] and service.get("promises", user_id="ada").json()["total"] == 0
        assert PROMISES[0] in page(root, change_url(made))
        run_schedule("note_promises")
        work_off()
        assert [row.text for row in promise.objects.for_user(ada)] == PROMISES[1:]  # made again from the other turn
        assert check_retraction(made, ada).lines == []
        undo_retraction(made, requested_by="test")
        assert sorted(promise.objects.for_user(ada).values_list("text", flat=True)) == sorted(PROMISES)
        [back] = promise.objects.filter(text=PROMISES[0]).values()
        assert back in rows

    def test_it_is_exported_imported_and_erased(
        self, promise: Any, session: Session, service: Api, tmp_path: Path
    ) -> None:
        rows = [(row.promise_id, row.text) for row in promise.objects.filter(user=session.user).order_by("pk")]
        with (tmp_path / "ada.zip").open("wb") as file:
            export_user("ada", file, application=DEFAULT)
        erased = erase_user("ada", application=DEFAULT, actor="test")
        assert erased.rows["promises"] == 2 and erased.left["promises"] == 0
        assert [row.text for row in promise.objects.all()] == ["nothing to Ada."]
        assert import_user(tmp_path / "ada.zip", application=DEFAULT)["promises"] == 2
        back = promise.objects.filter(user__user_id="ada").order_by("pk")
        assert [(row.promise_id, row.text) for row in back] == rows
        turns = Message.objects.turns().filter(user__user_id="ada", sequence__in=(0, 2)).order_by("sequence")
        assert [row.source_message_ids for row in back] == [[turn.pk] for turn in turns]
        assert layer(context(service), "promises") == PROMISES[::-1]


# --- a field of a moment ---

# The module, the line before, and the line that adds a field.
THREE_EDITS = [
    (
        "moments_app/models/moment.py",
        "    present_persons = ArrayField(models.TextField(), default=list, blank=True)\n",
        '    weather = models.TextField(blank=True, default="")\n',
    ),
    (
        "moments_app/engines/calls/moments.py",
        "    starts_at_message_idx: int = Field(ge=0)\n",
        '    weather: str = Field(default="fair", max_length=100)\n',
    ),
    (
        "moments_app/interfaces/api/moments.py",
        "    present_persons = TagsField(required=False)\n",
        "    weather = TextField(max_length=100, required=False)\n",
    ),
]
USED = """
import json, zipfile
from pathlib import Path
import django
django.setup()
from django.core.management import call_command
from django.test.utils import setup_test_environment
setup_test_environment()
call_command("makemigrations", "moments_app", name="weather", verbosity=0)
call_command("migrate", verbosity=0)
from moments_app.models import EpisodeDraft, Moment
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from sessions_app.models import ApiKey, UserProfile
from sessions_app.people.erase import erase_user
from sessions_app.people.export import export_user
from sessions_app.people.import_user import import_user
from tests.support.api import Api
from tests.support.jobs import build
from tests.support.migrated import migrated
from tests.support.operator import operator
from tests.support.other_database import another_database
from tests.support.pages import change_url, page
from tests.support.processes import database_url, environment
from tests.support.transcript import talk

def weathers():
    return sorted(Moment.objects.values_list("weather", flat=True).distinct())

ada = UserProfile.objects.ensure("ada")
session = talk(ada, 120)
draft = {"name": "kiln", "summary": "The kiln.", "engine": "test", "weather": "foggy"}
EpisodeDraft.objects.create(user=ada, session=session, first_sequence=0, last_sequence=19, **draft)
build(session)
found = {"built": weathers()}
api = Api(ApiKey.objects.issue("service", scope="admin")[1])
key = Moment.objects.filter(weather="foggy").get().key
found["shown"] = api.get(f"moments/{key}", user_id="ada").json()["weather"]
found["patched"] = api.patch(f"moments/{key}", user_id="ada", weather="icy").json()["weather"]
found["on_page"] = 'name="weather"' in page(operator(), change_url(Moment.objects.get(key=key)))
made = retract(session, [0], reason="Planted.", requested_by="test")
found["retracted"] = weathers()
undo_retraction(made, requested_by="test")
found["restored"] = weathers()
application = ada.application_id
with open("ada.zip", "wb") as file:
    export_user("ada", file, application=application)
with zipfile.ZipFile("ada.zip") as file:
    found["exported"] = sorted({json.loads(line)["weather"] for line in file.read("moments.jsonl").splitlines()})
erase_user("ada", application=application, actor="test")
found["erased"] = weathers()
import_user(Path("ada.zip"), application=application)
found["imported"] = weathers()
print(json.dumps(found))
"""


@pytest.mark.slow(seconds=60)
def test_a_field_of_a_moment_takes_three_edits_and_a_generated_migration(
    transactional_db: None, tmp_path: Path
) -> None:
    for name in ("memoryproject", "sessions_app", "moments_app", "memory_extras", "drill", "templates", "tests"):
        shutil.copytree(BASE_DIR / name, tmp_path / name)  # with its bytecode
    for name, before, added in THREE_EDITS:
        code = (tmp_path / name).read_text()
        assert code.count(before) == 1
        (tmp_path / name).write_text(code.replace(before, added + before))
    with another_database("weather", template=migrated()) as database:
        url = database_url().replace(connection.settings_dict["NAME"], database)
        ran = subprocess.run(
            [sys.executable, "-c", USED],
            cwd=tmp_path,
            env=environment(DATABASE_URL=url, DJANGO_SETTINGS_MODULE="memoryproject.settings"),
            capture_output=True,
            text=True,
        )
    assert ran.stdout, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "built": ["fair", "foggy"],
        "shown": "foggy",
        "patched": "icy",
        "on_page": True,
        "retracted": [],
        "restored": ["fair", "icy"],
        "exported": ["fair", "icy"],
        "erased": [],
        "imported": ["fair", "icy"],
    }
