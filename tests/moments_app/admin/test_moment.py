"""The pages of moments."""

import pytest
from django.test import Client

from moments_app.models import Moment
from sessions_app.models import Session, UserProfile
from tests.support.jobs import assert_chain_is_whole
from tests.support.pages import change_url, list_url, page

pytestmark = pytest.mark.django_db(transaction=True)


class TestMoment:
    """Moments with their chain and sources."""

    def test_it_is_read_beside_its_source_turns_and_between_its_neighbours(self, root: Client, built: Session) -> None:
        first, second, third = Moment.objects.order_by("id")[:3]
        shown = page(root, change_url(second))
        assert change_url(first) in shown and change_url(third) in shown
        assert f'id="turn-{second.first_sequence}"' in shown and f'id="turn-{second.last_sequence}"' in shown
        assert f'id="turn-{second.last_sequence + 1}"' not in shown
        assert f"{change_url(built)}?moment={second.pk}#turn-{second.first_sequence}" in shown
        assert "the first moment" in page(root, change_url(first))
        assert "the newest moment" in page(root, change_url(Moment.objects.latest("id")))

    def test_what_it_says_can_be_corrected_and_where_it_comes_from_cannot(self, root: Client, built: Session) -> None:
        moment = Moment.objects.earliest("id")
        corrected = {
            "name": "corrected",
            "summary": "What really was.",
            "detail": "",
            "topic_tags": "kiln,glaze",
            "emotion_tags": "",
            "present_persons": "",
            "category": moment.category,
            "key": "forged",
            "first_sequence": "7",
        }
        assert root.post(change_url(moment), corrected).status_code == 302
        after = Moment.objects.get(pk=moment.pk)
        assert (after.name, after.summary, after.topic_tags) == ("corrected", "What really was.", ["kiln", "glaze"])
        assert (after.key, after.first_sequence) == (moment.key, moment.first_sequence)

    def test_the_chain_closes_over_deleted_moments(self, root: Client, built: Session, ada: UserProfile) -> None:
        doomed = list(Moment.objects.order_by("id").values_list("pk", flat=True)[1:3])
        data = {"action": "delete_selected", "_selected_action": doomed, "post": "yes"}
        assert root.post(list_url(Moment), data).status_code == 302
        assert not Moment.objects.filter(pk__in=doomed).exists()
        assert_chain_is_whole(ada)

    def test_it_is_found_by_its_words(self, root: Client, built: Session) -> None:
        moment = Moment.objects.earliest("id")
        Moment.objects.filter(pk=moment.pk).update(detail="An unmistakable porcupine.")
        shown = page(root, list_url(Moment), q="porcupines")
        assert moment.key in shown
        assert Moment.objects.latest("id").key not in shown
