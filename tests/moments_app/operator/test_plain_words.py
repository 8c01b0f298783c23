"""Pages don't show internal names of processes, classes, errors and actors, or terms of the code."""

import re

import pytest
from django.urls import reverse

from moments_app.engines.interface import ABOUT
from moments_app.jobs.process import processes
from moments_app.models import FailureGroup, Job, RetractedItem
from sessions_app.models.event import named_actor
from tests.support.every_page import every_page
from tests.support.furnished import furnish
from tests.support.kept_rows import KeptRows
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)

# Parts of a page that are not prose: code, addresses, and stored text of other people.
_NO_TEXT = re.compile(r"<(script|style|template|pre|code|textarea|select)\b.*?</\1>|<[^>]*>|rem://\S*", re.DOTALL)


def text_of(html: str) -> str:
    """Return the text of a page."""
    body = html[html.index("<body") :] if "<body" in html else html
    return re.sub(r"\s+", " ", _NO_TEXT.sub(" ", body))


def internal_names() -> re.Pattern[str]:
    names = [process.name for process in processes() if "_" in process.name]
    kinds = [kind for kind in ABOUT if "_" in kind]
    ours = ["streams?", "shards?", r"consolidat\w+", "digests?", r"settl\w+", "atoms?", r"evict\w*", "absorbed", "lag"]
    ours += ["turns that came", "later attempt"]
    return re.compile(
        rf"\b({'|'.join([*names, *kinds])})\b|\b\w+_app\.\w+|\b(operator|job|retraction|command):\w[\w-]*"
        rf"|\[TOOL RESULT|(?i:\b({'|'.join(ours)})\b)"
    )


# Pages about events show them under the names that the API gives them.
_EVENTS = re.compile(r"/(event|webhookendpoint|webhookdelivery)/")


# Pages show the address of a row on hover. Its link is in words.
_ADDRESS = re.compile(r"<a [^>]*>\s*(rem://[^<]*)")


@pytest.mark.slow(seconds=30)
def test_no_page_shows_an_internal_name(transactional_db: None, kept_rows: KeptRows) -> None:
    kept_rows.have("furnished", furnish)
    found = {
        address.url: names
        for address, html in every_page(operator(), with_parts=True)
        if not _EVENTS.search(address.url)
        and (names := {match[0] for match in internal_names().finditer(text_of(html))} | {*_ADDRESS.findall(html)})
    }
    assert found == {}


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
