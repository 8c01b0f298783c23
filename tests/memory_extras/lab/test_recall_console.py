"""The search console."""

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from memory_extras.lab.inspection import inspect
from moments_app.context import assemble
from moments_app.models import MemoryAtom, MemoryStream, Moment
from moments_app.models.stream import USER_DEFAULTS
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.jobs import build, count
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, page, queries_of
from tests.support.streams import note
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def url(name: str = "recall") -> str:
    return reverse(f"admin:moments_app_memoryatom_{name}")


@pytest.fixture
def session(ada: UserProfile) -> Session:
    """Turns and moments about a kiln and a harpsichord, and a fact, with their words counted."""
    session = talk(ada, 60)
    append(ada, "s1", [NewMessage("user", "The harpsichord came from Lyon."), NewMessage("assistant", "How fine.")])
    stream = MemoryStream.objects.create(stream_type="user", agent_id="default", user=ada, **vars(USER_DEFAULTS))
    note(stream, "Plays the harpsichord.", "fact")
    build(session)
    count(ada)
    return session


class TestInspection:
    """The console shows what a request finds."""

    def test_results_equal_those_of_recall_with_ranks_and_scores(self, session: Session, ada: UserProfile) -> None:
        seen = inspect(ada, "", RecallRequest("harpsichord"))
        assert seen.results == recall(ada, "", RecallRequest("harpsichord"))
        [fact] = [result for result in seen.results if result.kind == "fact"]
        assert (fact.ranks, fact.pk) == ({"text": 1}, MemoryAtom.objects.get().pk)
        assert fact.scores["text"] > 0 and fact.score > 0
        assert list(seen.steps) == ["embedding", "words", "search by text", "fusion", "reading"]
        assert seen.request.degraded and seen.plans == []

    @pytest.mark.slow
    def test_both_searches_are_timed_with_their_plans(
        self, embeddings_server: OpenAIServer, session: Session, ada: UserProfile
    ) -> None:
        call_command("embed")
        seen = inspect(ada, "", RecallRequest("harpsichord"))
        assert seen.results == recall(ada, "", seen.request)
        assert list(seen.steps)[2:4] == ["search by text", "search by semantic"]
        assert seen.results[0].scores.keys() == {"text", "semantic"}
        assert [(plan.kind, plan.is_exact) for plan in seen.plans] == [("fact", True), ("moment", True), ("turn", True)]
        semantic = inspect(ada, "", RecallRequest("harpsichord", mode="semantic"))
        assert list(semantic.steps)[2:3] == ["search by semantic"]

    def test_a_corrected_word_names_the_original(self, session: Session, ada: UserProfile) -> None:
        words = inspect(ada, "", RecallRequest("harpsicord")).words
        assert words is not None
        assert [(term.word, term.unknown_word, term.factor) for term in words.terms] == [
            ("harpsicord", "", 1.0),
            ("harpsichord", "harpsicord", 0.7),
        ]


class TestThePage:
    """The page of the console."""

    @pytest.mark.slow
    def test_the_page_shows_ranks_scores_steps_and_links_to_results(
        self, root: Client, embeddings_server: OpenAIServer, session: Session
    ) -> None:
        call_command("embed")
        shown = page(root, url(), user_id="ada", query="harpsicord", kinds=["fact", "moment", "turn"])
        assert "which no text contains" in shown and "BM25" in shown and "cosine" in shown
        assert change_url(MemoryAtom.objects.get()) in shown
        assert f"{change_url(session)}?at=60#turn-60" in shown
        assert 'title="rem://sessions/s1/messages/60">turn 60 of s1</a>' in shown
        assert f'title="{MemoryAtom.objects.get().uri}">fact, {timezone.now():%-d %b}</a>' in shown
        moments = page(root, url(), user_id="ada", query="kiln", kinds="moment")
        assert any(change_url(moment) in moments for moment in Moment.objects.all())
        assert "compared (exact)" in shown and "embed query" in shown and "Degraded" not in shown

    def test_mode_kinds_time_and_number_limit_the_search(self, root: Client, session: Session) -> None:
        turns = page(root, url(), user_id="ada", query="harpsichord", kinds="turn", mode="text", most="1")
        assert "1 result" in turns and "#turn-60" in turns and "Plays" not in turns
        later = page(root, url(), user_id="ada", query="kiln", kinds="turn", since="2099-01-01T00:00")
        assert "No results." in later and "since that time" in later

    @pytest.mark.slow
    def test_degraded_mode_is_shown(self, root: Client, session: Session, request: pytest.FixtureRequest) -> None:
        assert "No embeddings endpoint is configured" in page(root, url(), user_id="ada", query="harpsichord")
        endpoint = request.getfixturevalue("embeddings_server")
        call_command("embed")
        endpoint.always(behave.error(500))
        assert "did not answer in time" in page(root, url(), user_id="ada", query="harpsichord")

    def test_a_search_does_not_count_as_access(self, root: Client, session: Session) -> None:
        page(root, url(), user_id="ada", query="harpsichord")
        assemble.waiting_accesses.flush()
        assert MemoryAtom.objects.get().access_count == 0

    def test_an_unknown_user_is_reported_with_similar_ids(self, root: Client, session: Session) -> None:
        shown = page(root, url(), user_id="ad", query="kiln")
        assert "There is no user" in shown and "user_id=ada" in shown
        assert 'value="ada"' in page(root, url("recall_people"), user_id="ad")
        assert "ada" not in page(root, url("recall_people"), user_id="b")

    @pytest.mark.parametrize(
        ("asked", "told"),
        [
            ({"user_id": "ada", "query": ""}, "Query: "),
            ({"user_id": "ada", "query": "a\0b"}, "Query: "),
            ({"user_id": "", "query": "x"}, "User: "),
            ({"user_id": "ada", "query": "x", "kinds": "all"}, "Kinds: "),
            ({"user_id": "ada", "query": "x", "mode": "best"}, "Search by: "),
            ({"user_id": "ada", "query": "x", "since": "soon"}, "Said since (UTC): "),
            ({"user_id": "ada", "query": "x", "most": "101"}, "Results: "),
        ],
    )
    def test_bad_input_is_reported_by_field(
        self, root: Client, ada: UserProfile, asked: dict[str, str], told: str
    ) -> None:
        assert told in page(root, url(), **asked)

    def test_a_query_without_words_is_reported(self, root: Client, session: Session) -> None:
        assert "only stop words and punctuation" in page(root, url(), user_id="ada", query="who is it?")

    def test_the_page_requires_the_permissions_of_its_content(self, session: Session) -> None:
        assert operator("view_memoryatom", "view_moment").get(url()).status_code == 403
        assert operator("view_").get(url()).status_code == 403
        viewer = operator("view_", "read_userprofile")
        assert "Search console" in page(viewer, url())
        assert viewer.post(url()).status_code == 405

    @pytest.mark.slow
    def test_the_page_takes_a_constant_number_of_queries(
        self, root: Client, embeddings_server: OpenAIServer, session: Session, ada: UserProfile
    ) -> None:
        call_command("embed")
        asked = f"{url()}?user_id=ada&query=harpsicord"
        few = queries_of(root, asked)
        append(ada, "s2", [NewMessage("user", f"The harpsichord of {n}.") for n in range(200)])
        call_command("embed")
        assert queries_of(root, asked) == few <= MAX_QUERIES

    def test_row_18_planted_scripts_stay_text(self, root: Client, ada: UserProfile) -> None:
        append(ada, "s1", [NewMessage("user", f"{PLANTED} harpsichord")])
        for query in ("planted", f'"></textarea>{PLANTED}'):
            shown = page(root, url(), user_id="ada", query=query, agent_id=PLANTED)
            assert "planted" in shown and PLANTED not in shown
        assert PLANTED not in page(root, url(), user_id=PLANTED, query="x")
