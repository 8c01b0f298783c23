"""The pages where an operator retracts turns and undoes that."""

import re

import pytest
from django.urls import reverse

from moments_app.models import Moment, Retraction
from moments_app.provenance.retract import retract
from sessions_app.models import Session, UserProfile
from tests.support.api import Api
from tests.support.jobs import build
from tests.support.operator import operator
from tests.support.transcript import retracted, talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(ada: UserProfile) -> Session:
    session = talk(ada, 40)
    build(session, lag=0)
    return session


@pytest.mark.slow
def test_an_operator_previews_retracts_and_undoes(session: Session) -> None:
    root = operator()
    url = reverse("admin:sessions_app_session_retract", args=[session.pk])
    change = reverse("admin:sessions_app_session_change", args=[session.pk])
    assert url in root.get(change).content.decode()
    moment = Moment.objects.earliest("id")
    for answer in (root.get(url, {"sequences": "3-4"}), root.get(url, {"turn": [4, 3]})):
        assert "2 turns and everything derived from them" in answer.content.decode()
        assert reverse("admin:moments_app_moment_change", args=[moment.pk]) in answer.content.decode()
    assert retracted() == []
    shown = root.post(url, {"sequences": "3-4", "reason": "planted"}, follow=True).content.decode()
    page = reverse("admin:moments_app_retraction_change", args=[Retraction.objects.get().pk])
    assert page in shown and retracted() == [3, 4]
    shown = root.get(page).content.decode()
    assert "Withdrawn items" in shown and moment.name in shown
    assert f'<a class="rem-link" href="{page}">retracted' in root.get(change).content.decode()
    undo = reverse("admin:moments_app_retraction_undo", args=[Retraction.objects.get().pk])
    assert undo in root.get(page).content.decode()
    assert "is undone" in root.post(undo, follow=True).content.decode()
    assert undo not in root.get(page).content.decode()
    assert "was already undone" in root.post(undo, follow=True).content.decode()
    assert retracted() == []


@pytest.mark.slow
def test_a_preview_says_what_is_not_derived_again(session: Session) -> None:
    root, url = operator(), reverse("admin:sessions_app_session_retract", args=[session.pk])
    assert "Not rebuilt" not in root.get(url, {"sequences": "39"}).content.decode()
    last = session.moments.latest("first_sequence")
    session.messages.filter(sequence__lt=last.first_sequence).delete()  # like retention
    assert "Not rebuilt" not in root.get(url, {"sequences": "39"}).content.decode()
    session.messages.filter(sequence=last.first_sequence).delete()
    Session.objects.filter(pk=session.pk).update(kept_from_sequence=last.first_sequence + 1)
    assert "deleted the turns: moments (1)." in root.get(url, {"sequences": "39"}).content.decode()


@pytest.mark.slow
def test_several_retractions_are_undone_from_the_list(session: Session) -> None:
    for sequence in (3, 5):
        retract(session, [sequence], reason="x", requested_by="test")
    listed = reverse("admin:moments_app_retraction_changelist")
    chosen = list(Retraction.objects.values_list("pk", flat=True))
    selected = {"action": "undo_selected", "_selected_action": chosen}
    root = operator()
    assert "Memory uses the turns again" in root.post(listed, selected).content.decode()
    assert retracted() == [3, 5]
    root.post(listed, selected | {"sure": "1"})
    assert retracted() == []


@pytest.mark.slow
def test_the_page_shows_that_all_turns_are_retracted(session: Session) -> None:
    retraction = retract(session, None, reason="x", requested_by="test")
    shown = operator().get(reverse("admin:moments_app_retraction_change", args=[retraction.pk])).content.decode()
    assert re.search(r">\s*all\s*<", shown)


@pytest.mark.slow
def test_a_reason_is_required(session: Session) -> None:
    url = reverse("admin:sessions_app_session_retract", args=[session.pk])
    shown = operator().post(url, {"sequences": "3", "reason": " "}).content.decode()
    assert "This field is required." in shown and "Retract 1 turn" in shown
    assert retracted() == []


def test_opening_the_page_previews_nothing(session: Session) -> None:
    url = reverse("admin:sessions_app_session_retract", args=[session.pk])
    assert "and everything derived from" not in operator().get(url).content.decode()


@pytest.mark.parametrize("sequences", ["x", "99"])
def test_errors_of_the_form_say_what_is_wrong(session: Session, sequences: str) -> None:
    url = reverse("admin:sessions_app_session_retract", args=[session.pk])
    answer = operator().post(url, {"sequences": sequences, "reason": "x"})
    shown = answer.content.decode()
    assert answer.status_code == 200 and 'role="alert"' in shown and "sequences: " not in shown
    assert retracted() == []


@pytest.mark.slow
def test_row_18_a_viewer_cannot_retract_or_undo(service: Api, session: Session) -> None:
    service.post("retractions", user_id="ada", session_id="s1", sequences=[3], reason="x")
    viewer = operator("view_")
    url = reverse("admin:sessions_app_session_retract", args=[session.pk])
    assert viewer.post(url, {"reason": "x"}).status_code == 403
    assert viewer.get(url).status_code == 403
    listed = reverse("admin:moments_app_retraction_changelist")
    viewer.post(listed, {"action": "undo_selected", "_selected_action": Retraction.objects.get().pk, "sure": "1"})
    assert (
        viewer.post(reverse("admin:moments_app_retraction_undo", args=[Retraction.objects.get().pk])).status_code == 403
    )
    assert retracted() == [3]
