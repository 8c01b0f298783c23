"""Rules for every page: permissions and the number of queries."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import ContextReceipt, Entity, Job, Moment, PromptResource, Summary
from sessions_app.models import Event, Session, UserProfile
from tests.support.jobs import build
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, list_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def everything_shown(root: Client) -> list[str]:
    """Return the text of every page that shows data of Ada."""
    models = [Session, Moment, UserProfile, Job, PromptResource, Event, Entity, Summary, ContextReceipt]
    pages = [page(root, list_url(model)) for model in models]
    return pages + [page(root, change_url(thing)) for model in models for thing in model._default_manager.all()[:4]]


@pytest.mark.slow
def test_row_18_a_viewer_sees_every_page_but_cannot_change_anything(built: Session, prompt: PromptResource) -> None:
    viewer = operator("view_")
    everything_shown(viewer)
    moment, before = Moment.objects.earliest("id"), Moment.objects.count()
    Job.objects.update(status=Job.Status.FAILED)
    posts = [
        (change_url(moment), {"name": "x", "summary": "x"}),
        (change_url(built), {"title": "x"}),
        (change_url(built.user), {"summary": "x"}),
        (reverse("admin:sessions_app_session_build", args=[built.pk]), {}),
        (reverse("admin:moments_app_promptresource_add_version", args=[prompt.pk]), {"content": "x"}),
        (reverse("admin:moments_app_promptresource_activate", args=[prompt.pk, 1]), {}),
        (reverse("admin:moments_app_moment_delete", args=[moment.pk]), {"post": "yes"}),
    ]
    assert [viewer.post(url, data).status_code for url, data in posts] == [403] * len(posts)
    actions = [(Moment, "delete_selected", moment.pk), (Job, "retry", Job.objects.earliest("id").pk)]
    for model, action, pk in actions:
        viewer.post(list_url(model), {"action": action, "_selected_action": [pk], "post": "yes"})
    assert Moment.objects.count() == before
    assert Job.objects.get().status == Job.Status.FAILED
    assert prompt.versions.count() == 1
    shown = page(viewer, change_url(built)) + page(viewer, change_url(prompt))
    assert "Build moments" not in shown and "activate" not in shown.lower()


def test_operators_without_rights_see_nothing(built: Session) -> None:
    nobody = operator("nothing")
    for model in (Session, Moment, UserProfile, Job, PromptResource):
        assert nobody.get(list_url(model)).status_code == 403
    assert nobody.get(change_url(built)).status_code == 403


@pytest.mark.slow
def test_pages_take_a_constant_number_of_queries(root: Client, ada: UserProfile) -> None:
    def asked() -> dict[str, int]:
        urls = [list_url(model) for model in (Session, Moment, UserProfile, Job, Event, PromptResource)]
        urls += [change_url(Session.objects.earliest("id")), change_url(Moment.objects.order_by("id")[3])]
        return {url: queries_of(root, url) for url in urls}

    first = talk(ada, 150, session_id="first")
    build(first)
    few = asked()
    for number in range(4):
        person = UserProfile.objects.ensure(f"person-{number}")
        build(talk(person, 60, session_id=f"s{number}"))
    talk(ada, 60, session_id="first")
    build(first)
    many = asked()
    assert few == many
    assert max(many.values()) <= MAX_QUERIES


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Entity, "kind__exact"),
        (Event, "type"),
        (Job, "process"),
        (PromptResource, "purpose__exact"),
        (Session, "source__icontains"),
        (Session, "status__exact"),
    ],
)
def test_an_impossible_filter_value_gives_an_empty_list(ada: UserProfile, model: Any, name: str) -> None:
    talk(ada, 1)
    answer = operator().get(list_url(model), {name: "a\0b"})
    assert answer.status_code == 200 and not answer.context["cl"].result_list


@pytest.mark.parametrize(
    ("model", "name"), [(Session, "last_activity_at"), (Entity, "due_at"), (ContextReceipt, "created_at")]
)
def test_a_date_filter_accepts_the_first_and_last_days(ada: UserProfile, model: Any, name: str) -> None:
    page(operator(), list_url(model), **{f"{name}_from": "0001-01-01", f"{name}_to": "9999-12-31"})
