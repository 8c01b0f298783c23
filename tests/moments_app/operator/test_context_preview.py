"""The context as an operator sees it."""

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.context import receipts
from moments_app.models import ContextReceipt, Entity, MemoryStream, Moment
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.entities import make_entity, new_entity
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, page, queries_of
from tests.support.streams import note, written
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


class TestContextPreview:
    """What an application would get."""

    def url(self, session: Session) -> str:
        return reverse("admin:sessions_app_session_context", args=[session.pk])

    @pytest.mark.slow
    def test_layers_have_tokens_and_lines_have_sources(self, built: Session, root: Client) -> None:
        entity = make_entity(built.user, "Order the element")
        written(built.user, summary="Ada is a potter.")
        shown = page(root, self.url(built), query="The kiln, the element?", max_tokens=2000, format="markdown")
        whole = page(root, self.url(built), max_tokens=3000, plan="stable")
        assert any(change_url(moment) in whole for moment in Moment.objects.newest_first()[:5])
        assert change_url(entity) in shown and change_url(built.user) in shown
        assert f"{change_url(built)}?at=" in shown
        assert "of 2000 tokens" in shown and "## The user" in shown
        assert "words no. 1" in shown and "the newest round" in shown
        assert "Items that a larger budget would add" in page(
            root, self.url(built), query="Turn", max_tokens=400, format="xml"
        )

    @pytest.mark.slow
    def test_trimmed_text_and_too_small_budgets_are_reported(self, built: Session, root: Client) -> None:
        assert "over its share of the budget" in page(root, self.url(built), max_tokens=300, format="xml")
        assert "The policy and the query need" in page(root, self.url(built), max_tokens=5, format="xml")
        assert "max_tokens" in page(root, self.url(built), max_tokens="many", format="xml").lower().replace(" ", "_")

    @pytest.mark.slow
    def test_retrieved_lines_link_to_their_session_and_fact(self, built: Session, root: Client) -> None:
        other = append(built.user, "a/b", [NewMessage("user", "The harpsichord came from Lyon.")]).session
        stream = MemoryStream.objects.create(stream_type="user", agent_id="other", user=built.user)
        fact = note(stream, "Plays the harpsichord.", "fact")
        shown = page(root, self.url(built), query="harpsichord", max_tokens=2000)
        assert f"{change_url(other)}?at=0#turn-0" in shown
        assert change_url(fact) in shown
        assert "searched by words only" in shown

    @pytest.mark.slow
    def test_a_turn_links_to_the_context_for_the_message_that_it_answers(self, built: Session, root: Client) -> None:
        trace = reverse("admin:sessions_app_session_trace", args=[built.pk])
        assert f"{trace}?turn=119" in page(root, change_url(built))
        assert f"{self.url(built)}?turn=118" in page(root, trace, turn=119)
        shown = page(root, self.url(built), turn=119)
        assert "turn 118" in shown and "Turn 118 is about" in shown

    def test_a_format_without_text_is_shown_completely(self, built: Session, root: Client) -> None:
        assert "&quot;estimated_used&quot;" in page(root, self.url(built), format="json")

    def test_a_preview_leaves_no_receipt(self, built: Session, root: Client, kept_receipts: None) -> None:
        page(root, self.url(built))
        receipts.waiting.flush()
        assert not ContextReceipt.objects.exists()

    @pytest.mark.slow
    def test_row_18_planted_scripts_stay_text(self, built: Session, root: Client) -> None:
        Moment.objects.update(summary=PLANTED)
        UserProfile.objects.update(summary=PLANTED)
        append(built.user, "s1", [NewMessage("user", f"</textarea>{PLANTED}")])
        for name in ("xml", "markdown", "messages"):
            shown = page(root, self.url(built), query=f'"></textarea>{PLANTED}', format=name)
            assert "planted" in shown and PLANTED not in shown

    @pytest.mark.slow
    def test_a_preview_takes_a_constant_number_of_queries(self, built: Session, root: Client) -> None:
        few = queries_of(root, self.url(built))
        Entity.objects.bulk_create(new_entity(built.user, f"t{n}") for n in range(50))
        talk(built.user, 100)
        many = queries_of(root, self.url(built))
        assert many <= few + 1 <= MAX_QUERIES  # links are looked up only if there is something to link
