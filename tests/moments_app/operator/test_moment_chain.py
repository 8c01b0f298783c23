"""The timeline of a person's moments."""

import re
from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client
from django.urls import reverse

from moments_app.models import Moment
from moments_app.operator.admin import moment as moment_chain
from sessions_app.models import UserProfile
from tests.support.moments import remember
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, page, queries_of

pytestmark = pytest.mark.django_db(transaction=True)


def chain_url(user: UserProfile) -> str:
    return reverse("admin:moments_app_moment_chain", args=[user.pk])


def rows_of(text: str) -> list[int]:
    """Return the primary keys of the moments on the page, in order."""
    return [int(pk) for pk in re.findall(r'id="moment-(\d+)"', text)]


def linked_from(text: str) -> list[int]:
    """Return the primary keys of the moments that link to the open one, in the order of the list."""
    listed = text.split("Linked from")[1].split("</ul>")[0]
    return [int(pk) for pk in re.findall(r"#moment-(\d+)", listed)]


class TestChain:
    """Walking along the chain."""

    def test_the_chain_opens_at_the_newest_moment_with_its_turns(self, root: Client, ada: UserProfile) -> None:
        moments = remember(ada, 40)
        shown = page(root, chain_url(ada))
        newest_first = [moment.pk for moment in reversed(moments)]
        assert rows_of(shown) == newest_first[: moment_chain.EARLIER + 1]
        assert 'id="turn-79"' in shown and 'id="turn-77"' not in shown
        assert f'rel="prev" href="?at={moments[-2].pk}"' in shown and 'rel="next"' not in shown

    @pytest.mark.slow
    def test_earlier_and_later_pages_follow_without_gap_or_overlap(
        self, root: Client, ada: UserProfile, bo: UserProfile
    ) -> None:
        moments = remember(ada, 60)
        remember(bo, 3)
        newest_first = [moment.pk for moment in reversed(moments)]
        met: list[int] = rows_of(page(root, chain_url(ada)))
        while met[-1] != newest_first[-1]:
            met += rows_of(page(root, chain_url(ada), before=met[-1]))
        assert met == newest_first
        back = [met[-1]]
        while back[0] != newest_first[0]:
            back = rows_of(page(root, chain_url(ada), after=back[0])) + back
        assert back == newest_first

    @pytest.mark.slow
    def test_moments_of_one_instant_are_in_the_order_of_their_turns(self, root: Client, ada: UserProfile) -> None:
        moments = remember(ada, 40)
        Moment.objects.update(ends_at=moments[0].ends_at)
        newest_first = [moment.pk for moment in reversed(moments)]
        shown = page(root, chain_url(ada), at=moments[20].pk)
        around = newest_first.index(moments[20].pk)
        assert rows_of(shown) == newest_first[around - moment_chain.LATER : around + moment_chain.EARLIER + 1]

    def test_pauses_and_sessions_are_shown(self, root: Client, ada: UserProfile) -> None:
        remember(ada, 12)
        later = remember(ada, 2, session_id="s2")
        Moment.objects.filter(source_session__session_id="s2").update(
            starts_at=F("starts_at") + timedelta(days=3, hours=12), ends_at=F("ends_at") + timedelta(days=3, hours=12)
        )
        steps = moment_chain.around(Moment.objects.get(pk=later[-1].pk)).steps
        assert [step.gap.replace("\xa0", " ") for step in steps if step.gap] == ["3 days"]
        assert [step.moment.name for step in steps if step.begins_session] == ["Moment 1 of s2", "Moment 11 of s1"]
        assert steps[0].hue != steps[2].hue

    @pytest.mark.slow
    def test_as_of_a_day_the_chain_ends_there_and_links_keep_the_day(self, root: Client, ada: UserProfile) -> None:
        moments = remember(ada, 40)  # ten on each day with moments, three days apart
        day = f"{moments[14].ends_at:%Y-%m-%d}"
        by_then = [moment.pk for moment in reversed(moments) if f"{moment.ends_at:%Y-%m-%d}" <= day]
        shown = page(root, chain_url(ada), as_of=day)
        assert rows_of(shown) == by_then[: moment_chain.EARLIER + 1]
        assert f"as_of={day}" in shown and 'rel="next"' not in shown
        assert f'rel="prev" href="?at={by_then[1]}&amp;as_of={day}"' in shown
        around = page(root, chain_url(ada), at=by_then[2], as_of=day)
        assert rows_of(around)[0] == by_then[0]
        assert "No moments up to this day." in page(root, chain_url(ada), as_of="2020-01-01")

    def test_the_page_of_a_person_without_moments_says_so(self, root: Client, ada: UserProfile) -> None:
        assert "No moments yet." in page(root, chain_url(ada))

    @pytest.mark.parametrize("asked", ["x", "-1", "9" * 30, "", "1"])
    def test_an_invalid_parameter_shows_the_newest(
        self, root: Client, ada: UserProfile, bo: UserProfile, asked: str
    ) -> None:
        remember(bo, 1)
        newest = remember(ada, 3)[-1]
        assert rows_of(page(root, chain_url(ada), at=asked))[0] == newest.pk

    def test_a_moment_is_shown_at_its_place_in_the_chain(self, root: Client, ada: UserProfile) -> None:
        moment = remember(ada, 3)[1]
        shown = page(root, reverse("admin:moments_app_moment_reading", args=[moment.pk]))
        assert "<html" not in shown
        assert 'id="turn-2"' in shown and 'id="turn-4"' not in shown and change_url(moment) in shown

    @pytest.mark.slow
    def test_an_open_moment_lists_the_later_moments_that_link_to_it(self, root: Client, ada: UserProfile) -> None:
        moments = remember(ada, 12)  # each links to the three before it
        day = f"{moments[9].ends_at:%Y-%m-%d}"
        by_then = [n for n in (9, 10, 11) if f"{moments[n].ends_at:%Y-%m-%d}" <= day]
        assert by_then != [9, 10, 11]
        reading = reverse("admin:moments_app_moment_reading", args=[moments[8].pk])
        for url, query in ((chain_url(ada), {"at": moments[8].pk}), (reading, {})):
            assert linked_from(page(root, url, **query)) == [moments[n].pk for n in (9, 10, 11)]
            assert linked_from(page(root, url, **query, as_of=day)) == [moments[n].pk for n in by_then]
        assert "Linked from" not in page(root, chain_url(ada), at=moments[11].pk)

    def test_only_operators_who_can_see_moments_see_the_chain(self, ada: UserProfile) -> None:
        moment = remember(ada, 1)[0]
        stranger, viewer = operator("view_session"), operator("view_moment")
        for url in (chain_url(ada), reverse("admin:moments_app_moment_reading", args=[moment.pk])):
            assert stranger.get(url).status_code == 403
            assert viewer.get(url).status_code == 200

    @pytest.mark.slow
    def test_the_page_takes_a_constant_number_of_queries(self, root: Client, ada: UserProfile) -> None:
        remember(ada, 4)
        few = queries_of(root, chain_url(ada))
        remember(ada, 60, session_id="s2")
        assert queries_of(root, chain_url(ada)) == few <= MAX_QUERIES
