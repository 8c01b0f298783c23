"""The titles that pages show instead of internal names. `tests/browser/test_every_page.py` checks every page."""

import pytest
from django.urls import reverse

from moments_app.jobs.process import processes
from moments_app.models import FailureGroup, Job, RetractedItem
from sessions_app.models.event import named_actor
from tests.support.operator import operator
from tests.support.plain_words import text_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_process_has_a_title() -> None:
    assert all(process.title for process in processes())


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("form_memories", "Extract facts"),
        ("of_another_release", "Of another release"),
        ("query-embedding", "Query embedding"),
    ],
)
def test_jobs_and_failures_have_the_title_of_their_process(name: str, title: str) -> None:
    assert Job(process=name).title == FailureGroup(process=name).title == title
    assert str(FailureGroup(process=name, kind="rate_limited")) == f"{title}: rate limited"


def test_a_list_shows_the_title_and_has_the_name_on_hover_and_in_the_filter(transactional_db: None) -> None:
    Job.objects.request("form_memories", requested_by="append")
    shown = operator().get(reverse("admin:moments_app_job_changelist")).content.decode()
    assert '<span title="form_memories">Extract facts</span>' in shown and "?process=form_memories" in shown
    assert "form_memories" not in text_of(shown) and "new messages" in text_of(shown)


@pytest.mark.parametrize(
    ("actor", "words"),
    [
        ("operator:eve_l", "operator eve_l"),
        ("key:abc", "key abc"),
        ("import_user", "import user"),
        ("append", "new messages"),
    ],
)
def test_actors_are_written_in_words(actor: str, words: str) -> None:
    assert named_actor(actor) == words


def test_a_withdrawn_row_without_a_text_is_named_by_what_it_is() -> None:
    assert RetractedItem(model="moments_app.memorystream", object_pk=6, data={}).label == "memory text 6"
    event = {"kind": "partition", "sequence": 4, "content": "[TOOL RESULT: session_partition]"}
    assert RetractedItem(model="sessions_app.message", data=event).label == "Boundary after turn 4"
    assert RetractedItem(model="sessions_app.event", data={"type": "moments_built"}).label == "moments built"
    assert RetractedItem(model="moments_app.statementchange", data={"action": "edited"}).label == "Edited"
    assert RetractedItem(model="moments_app.job", data={"process": "build_moments"}).label == "Build moments"
