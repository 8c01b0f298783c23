"""The pages of receipts."""

import uuid

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import ContextReceipt, Moment
from sessions_app.models import Session, UserProfile
from tests.support.entities import make_entity
from tests.support.moments import remember
from tests.support.pages import MAX_QUERIES, change_url, list_url, page, queries_of
from tests.support.streams import note, shard

pytestmark = pytest.mark.django_db(transaction=True)


def served(session: Session, *refs: str) -> ContextReceipt:
    """Create a receipt of a context with these addresses."""
    return ContextReceipt.objects.create(
        context_id=uuid.uuid4(),
        user=session.user,
        session=session,
        refs={"moments": list(refs)},
        tokens={"query": 5, "moments": 40},
        trimmed=[{"layer": "conversation", "count": 2, "tokens": 90, "reason": "dropped"}],
        text_hash="0" * 64,
    )


def test_lines_link_to_their_sources(root: Client, ada: UserProfile) -> None:
    moment = remember(ada, 1)[0]
    entity = make_entity(ada, "Pay the rent")
    atom = note(shard("repairs"), "Felt wears out.", "fact")
    session = Session.objects.get()
    turn = f"rem://sessions/{session.session_id}/messages/1"
    summary = f"rem://sessions/{session.session_id}/summary"
    receipt = served(session, moment.uri, entity.uri, atom.uri, ada.uri, turn, summary)
    shown = page(root, change_url(receipt))
    for thing in (moment, entity, atom, ada):
        assert f'href="{change_url(thing)}"' in shown
    assert f"{change_url(session)}?at=1#turn-1" in shown
    assert reverse("admin:sessions_app_session_summaries", args=[session.pk]) in shown
    assert f'title="{turn}">turn 1 of s1</a>' in shown and f'title="{summary}">the summary of s1</a>' in shown
    assert "45 tokens" in shown and "conversation: 2 dropped, 90 tokens left out" in shown


def test_deleted_sources_and_those_of_others_have_no_links(root: Client, ada: UserProfile, bo: UserProfile) -> None:
    theirs = remember(bo, 1, session_id="of-bo")[0]
    remember(ada, 1)
    session = Session.objects.get(user=ada)
    receipt = served(session, theirs.uri, "rem://moments/key/gone", "rem://sessions/gone/messages/3")
    shown = page(root, change_url(receipt))
    assert change_url(theirs) not in shown
    assert shown.count("(deleted)") == 3


def test_totals_count_only_the_listed_layers(root: Client, ada: UserProfile) -> None:
    remember(ada, 1)
    receipt = served(Session.objects.get())
    receipt.tokens |= {"layer_of_another_release": 1_000}
    receipt.save()
    for url, total in ((change_url(receipt), "45 tokens"), (list_url(ContextReceipt), ">45<")):
        shown = page(root, url)
        assert total in shown and "1,045" not in shown


@pytest.mark.slow
def test_the_page_takes_a_constant_number_of_queries(root: Client, ada: UserProfile) -> None:
    remember(ada, 40)
    session = Session.objects.get()
    uris = [moment.uri for moment in Moment.objects.all()]
    few = queries_of(root, change_url(served(session, *uris[:1])))
    assert queries_of(root, change_url(served(session, *uris))) == few <= MAX_QUERIES
    few = queries_of(root, list_url(ContextReceipt))
    for _ in range(30):
        served(session)
    assert queries_of(root, list_url(ContextReceipt)) == few <= MAX_QUERIES
