"""Searching memory by words: facts, moments and turns."""

import itertools
import random
import string
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from moments_app.context import assemble
from moments_app.context.assemble import ContextRequest, preview
from moments_app.jobs.runner import run_job
from moments_app.migrations._vector_search import EXACT
from moments_app.models import EmbeddingModel, EngineCall, Job, MemoryAtom, MemoryStream, Moment, Vocabulary, Word
from moments_app.models.embedding import KINDS, FactEmbedding
from moments_app.models.stream import USER_DEFAULTS
from moments_app.recall.query import with_vector
from moments_app.recall.query_terms import query_words
from moments_app.recall.request import MAX_WORDS, RecallRequest
from moments_app.recall.results import Result
from moments_app.recall.scoring import SOURCE_SHARE
from moments_app.recall.search import EXTRA_RESULTS, READ_AHEAD, Hits, rank, recall, search
from moments_app.sessions.settle import Settle
from moments_app.turns import platform_text
from sessions_app.models import ApiKey, Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.jobs import count, work_off
from tests.support.kept_rows import KeptRows
from tests.support.openai_server import OpenAIServer
from tests.support.streams import note, shard
from tests.support.transcript import START, arrived_when_said

pytestmark = pytest.mark.django_db(transaction=True)


def say(user: UserProfile, *texts: str, session_id: str = "s1", **fields: Any) -> None:
    """Append turns of a user and an assistant, a minute apart."""
    roles = ("user", "assistant")
    batch = [
        NewMessage(role=fields.get("role", roles[n % 2]), content=text, created_at=START + timedelta(minutes=n))
        for n, text in enumerate(texts)
    ]
    append(user, session_id, batch, agent_id=fields.get("agent_id", ""))


def own_stream(user: UserProfile, agent_id: str = "default") -> MemoryStream:
    return MemoryStream.objects.create(stream_type="user", agent_id=agent_id, user=user, **vars(USER_DEFAULTS))


def moment(user: UserProfile, key: str, summary: str, **fields: Any) -> Moment:
    defaults = {"starts_at": START, "ends_at": START, "first_sequence": 0, "last_sequence": 1, "engine": "test"}
    return Moment.objects.create(user=user, key=key, name=key, summary=summary, **defaults | fields)


def found(user: UserProfile, query: str, *kinds: str, agent_id: str = "", **asked: Any) -> list[Result]:
    times = {name: asked.pop(name, None) for name in ("since", "as_of")}
    question = RecallRequest(query, kinds or ("fact", "moment", "turn"), **times)
    return recall(user, agent_id, question, **asked)


def random_words(number: int) -> str:
    """Return words of five letters."""
    chance = random.Random(1)
    return " ".join("".join(chance.choices(string.ascii_lowercase, k=5)) for _ in range(number))


def contents(*asked: Any, **more: Any) -> list[str]:
    return [result.content for result in found(*asked, **more)]


class TestWhatIsFound:
    """Which texts match a query."""

    def test_any_word_of_a_question_matches_and_the_rarest_counts_most(self, ada: UserProfile) -> None:
        say(ada, *(f"The kiln is warm, day {n}." for n in range(20)), "The glaze cracked in the kiln.", role="user")
        for _ in range(2):
            assert contents(ada, "Why did the glaze in my kiln crack?", "turn")[0] == "The glaze cracked in the kiln."
            count(ada)

    def test_words_match_in_other_forms(self, ada: UserProfile) -> None:
        say(ada, "She was painting three sunsets.")
        assert contents(ada, "Who paints a sunset?") == ["She was painting three sunsets."]

    @pytest.mark.parametrize("is_counted", [False, True])
    def test_texts_without_word_positions_are_ranked(self, ada: UserProfile, is_counted: bool) -> None:
        say(ada, "The kiln is warm.", "The glaze cracked in the kiln.")
        note(own_stream(ada), "Owns a kiln.", "fact")
        moment(ada, "kiln", "They spoke of a kiln.")
        with connection.cursor() as cursor:  # as other programs may write them
            for table in ("sessions_app_message", "moments_app_memoryatom", "moments_app_moment"):
                cursor.execute(f"UPDATE {table} SET search_vector = strip(search_vector)")
        if is_counted:
            count(ada)
        results = found(ada, "glaze kiln")
        assert len(results) == 4 and results[0].content == "The glaze cracked in the kiln."

    def test_a_new_text_is_found_immediately(self, ada: UserProfile) -> None:
        count(ada)
        say(ada, "A brand-new harpsichord arrived.")
        assert contents(ada, "harpsichord") == ["A brand-new harpsichord arrived."]

    def test_an_answer_is_found_by_the_question_before_it(self, ada: UserProfile) -> None:
        say(ada, "Where did you buy the harpsichord?", "In Lyon, from an old man.", "I see.", "Good night.")
        [question, answer, *_] = found(ada, "Where is the harpsichord from?", "turn")
        assert [question.sequence, answer.sequence] == [0, 1]
        assert answer.ranks == {} and question.ranks == {"text": 1}

    def test_neighbors_of_a_turn_are_from_its_session(self, ada: UserProfile) -> None:
        say(ada, "The harpsichord came.", session_id="s1")
        say(ada, "Something else.", session_id="s2")
        assert {result.session_id for result in found(ada, "harpsichord", "turn")} == {"s1"}

    def test_a_typo_is_corrected(self, ada: UserProfile) -> None:
        say(ada, "The harpsichord came from Lyon.", "A kiln is an oven.", "Nothing more to say.")
        count(ada)
        for mistyped in ("harpsicord", "harpischord", "harpsichhord", "harksichord"):
            assert contents(ada, mistyped, "turn")[0] == "The harpsichord came from Lyon."
        assert contents(ada, "kln", "turn") == []  # too short to be corrected

    def test_a_word_with_another_first_letter_is_a_different_word(self, ada: UserProfile) -> None:
        say(ada, "Der Mann machte eine Zeichnung.", "The hut was empty.", "We may harden the clay.")
        for _ in range(2):
            assert contents(ada, "Rechnung für die Panne", "turn") == []
            assert contents(ada, "warden", "turn") == []
            count(ada)

    def test_an_existing_word_is_not_treated_as_a_typo(self, ada: UserProfile) -> None:
        say(ada, "We went hiking.", session_id="s1")
        say(ada, "We went biking.", session_id="s2")
        for _ in range(2):
            assert {result.session_id for result in found(ada, "hiking", "turn")} == {"s1"}
            count(ada)

    def test_stop_words_find_nothing(self, ada: UserProfile) -> None:
        say(ada, "Who are you and what is it?")
        assert contents(ada, "Who are you?") == []

    def test_punctuation_and_operators_are_treated_as_text(self, ada: UserProfile) -> None:
        say(ada, "The o'clock & the back\\slash: a|b !c 'quoted'.")
        for query in ("o'clock", "back\\slash", "a|b", "!c", "'quoted'", "\\'", "); DROP TABLE x; --", "%s %(user)s"):
            found(ada, query)
        assert contents(ada, "'quoted' & !c", "turn") == ["The o'clock & the back\\slash: a|b !c 'quoted'."]

    def test_a_query_of_the_maximum_length_is_answered(self, ada: UserProfile) -> None:
        say(ada, "The harpsichord came.")
        count(ada)
        assert contents(ada, "harpsichord " + " ".join(f"word{n}" for n in range(2_000)))

    def test_row_43_at_most_64_words_are_searched_from_the_start_and_the_end(self, ada: UserProfile) -> None:
        texts = {
            "words": [f"word{n}" for n in range(400)],
            "pairs of characters": ["".join(map(chr, range(0x4E00, 0x4E00 + 400)))],
        }
        for parts in texts.values():
            words = query_words(ada, "", " ".join(parts)).terms
            assert len(words) == MAX_WORDS == 64
        asked = {term.word for term in query_words(ada, "", " ".join(texts["words"])).terms}
        assert {"word0", "word31", "word368", "word399"} <= asked

    def test_row_43_a_long_query_of_random_words_is_searched_by_few_stems(self, ada: UserProfile) -> None:
        say(ada, "The harpsichord came from Lyon.")
        count(ada)
        assert 100 < len(query_words(ada, "", random_words(160)).lookup("turn").rare) < 200

    def test_row_43_a_long_query_of_random_words_reads_no_turn_without_them(self, ada: UserProfile) -> None:
        say(ada, *(f"The kiln is warm, day {n}." for n in range(300)))
        count(ada)
        connection.close()  # a new connection counts only its own reads
        with transaction.atomic(), connection.cursor() as cursor:
            found(ada, random_words(160), "turn")
            found(ada, random_words(160), "turn", as_of=timezone.now())
            cursor.execute("SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'sessions_app_message'")
            assert cursor.fetchone() == (0,)

    def test_row_43_at_most_16_words_are_checked_for_typos_and_compounds(self, ada: UserProfile) -> None:
        known = ["".join(letters) for letters in itertools.product("bdfg", "ao", "lmnr", "ai")][:40]
        say(ada, " ".join(f"{word}harp" for word in known))
        count(ada)
        meant = query_words(ada, "", " ".join(f"{word}harpp" for word in known)).terms
        assert len({term.unknown_word for term in meant if term.unknown_word}) == 16

    def test_a_huge_message_of_different_words_is_stored_and_found(self, ada: UserProfile) -> None:
        say(ada, "harpsichord " + " ".join(f"{n:x}é漢字" for n in range(20_000)))
        [result] = found(ada, "harpsichord", "turn")
        assert len(result.content) == 2_000

    def test_system_turns_and_platform_text_are_not_found(self, ada: UserProfile) -> None:
        say(ada, "harpsichord rules", role="system")
        platform_text.store_lines(ada.pk, ["- Has a harpsichord. (2026-03-02)"])
        say(ada, "- Has a harpsichord. (2026-03-02)")
        append(ada, "s1", [NewMessage(role="tool", tool_name="search_long_term_memory", content="harpsichord")])
        assert contents(ada, "harpsichord") == []

    def test_facts_and_observations_are_found_unless_evicted(self, ada: UserProfile) -> None:
        stream = own_stream(ada)
        note(stream, "Plays the harpsichord.", "fact")
        note(stream, "Sold a harpsichord.", "fact", state="evicted")
        note(stream, "May buy a harpsichord.", "observation")
        note(stream, "Wants no harpsichord.", "observation", state="absorbed")
        note(stream, "Hates the harpsichord.", "observation", state="evicted")
        assert set(contents(ada, "harpsichord")) == {
            "Plays the harpsichord.",
            "May buy a harpsichord.",
            "Wants no harpsichord.",
        }

    def test_since_excludes_earlier_texts(self, ada: UserProfile) -> None:
        say(ada, "Old harpsichord.", "Middle harpsichord.", "New harpsichord.")
        later = START + timedelta(minutes=1)
        assert set(contents(ada, "harpsichord", since=later)) == {"Middle harpsichord.", "New harpsichord."}
        assert contents(ada, "harpsichord", since=timezone.now()) == []

    def test_common_words_find_the_newest_texts_and_those_with_all_words(
        self, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.recall.scoring.MAX_READ", 3)
        stream = own_stream(ada)
        for number, text in enumerate(["clay and glaze", *["clay only"] * 10, *["glaze only"] * 10]):
            note(stream, f"{text} {number}", "fact", formed_at=START + timedelta(days=number))
        count(ada)
        assert contents(ada, "clay glaze", "fact")[0] == "clay and glaze 0"
        assert contents(ada, "clay", "fact", most=1) == ["clay only 10"]


class TestOrder:
    """The order of results."""

    @pytest.mark.slow
    def test_common_words_read_a_limited_number_of_texts(self, ada: UserProfile) -> None:
        say(ada, *(f"The kiln is warm, day {n}." for n in range(500)))
        columns = "session_id, user_id, kind, role, tool_name, content, tokens, created_at, metadata"
        with connection.cursor() as cursor:  # enough that reading all of them would be noticed
            cursor.execute(
                f"INSERT INTO sessions_app_message (sequence, {columns}) SELECT n, {columns}"
                " FROM sessions_app_message, generate_series(1000, 40000) n WHERE sequence = 0"
            )
            cursor.execute("ANALYZE sessions_app_message")
        count(ada)
        connection.close()  # a new connection counts only its own reads
        with transaction.atomic(), connection.cursor() as cursor:
            assert found(ada, "a warm kiln", "turn")
            cursor.execute("SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'sessions_app_message'")
            assert cursor.fetchone() == (0,)

    def test_kinds_are_merged_by_score(self, ada: UserProfile) -> None:
        say(ada, "The harpsichord came from Lyon in March.", "How lovely.")
        note(own_stream(ada), "Likes March.", "fact")
        moment(ada, "spring", "Much was planted in March.")
        count(ada)
        best, *others = found(ada, "harpsichord from Lyon in March")
        assert best.content == "The harpsichord came from Lyon in March."
        assert [one.score for one in others] == sorted((one.score for one in others), reverse=True)
        assert all(one.score < best.score for one in others)

    def test_texts_that_say_the_same_thing_are_returned_once_as_the_turn(self, ada: UserProfile) -> None:
        say(ada, "ada: My harpsichord came from Lyon, and it sounds well.")
        stream = own_stream(ada)
        note(stream, "My harpsichord came from Lyon.", "fact")
        note(stream, "Tunes a harpsichord weekly.", "fact")
        results = found(ada, "harpsichord from Lyon")
        assert [(one.kind, one.content) for one in results] == [
            ("turn", "ada: My harpsichord came from Lyon, and it sounds well."),
            ("fact", "Tunes a harpsichord weekly."),
        ]

    def test_an_ended_fact_does_not_hide_a_current_one(self, ada: UserProfile) -> None:
        stream = own_stream(ada)
        over = {"state": "ended", "valid_until": START, "ended_at": START}
        note(stream, "Tunes a harpsichord of oak from Lyon with felt jacks.", "fact", **over)
        note(stream, "Tunes a harpsichord.", "fact")
        note(stream, "A harpsichord of oak from Lyon has felt jacks.", "fact")
        note(stream, "A harpsichord from Lyon.", "fact")
        assert contents(ada, "harpsichord of oak from Lyon with felt jacks", "fact") == [
            "A harpsichord of oak from Lyon has felt jacks.",
            "Tunes a harpsichord of oak from Lyon with felt jacks.",
            "Tunes a harpsichord.",
        ]

    def test_turns_of_the_person_named_in_the_query_come_first(self, ada: UserProfile) -> None:
        say(ada, "Nora: I tuned the harpsichord.", "Mats: I tuned the harpsichord, too.")
        assert found(ada, "Did Mats tune a harpsichord?")[0].content.startswith("Mats:")
        assert found(ada, "Did nora tune a harpsichord?")[0].content.startswith("Nora:")

    def test_newer_texts_come_first_among_equals(self, ada: UserProfile) -> None:
        stream = own_stream(ada)
        for day in (2, 1, 3):
            note(stream, f"Plays {day} harpsichord.", "fact", formed_at=START + timedelta(days=day))
        assert contents(ada, "harpsichord", "fact") == [f"Plays {day} harpsichord." for day in (3, 2, 1)]

    def test_the_same_query_has_the_same_results(self, ada: UserProfile) -> None:
        say(ada, *(f"harpsichord {n % 3}" for n in range(30)))
        count(ada)
        assert found(ada, "harpsichord 1") == found(ada, "harpsichord 1")

    def test_the_requested_number_of_results_is_returned(self, ada: UserProfile) -> None:
        say(ada, *(f"harpsichord {n}" for n in range(30)))
        assert [len(found(ada, "harpsichord", most=most)) for most in (1, 7, 30)] == [1, 7, 30]
        assert len(found(ada, "harpsichord")) == 5

    def test_only_the_best_of_many_texts_are_ranked_newest_first_among_equals(self) -> None:
        hits = Hits({("fact", (number, 0)): number // 2 / 100 for number in range(200)}, weights={"fact": 1.0})
        ranking = rank(hits, 5)
        assert [place[0] for _kind, place in ranking] == list(range(199, 199 - READ_AHEAD, -1))
        assert list(ranking.values()) == sorted(ranking.values(), reverse=True)

    def test_meaning_decides_if_words_match_little_of_the_query(self) -> None:
        """Turns that match few words of the query by chance don't displace the one with the same meaning."""
        similarity = {("turn", (7, 20 * number)): 0.80 + number / 2_000 for number in range(40)}
        best = max(similarity, key=lambda key: similarity[key])
        by_chance = {("turn", (8, 0)): 2.0, ("turn", (8, 20)): 2.0}
        hits = Hits(by_chance, similarity, weights={"turn": 16.0})
        assert next(iter(rank(hits, 5))) == best

    def test_rare_words_are_chance_if_no_text_has_half_of_the_query(self) -> None:
        similarity = {("turn", (7, 20 * number)): 0.80 + number / 2_000 for number in range(40)}
        best = max(similarity, key=lambda key: similarity[key])
        hits = Hits({("turn", (8, 0)): 10.8}, similarity, weights={"turn": 30.0})
        assert next(iter(rank(hits, 5))) == best

    def test_words_of_a_time_are_not_missed_in_texts(self, ada: UserProfile) -> None:
        say(ada, "The kiln arrived.", "The glaze cracked.", role="user")
        count(ada)
        worth, dated, named = (
            query_words(ada, "", query).lookup("turn").max_score
            for query in ("Which kiln arrived?", "Which kiln arrived on 3 June 2023?", "Which kiln arrived in Faenza?")
        )
        assert worth == dated < named

    def test_a_query_that_only_names_a_time_finds_its_words(self, ada: UserProfile) -> None:
        say(ada, "We met in June 2023.", "The glaze cracked.")
        count(ada)
        assert contents(ada, "June 2023", "turn")[0] == "We met in June 2023."

    def test_words_decide_if_they_match_all_of_the_query(self) -> None:
        similarity = {("turn", (7, 20 * number)): 0.80 + number / 2_000 for number in range(40)}
        said = ("turn", (8, 0))
        hits = Hits({said: 16.0}, similarity, weights={"turn": 16.0})
        assert next(iter(rank(hits, 5))) == said

    def test_turns_of_a_session_with_good_matches_are_ranked_higher(self) -> None:
        best, beside_it, alone = ("turn", (7, 0)), ("turn", (7, 50)), ("turn", (8, 50))
        hits = Hits({best: 8.0, beside_it: 4.0, alone: 4.0}, weights={"turn": 8.0})
        ranking = rank(hits, 5)
        assert ranking[best] > ranking[beside_it] > ranking[alone]

    def test_a_moment_vouches_for_the_turns_that_it_covers(self, ada: UserProfile) -> None:
        for session_id in ("lyon", "ghent"):
            say(ada, "The harpsichord came.", "How lovely.", session_id=session_id)
        moment(ada, "lyon", "A journey to Lyon.", source_session=Session.objects.get(session_id="lyon"))
        query = "Which harpsichord is from Lyon?"
        assert [found(ada, query, *kinds)[0].session_id for kinds in ((), ("turn",))] == ["lyon", "ghent"]

    def test_a_moment_vouches_for_no_other_turns_of_its_session(self) -> None:
        covered, other, key = ("turn", (7, 9)), ("turn", (7, 50)), ("moment", (3, 0))
        shares = {covered: 4.0, other: 4.0, key: 4.0}
        ranking = rank(Hits(shares, weights={"turn": 8.0, "moment": 8.0}, spans={key: (7, 0, 9)}), 5)
        assert ranking[covered] == pytest.approx(ranking[other] + SOURCE_SHARE * ranking[key])

    def test_weak_results_next_to_a_much_better_one_are_limited(self) -> None:
        """With words only, and with vectors."""
        weak = {("turn", (7, number)): 0.001 for number in range(0, 500, 10)}
        hits = Hits(weak | {("turn", (7, 1_000)): 1.0}, weights={"turn": 1.0})
        around = [1_000, 1_001, 999, 1_002, 998, 1_003, 997, 1_004, 996]
        assert [place[1] for _kind, place in rank(hits, 200, least_share=0.01)] == [*around, 490]
        assert len(rank(hits, 200)) == 200 + EXTRA_RESULTS
        near = replace(hits, semantic={key: 0.5 + place / 1_000 for place, key in enumerate(weak)})
        assert len(rank(near, 200, least_share=0.01)) > len(around) + len(weak) / 2

    def test_all_results_are_returned_if_none_is_much_better(self) -> None:
        hits = Hits({("turn", (7, number)): 0.001 for number in range(0, 500, 10)}, weights={"turn": 1.0})
        assert rank(hits, 200, least_share=0.01) == rank(hits, 200)

    def test_a_text_of_several_conversations_is_returned_once(self, ada: UserProfile) -> None:
        for number in range(5):
            say(ada, "The harpsichord is tuned  on Friday.", "Noted.", session_id=f"talk-{number}")
        say(ada, "The harpsichord has a new string.", session_id="strings")
        texts = [result.content for result in found(ada, "harpsichord", "turn")]
        assert sorted(texts) == ["Noted.", "The harpsichord has a new string.", "The harpsichord is tuned  on Friday."]

    @pytest.mark.slow
    @pytest.mark.usefixtures("forming")
    def test_a_text_of_several_settled_conversations_is_returned_once(self, ada: UserProfile) -> None:
        for number in range(5):
            day = START + timedelta(days=number)
            texts = [f"The weather of day {number} is fine.", "Noted.", "I am allergic to hazelnuts.", "Noted."]
            batch = [
                NewMessage(role=role, content=text, created_at=day)
                for role, text in zip(["user", "assistant"] * 2, texts, strict=True)
            ]
            append(ada, f"talk-{number}", batch)
        for session in Session.objects.all():
            arrived_when_said(session)
            run_job(Job.objects.request(Settle.name, session, requested_by="test").job_id)
        assert MemoryAtom.objects.filter(content="User: I am allergic to hazelnuts.").exists()
        texts = contents(ada, "What am I allergic to?")
        assert [text for text in texts if "allergic" in text] == ["I am allergic to hazelnuts."]


class TestCounts:
    """The counts of words."""

    def test_counts_match_the_texts(self, ada: UserProfile) -> None:
        say(ada, "A kiln and a kiln.", "A glaze.")
        moment(ada, "kiln", "The kiln.")
        note(own_stream(ada), "Owns a kiln.", "fact")
        count(ada)
        word = Word.objects.get(stem="kiln")
        assert (word.facts, word.moments, word.turns) == (1, 1, 1)
        words = Vocabulary.objects.get(user=ada)
        assert (words.fact_count, words.moment_count, words.turn_count, words.turn_words) == (1, 1, 2, 2)

    def test_words_of_deleted_texts_are_deleted(self, ada: UserProfile) -> None:
        atom = note(own_stream(ada), "Owns a kiln.", "fact")
        count(ada)
        atom.delete()
        count(ada)
        assert not Word.objects.exists()

    @pytest.mark.slow
    def test_the_sweep_requests_counts_for_sessions_that_have_grown(self, ada: UserProfile, bo: UserProfile) -> None:
        say(bo, "Silent since.")
        count(bo)
        for number in range(100):
            say(ada, f"Turn {number} of kiln{number}.")
            if number % 10 == 9:
                call_command("run_schedule", "count_words")
                work_off()
        assert Vocabulary.objects.get(user=ada).turn_count >= 80
        assert 5 <= ada.jobs.filter(process="count_words").count() < 10
        assert bo.jobs.filter(process="count_words").count() == 1

    def test_new_facts_request_a_count_of_their_person_or_shard(self, service: Api, ada: UserProfile) -> None:
        for stream in (own_stream(ada), shard("music")):
            body = {"user_id": "ada", "atom_type": "fact", "content": "A harpsichord has jacks."}
            assert service.post(f"streams/{stream.stream_id}/atoms", **body).status_code == 201
        work_off()
        assert {word.vocabulary.user for word in Word.objects.filter(stem="harpsichord")} == {ada, None}

    def test_memory_with_few_changes_is_not_counted_again(self, ada: UserProfile) -> None:
        say(ada, *("A kiln." for _ in range(30)))
        count(ada)
        say(ada, "A glaze.", session_id="s2")
        call_command("run_schedule", "count_words")
        work_off()
        assert not Session.objects.grown().exists()
        assert not Word.objects.filter(stem="glaze").exists()


class TestIsolation:
    """Row 9 for searches."""

    @pytest.fixture(autouse=True)
    def _both_have_the_like(self, ada: UserProfile, bo: UserProfile) -> None:
        for person in (ada, bo):
            say(person, f"The harpsichord of {person.user_id}.", f"It is {person.user_id}'s own.")
            moment(person, "harpsichord", f"{person.user_id} bought a harpsichord.")
            note(own_stream(person), f"{person.user_id} plays the harpsichord.", "fact")
            count(person)

    def test_row_9_a_search_finds_only_own_memory(self, ada: UserProfile) -> None:
        texts = contents(ada, "harpsichord", most=100)
        assert len(texts) == 4
        assert not any("bo" in text.split("'")[0].split() or text.endswith("bo.") for text in texts)

    def test_row_9_a_service_key_searches_for_the_named_person_and_a_user_key_for_its_own(
        self, service: Api, as_ada: Api
    ) -> None:
        mine = service.post("memory/search", user_id="ada", query="harpsichord").json()["results"]
        assert mine and as_ada.post("memory/search", query="harpsichord").json()["results"] == mine
        assert as_ada.post("memory/search", query="harpsichord", user_id="bo").json()["results"] == []
        assert service.post("memory/search", user_id="nobody", query="harpsichord").json()["results"] == []

    @pytest.mark.parametrize("table", ["moments_app_memoryatom", "moments_app_moment", "sessions_app_message"])
    def test_row_9_the_search_functions_enforce_row_security(
        self, ada: UserProfile, bo: UserProfile, table: str
    ) -> None:
        call = f"SELECT found FROM recall_{table}(%s, %s, %s, '{{}}', %s, %s, %s, 5, NULL, 100)"
        for with_newest in (False, True):
            asked: list[Any] = [bo.pk, [f"u{bo.pk}"], ["harpsichord"], with_newest, ["'harpsichord'"], [1.0]]
            with connection.cursor() as cursor:
                cursor.execute(call, asked)
                of_bo = {pk for (pk,) in cursor.fetchall()}
            assert of_bo
            with acting_for("ada", application=DEFAULT), connection.cursor() as cursor:
                cursor.execute(call, asked)
                assert not of_bo & {pk for (pk,) in cursor.fetchall()}

    def test_row_9_words_and_counts_of_another_person_are_not_visible(self, ada: UserProfile) -> None:
        with acting_for("ada", application=DEFAULT):
            assert set(Word.objects.values_list("user_id", flat=True)) == {ada.pk}
            assert set(Vocabulary.objects.values_list("user_id", flat=True)) == {ada.pk}

    def test_facts_of_a_shard_are_found_by_all_users_of_its_agent(self, ada: UserProfile, bo: UserProfile) -> None:
        note(shard("repairs", "smith"), "A harpsichord jack needs felt.", "fact")
        note(shard("everywhere"), "A harpsichord has jacks.", "fact")
        note(shard("off", "smith", is_active=False), "A harpsichord is off.", "fact")
        for person in (ada, bo):
            of_agent = contents(person, "jack felt harpsichord", "fact", agent_id="smith", most=10)
            assert {"A harpsichord jack needs felt.", "A harpsichord has jacks."} < set(of_agent)
            assert "A harpsichord is off." not in of_agent
            elsewhere = contents(person, "jack felt harpsichord", "fact", agent_id="other", most=10)
            assert "A harpsichord jack needs felt." not in elsewhere and "A harpsichord has jacks." in elsewhere

    def test_a_shards_fact_does_not_reveal_its_source_session(self, ada: UserProfile, bo: UserProfile) -> None:
        session = bo.sessions.get()
        note(shard("repairs"), "Felt for the lute.", "fact", source_session=session)
        with acting_for("ada", application=DEFAULT):
            assert [result.session_id for result in found(ada, "lute felt", "fact")] == [None]
        assert [result.session_id for result in found(ada, "lute felt", "fact")] == [None]


class TestEndpoint:
    """`POST memory/search`."""

    def test_a_result_has_text_and_source(self, service: Api, ada: UserProfile) -> None:
        say(ada, "The harpsichord came.")
        answer = service.post("memory/search", user_id="ada", query="harpsichord", kinds=["turn"], match_count=1)
        assert answer.status_code == 200
        told = answer.json()
        assert told["results"][0].pop("score") > 0
        assert told == {
            "results": [
                {
                    "kind": "turn",
                    "ref": "rem://sessions/s1/messages/0",
                    "content": "The harpsichord came.",
                    "session_id": "s1",
                    "sequence": 0,
                    "role": "user",
                    "time": START.isoformat().replace("+00:00", "Z"),
                    "valid_from": None,
                    "valid_until": None,
                    "ranks": {"semantic": None, "text": 1},
                }
            ],
            "span": None,
            "mode": "text",
            "degraded": True,
        }

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"query": ""}, "query"),
            ({"query": "   "}, "query"),
            ({"query": "x" * 200_000}, "query"),
            ({}, "query"),
            ({"query": "x", "kinds": ["song"]}, "kinds.0"),
            ({"query": "x", "kinds": []}, "kinds"),
            ({"query": "x", "match_count": 0}, "match_count"),
            ({"query": "x", "match_count": 101}, "match_count"),
            ({"query": "x", "since": "yesterday"}, "since"),
            ({"query": "x", "since": "2026-01-01T00:00:00"}, "since"),
            ({"query": "x", "mode": "guess"}, "mode"),
            ({"query": "x", "nonsense": 1}, "nonsense"),
            ({"query": "a\0b"}, "query"),
        ],
    )
    def test_errors_of_bad_input_name_the_field(self, service: Api, asked: dict[str, Any], field: str) -> None:
        answer = service.post("memory/search", user_id="ada", **asked)
        assert answer.status_code == 400
        assert [error["attr"] for error in answer.json()["errors"]] == [field]

    def test_a_repeated_kind_is_searched_once(self, service: Api, ada: UserProfile) -> None:
        note(own_stream(ada), "Plays the harpsichord.", "fact")
        once, twice = (
            service.post("memory/search", user_id="ada", query="harpsichord", kinds=kinds).json()
            for kinds in (["fact"], ["fact", "fact"])
        )
        assert once == twice

    def test_a_read_key_can_search(self, ada: UserProfile) -> None:
        reader = Api(ApiKey.objects.issue("r", user=ada, scope="read")[1])
        assert reader.post("memory/search", query="kiln").status_code == 200

    def test_a_search_takes_a_constant_number_of_queries(self, service: Api, ada: UserProfile) -> None:
        def queries() -> int:
            with CaptureQueriesContext(connection) as captured:
                assert service.post("memory/search", user_id="ada", query="harpsichord kiln").status_code == 200
            return len([q for q in captured if q["sql"] not in ("BEGIN", "COMMIT")])

        say(ada, "harpsichord", "kiln")
        count(ada)
        few = queries()
        for number in range(20):
            say(ada, *(f"harpsichord kiln {n}" for n in range(20)), session_id=f"s{number}")
        count(ada)
        assert queries() <= few <= 6


class TestAccess:
    """The access to facts is counted in the background."""

    def test_an_access_to_a_returned_fact_is_recorded(self, service: Api, ada: UserProfile) -> None:
        stream = own_stream(ada, agent_id="other")  # those of the session's own agent would be in another layer
        atom, other = note(stream, "Plays the harpsichord.", "fact"), note(stream, "Owns a kiln.", "fact")
        say(ada, "Hello.", "Hi.")
        for _ in range(3):
            service.post("memory/search", user_id="ada", query="harpsichord")
        with CaptureQueriesContext(connection) as captured:
            service.get("memory/context", user_id="ada", session_id="s1", query="harpsichord")
        assert not any("access_count =" in query["sql"] for query in captured)
        assemble.waiting_accesses.flush()
        [listed, unlisted] = service.get(f"streams/{stream.stream_id}/atoms", user_id="ada").json()["atoms"][::-1]
        assert (listed["atom_id"], listed["access_count"]) == (str(atom.atom_id), 4)
        assert listed["last_accessed_at"] is not None and listed["rag_indexed"] is False
        assert (unlisted["atom_id"], unlisted["access_count"]) == (str(other.atom_id), 0)

    def test_previews_in_the_admin_record_no_access(self, ada: UserProfile) -> None:
        note(own_stream(ada), "Plays the harpsichord.", "fact")
        say(ada, "Hello.", "Hi.")
        preview(ada, "s1", ContextRequest(query="harpsichord", recall=RecallRequest("harpsichord")))
        assemble.waiting_accesses.flush()
        assert not MemoryAtom.objects.filter(access_count__gt=0).exists()

    def test_an_access_to_a_deleted_fact_is_ignored(self, service: Api, ada: UserProfile) -> None:
        stream = own_stream(ada)
        gone, there = note(stream, "Plays the harpsichord.", "fact"), note(stream, "Sold a harpsichord.", "fact")
        service.post("memory/search", user_id="ada", query="harpsichord")
        gone.delete()
        assemble.waiting_accesses.flush()
        there.refresh_from_db()
        assert there.access_count == 1


class TestByMeaning:
    """Searching by vectors, alone and in addition to words."""

    @pytest.fixture(autouse=True)
    def _embedded(self, embeddings_server: OpenAIServer, transactional_db: None, kept_rows: KeptRows) -> None:
        kept_rows.have("embedded", self.remember)

    def remember(self) -> None:
        for person in map(UserProfile.objects.ensure, ("ada", "bo")):
            say(person, f"The harpsichord of {person.user_id}.", "A kiln is warm.", "It rains.", "Good night.")
            note(own_stream(person), f"{person.user_id} has two harpsichords.", "fact")
            moment(person, "keys", f"{person.user_id} bought a harpsichord.")
        note(shard("music"), "Harpsichord jacks need felt.", "fact")
        call_command("embed")

    def ask(self, api: Api, query: str, **asked: Any) -> Any:
        return api.post("memory/search", user_id="ada", query=query, **asked).json()

    @pytest.mark.slow
    def test_both_searches_return_results_with_ranks(self, service: Api) -> None:
        atoms = service.get(f"streams/{MemoryStream.objects.get(user__user_id='ada').stream_id}/atoms", user_id="ada")
        assert [atom["rag_indexed"] for atom in atoms.json()["atoms"]] == [True]
        answer = self.ask(service, "harpsichord", kinds=["fact"])
        assert (answer["mode"], answer["degraded"]) == ("hybrid", False)
        assert answer["results"][0]["ranks"] == {"semantic": 1, "text": 1}

    def test_search_by_meaning_finds_texts_without_common_words(self, service: Api) -> None:
        [fact, *_] = self.ask(service, "harpsichordist", kinds=["fact"], mode="semantic")["results"]
        assert fact["ranks"] == {"semantic": 1, "text": None}
        assert "arpsichord" in fact["content"]

    def test_new_facts_and_moments_get_a_mean_score_until_they_have_vectors(
        self, service: Api, ada: UserProfile
    ) -> None:
        def scores(mode: str) -> dict[str, float]:
            asked = {"kinds": ["fact", "moment"], "match_count": 20, "mode": mode}
            results = self.ask(service, "harpsichord quills", **asked)["results"]
            return {one["content"]: one["score"] for one in results if "quill" in one["content"]}

        note(MemoryStream.objects.get(user=ada), "ada cuts quills.", "fact")
        moment(ada, "quill", "ada cut a quill.")
        new, by_words = scores("hybrid"), scores("text")
        assert len(new) == 2 and all(new[text] > by_words[text] for text in new)

    def test_only_turns_without_a_vector_get_a_mean_score(self, ada: UserProfile) -> None:
        """The command `embed` and the job `embed_all` also create vectors of turns."""
        say(ada, "A harpsichord is tuned often.", session_id="new")
        request = with_vector(RecallRequest("harpsichord", kinds=["turn"]))
        assert request.vector
        words = query_words(ada, "", request.text, request.vector)
        hits = search(ada, words, request, 10)
        new = Message.objects.get(session__session_id="new")
        assert hits.unembedded == {("turn", (new.session_id, new.sequence))} < hits.text.keys()

    def test_words_that_all_turns_share_have_little_weight(self, service: Api, ada: UserProfile) -> None:
        stream = MemoryStream.objects.get(user=ada)
        for text in ("Anna says hush.", "The kiln."):
            note(stream, text, "fact")
        say(ada, *(f"Anna says {word}." for word in random_words(24).split()))
        call_command("embed")
        [first, *_] = self.ask(service, "Anna says kiln", kinds=["fact"], mode="semantic")["results"]
        assert first["content"] == "The kiln."

    def test_an_assistants_turn_counts_half_unless_the_query_addresses_it(self, service: Api, ada: UserProfile) -> None:
        turns = {
            "Felt keeps a spinet quiet.": "assistant",
            "Felt keeps my spinet quiet.": "user",
            "Mats: Felt keeps spinets quiet.": "assistant",
        }
        for number, (text, role) in enumerate(turns.items()):
            say(ada, text, session_id=str(number), role=role)
        call_command("embed")

        def scores(query: str) -> list[float]:
            results = self.ask(service, query, kinds=["turn"], match_count=20)["results"]
            return [score for name, score in sorted((one["session_id"], one["score"]) for one in results) if name < "3"]

        of_assistant, of_person, of_mats = scores("What keeps a spinet quiet?")
        assert of_assistant < 0.7 * min(of_person, of_mats)
        of_assistant, of_person, of_mats = scores("What did you say keeps a spinet quiet?")
        assert of_assistant > 0.8 * max(of_person, of_mats)

    def test_text_mode_calls_no_endpoint(self, service: Api, embeddings_server: OpenAIServer) -> None:
        before = len(embeddings_server.requests)
        answer = self.ask(service, "harpsichord", mode="text")
        assert (answer["mode"], answer["degraded"]) == ("text", False)
        assert len(embeddings_server.requests) == before

    def test_a_query_gets_one_vector_for_context_and_search(
        self, service: Api, embeddings_server: OpenAIServer
    ) -> None:
        before = len(embeddings_server.requests)
        self.ask(service, "harpsichord")
        self.ask(service, "harpsichord", match_count=2)
        answer = service.get("memory/context", user_id="ada", session_id="s1", query="harpsichord").json()
        assert len(embeddings_server.requests) == before + 1
        assert answer["degraded"] is False and answer["sources"]["retrieved"] > 0

    @pytest.mark.slow
    @pytest.mark.parametrize("behaviour", [behave.error(500), behave.stall(60)])
    def test_results_are_by_words_and_marked_degraded_if_the_endpoint_fails(
        self, service: Api, embeddings_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, behaviour: Any
    ) -> None:
        monkeypatch.setattr("moments_app.recall.query.TIMEOUT", 0.5)
        embeddings_server.always(behaviour)
        started = time.monotonic()
        answer = self.ask(service, "harpsichord")
        assert time.monotonic() - started < 30  # a single response would take 60 s
        assert (answer["mode"], answer["degraded"]) == ("text", True)
        assert answer["results"]
        context = service.get("memory/context", user_id="ada", session_id="s1", query="harpsichord").json()
        assert context["degraded"] is True and context["sources"]["retrieved"] > 0
        assert EngineCall.objects.filter(purpose="embedding", ok=False).exists()

    def test_a_repeatedly_failing_endpoint_is_not_called(
        self, service: Api, embeddings_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 60)
        embeddings_server.always(behave.error(500))
        for number in range(5):
            assert self.ask(service, f"harpsichord {number}")["degraded"] is True
        assert EngineCall.objects.filter(ok=False).count() == 2

    def test_row_9_a_search_by_vectors_finds_only_own_memory(self, service: Api, as_ada: Api) -> None:
        for mode in ("semantic", "hybrid"):
            texts = [
                result["content"] for result in self.ask(service, "harpsichord", mode=mode, match_count=100)["results"]
            ]
            assert texts and not any(text.startswith("bo ") or text.endswith("bo.") for text in texts)
            assert "Harpsichord jacks need felt." in texts
            theirs = as_ada.post("memory/search", user_id="bo", query="harpsichord", mode=mode).json()["results"]
            assert theirs == []

    def test_search_by_meaning_as_of_a_time_finds_what_was_valid_then(self, service: Api) -> None:
        MemoryAtom.objects.filter(content__startswith="Harpsichord").update(
            formed_at=START, valid_until=START + timedelta(days=4), ended_at=START + timedelta(days=4)
        )
        FactEmbedding.objects.update(said_at=START)

        def found(as_of: str) -> set[str]:
            answer = self.ask(service, "harpsichord", kinds=["fact"], mode="semantic", as_of=as_of)
            return {result["content"] for result in answer["results"]}

        assert "Harpsichord jacks need felt." in found("2026-03-04")
        assert "Harpsichord jacks need felt." not in found("2026-03-08") | found("2026-02-01")

    @pytest.mark.parametrize(("most", "reads_the_index"), [(20_000, False), (1, True)])
    def test_a_few_vectors_are_read_completely_and_many_by_index(
        self, ada: UserProfile, most: int, reads_the_index: bool
    ) -> None:
        call_command("embed", model="test-embedder", dimensions=64)
        model = EmbeddingModel.objects.get()
        scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = %s"
        index = f"moments_app_turnembedding_nearest_{model.pk}"
        # Make everything except the vector index expensive, so that the planner would use it for two rows too.
        dear = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_get_functiondef('nearest_moments_app_turnembedding'::regproc)")
            [definition] = cursor.fetchone() or [""]
            cursor.execute(definition.replace(str(EXACT), str(most)))
            cursor.execute(dear)
            asked: list[Any] = [ada.pk, [], model.pk, 64, str([1.0] * 64), None, 100]
            cursor.execute("SELECT * FROM nearest_moments_app_turnembedding(%s, %s, %s, %s, %s, %s, %s)", asked)
            assert len(cursor.fetchall()) == 4
            transaction.set_rollback(True)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_force_next_flush()")
            cursor.execute(scans, [index])
            assert (cursor.fetchone() == (1,)) is reads_the_index

    @pytest.mark.parametrize("then", ["", "_then"])
    @pytest.mark.parametrize("kind", ["fact", "moment", "turn"])
    def test_row_9_the_vector_functions_enforce_row_security(
        self, bo: UserProfile, ada: UserProfile, kind: str, then: str
    ) -> None:
        model = EmbeddingModel.objects.get()
        table = KINDS[kind]._meta.db_table + then
        asked: list[Any] = [bo.pk, [], model.pk, 64, str([1.0] * 64), None, 100]
        asked += ["2100-01-01Z"] if then else []
        call = f"SELECT found FROM nearest_{table}({', '.join(['%s'] * len(asked))})"
        with connection.cursor() as cursor:
            cursor.execute(call, asked)
            of_bo = {pk for (pk,) in cursor.fetchall()}
        with acting_for("ada", application=DEFAULT), connection.cursor() as cursor:
            cursor.execute(call, asked)
            assert of_bo and not of_bo & {pk for (pk,) in cursor.fetchall()}

    @pytest.mark.parametrize("kind", ["fact", "moment", "turn"])
    def test_row_9_vectors_of_another_person_are_not_visible(self, ada: UserProfile, kind: str) -> None:
        with acting_for("ada", application=DEFAULT):
            owners = set(KINDS[kind].objects.values_list("user_id", flat=True))
        assert owners - {None} == {ada.pk}

    @pytest.mark.slow
    def test_vectors_of_different_models_are_not_compared(self, service: Api) -> None:
        call_command("embed", model="wider", dimensions=96, activate=True)
        answer = self.ask(service, "harpsichord", mode="semantic")
        assert answer["degraded"] is False and answer["results"]

    def test_since_and_states_of_facts_filter_searches_by_meaning(self, service: Api, ada: UserProfile) -> None:
        stream = MemoryStream.objects.get(user=ada)
        evicted = [note(stream, f"Sold harpsichord {number}.", "fact") for number in range(5)]
        call_command("embed")
        for atom in evicted:
            atom.state = "evicted"
            atom.save()
        assert len(self.ask(service, "harpsichord", kinds=["fact"], mode="semantic", match_count=100)["results"]) == 2
        later = (timezone.now() + timedelta(days=1)).isoformat()
        assert self.ask(service, "harpsichord", mode="semantic", since=later)["results"] == []

    def test_a_turn_without_common_words_is_ranked(self, service: Api) -> None:
        turns = self.ask(service, "harpsichordist kiln", kinds=["turn"], match_count=2)["results"]
        assert {turn["sequence"] for turn in turns} == {0, 1}
