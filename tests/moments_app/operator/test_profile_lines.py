"""The page of a profile line by line."""

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import ProfileLine
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.jobs import build
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, page, queries_of
from tests.support.transcript import START

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line(ada: UserProfile) -> ProfileLine:
    """A line of Ada's profile, made of the first turn of a session."""
    session = append(ada, "s1", [NewMessage("user", "I'm allergic to hazelnuts.", created_at=START)]).session
    build(session, lag=0)
    return ProfileLine.objects.get()


def lines_url(user: UserProfile) -> str:
    return reverse("admin:sessions_app_userprofile_lines", args=[user.pk])


def edit_url(user: UserProfile, line: ProfileLine) -> str:
    return reverse("admin:sessions_app_userprofile_edit_line", args=[user.pk, line.pk])


def test_it_shows_lines_with_their_turns_and_corrects_one(ada: UserProfile, line: ProfileLine, root: Client) -> None:
    assert "?at=0#turn-0" in page(root, lines_url(ada))
    assert root.post(edit_url(ada, line), {"text": "Is allergic to <b>walnuts</b>."}).status_code == 302
    shown = page(root, lines_url(ada))
    assert "&lt;b&gt;walnuts" in shown and "pinned" in shown and "changed into another line" in shown
    restore = reverse("admin:sessions_app_userprofile_restore_line", args=[ada.pk, line.pk])
    assert root.post(restore).status_code == 302
    ada.refresh_from_db()
    assert line.text in ada.summary and "walnuts" not in ada.summary
    assert ada.versions.filter(actor="operator:root").count() == 2


def test_a_viewer_corrects_nothing_and_is_shown_no_turns_that_they_may_not_see(
    ada: UserProfile, line: ProfileLine
) -> None:
    viewer = operator("view_userprofile")
    shown = page(viewer, lines_url(ada))
    assert "hazelnuts" in shown and "#turn-0" not in shown and "Correct…" not in shown
    assert viewer.post(edit_url(ada, line), {"text": "x"}).status_code == 403


def test_a_line_of_somebody_else_is_not_found(
    ada: UserProfile, bo: UserProfile, line: ProfileLine, root: Client
) -> None:
    assert root.post(edit_url(bo, line), {"text": "x"}).status_code == 404
    assert ProfileLine.objects.get().text == line.text


def test_more_lines_ask_no_more_of_the_database(ada: UserProfile, line: ProfileLine, root: Client) -> None:
    before = queries_of(root, lines_url(ada))
    turn = Session.objects.get().messages.turns().get().pk
    rows = [ProfileLine(user=ada, text=f"Line {n}.", position=n, source_message_ids=[turn]) for n in range(9)]
    ended = [ProfileLine(user=ada, text=f"Old {n}.", ended_at=START, ended_by="job:x") for n in range(9)]
    ProfileLine.objects.bulk_create([*rows, *ended])
    assert queries_of(root, lines_url(ada)) <= before <= MAX_QUERIES
