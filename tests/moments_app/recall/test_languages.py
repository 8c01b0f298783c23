"""Searching by words in the language of the text, at once and later; and rows written by other programs."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from moments_app.models import Entity, Job, MemoryAtom, Moment, Word
from moments_app.recall.index_words import index_words
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage, append
from sessions_app.transcript.search import find_sessions
from tests.moments_app.recall.test_search import contents, moment, own_stream, say
from tests.support.entities import make_entity
from tests.support.jobs import count, work_off
from tests.support.streams import note

pytestmark = pytest.mark.django_db(transaction=True)

SAID = {
    "公园": "我昨天在绿禾公园跑了五公里",
    "парк": "Вчера я гулял в парке с собакой.",
    "ピアノ": "来週はピアノの試験があります。",
    "Tochter Klavierprüfung": "Meine Töchter haben im März Klavierprüfungen.",
    "กุ้ง": "เมื่อวานฉันกินข้าวผัดกุ้งที่ตลาด",
    "سيارة": "اشتريت السيارة الجديدة من معرض قريب",
    "harpsichords": "The harpsichord came from Lyon.",
    "rower": "Wczoraj jechałem rowerem do pracy.",
    "공원": "어제 공원에서 강아지와 산책했어요.",
}
OLD_SQL = """
UPDATE {table} SET search_vector = to_tsvector('english', {text}), search_version = 0
"""


class TestLanguages:
    """A conversation in many languages."""

    @pytest.mark.parametrize("counted", [False, True])
    def test_each_language_is_found_in_a_mixed_conversation(self, ada: UserProfile, *, counted: bool) -> None:
        say(ada, *SAID.values())
        if counted:
            count(ada)
        for query, text in SAID.items():
            assert contents(ada, query, "turn", most=1) == [text]

    def test_facts_and_moments_are_found_in_each_language(self, ada: UserProfile) -> None:
        stream = own_stream(ada)
        for number, (query, text) in enumerate(SAID.items()):
            note(stream, text, "fact")
            moment(ada, f"m{number}", text)
            for kind in ("fact", "moment"):
                assert [result.kind for result in recall(ada, "", RecallRequest(query, [kind]))][:1] == [kind]

    def test_a_typo_is_corrected_in_its_language_before_and_after_a_count(self, ada: UserProfile) -> None:
        say(ada, *SAID.values())
        for _ in range(2):
            assert contents(ada, "Klavirprüfung", "turn", most=1) == [SAID["Tochter Klavierprüfung"]]
            assert contents(ada, "harpsicord", "turn", most=1) == [SAID["harpsichords"]]
            count(ada)

    def test_compounds_and_their_parts_find_each_other_before_and_after_a_count(self, ada: UserProfile) -> None:
        policy, cake = "Die Krankenversicherung ist im Januar teurer geworden.", "Die Hochzeitstorte kommt aus Görlitz."
        dentist = "Ich war am Freitag beim Zahnarzt in der Altstadt."
        say(ada, policy, cake, dentist, *SAID.values())
        for _ in range(2):
            assert contents(ada, "Was kostet meine Versicherung?", "turn", most=1) == [policy]
            assert contents(ada, "Woher kommen die Torten?", "turn", most=1) == [cake]
            assert contents(ada, "Wann war der Zahnarzttermin?", "turn", most=1) == [dentist]
            count(ada)

    def test_a_part_of_a_word_finds_nothing_in_a_language_without_compounds(self, ada: UserProfile) -> None:
        say(ada, "The vegetables were cooked for too long yesterday.", *SAID.values())
        assert contents(ada, "Which tables did we reserve there?", "turn") == []

    def test_sessions_lists_and_entities_are_searched_in_each_language(self, ada: UserProfile) -> None:
        say(ada, *SAID.values())
        session = Session.objects.get()
        for number, (query, text) in enumerate(SAID.items()):
            found = find_sessions(Session.objects.all(), query)[session.pk]
            assert found is not None and found.sequence == number and found.excerpt == text
            made = moment(ada, f"m{number}", text)
            fact = note(own_stream(ada, agent_id=f"a{number}"), text, "fact")
            goal = make_entity(ada, "Goal", "goal", body=text)
            assert list(Moment.objects.matching(query)) == [made]
            assert list(MemoryAtom.objects.matching(query).order_by("pk")) == [fact, goal]
            assert list(Entity.objects.matching(query)) == [goal]

    def test_an_excerpt_has_the_words_around_the_match(self, ada: UserProfile) -> None:
        session = append(
            ada, "s", [NewMessage("user", f"{'这是很长的一段话。' * 60}公园{'然后又说了很多。' * 60}")]
        ).session
        said = find_sessions(Session.objects.all(), "公园")[session.pk]
        assert said is not None and len(said.excerpt) <= 120


class TestAtOnce:
    """The ranking of new turns."""

    def test_the_order_is_the_same_before_and_after_a_count(self, ada: UserProfile) -> None:
        say(ada, *(f"The kiln of {name} is {n % 3} warm." for n, name in enumerate("ann bob cem dora eva".split() * 6)))
        say(ada, "A glaze for Ann and Bob.", "Ann, Ann, Ann!", session_id="s2")
        at_once = contents(ada, "Is Ann's glaze warm?", "turn", most=30)
        count(ada)
        assert contents(ada, "Is Ann's glaze warm?", "turn", most=30) == at_once

    def test_turns_added_after_a_count_are_weighed(self, ada: UserProfile) -> None:
        say(ada, "A kiln.", "Good.")
        count(ada)
        say(ada, *(f"The kiln is warm, day {n}." for n in range(20)), "The glaze is dry.", role="user", session_id="s2")
        assert contents(ada, "kiln glaze", "turn")[0] == "The glaze is dry."

    def test_a_search_takes_as_many_queries_before_a_count_as_after(self, ada: UserProfile) -> None:
        def statements() -> int:
            with CaptureQueriesContext(connection) as captured:
                contents(ada, "harpsichord from Lyon")
            return len(captured)

        say(ada, *SAID.values())
        at_once = statements()
        count(ada)
        assert at_once <= statements() + 1 <= 4  # a word that was not counted may be misspelled


class TestIndexedAgain:
    """Rows whose words were extracted by another version."""

    @staticmethod
    def _by_the_version_before(table: str = "sessions_app_message", text: str = "content") -> None:
        with connection.cursor() as cursor:
            cursor.execute(OLD_SQL.format(table=table, text=text))

    def test_old_rows_are_found_before_and_after_reindexing(self, ada: UserProfile) -> None:
        say(ada, *SAID.values())
        self._by_the_version_before()
        for query in ("harpsichords", "парке", "Klavierprüfungen"):
            assert len(contents(ada, query, "turn")) > 0
        assert contents(ada, "公园", "turn") == []
        assert index_words().rows == len(SAID)
        for query, text in SAID.items():
            assert contents(ada, query, "turn", most=1) == [text]
        assert index_words().rows == 0

    def test_every_table_is_reindexed_and_its_words_are_counted_again(self, ada: UserProfile) -> None:
        text = SAID["парк"]
        say(ada, text)
        moment(ada, "парк", text)
        note(own_stream(ada), text, "fact")
        count(ada)
        for table, column in (
            ("sessions_app_message", "content"),
            ("moments_app_moment", "summary"),
            ("moments_app_memoryatom", "content"),
        ):
            self._by_the_version_before(table, column)
        Word.objects.all().delete()
        assert index_words(dry_run=True).rows == 3
        call_command("run_schedule", "index_words")
        work_off()
        assert index_words(dry_run=True).is_done
        word = Word.objects.get(stem="парк")
        assert (word.facts, word.moments, word.turns) == (1, 1, 1)

    def test_a_row_inserted_by_sql_is_found_after_the_sweep(self, ada: UserProfile) -> None:
        say(ada, "Hello.")
        columns = "session_id, user_id, kind, role, tool_name, tokens, created_at, metadata"
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO sessions_app_message (sequence, content, {columns})"
                f" SELECT 1, 'The harpsichord came.', {columns} FROM sessions_app_message"
            )
        assert contents(ada, "harpsichord") == []
        call_command("run_schedule", "index_words")
        assert "The harpsichord came." in contents(ada, "harpsichord")

    def test_a_text_changed_by_sql_is_found_by_its_new_words_after_the_sweep(self, ada: UserProfile) -> None:
        say(ada, "The harpsichord came.")
        Message.objects.update(content="Die Orgel kam an.")
        assert contents(ada, "Orgeln") == []
        index_words()
        assert contents(ada, "Orgeln") == ["Die Orgel kam an."]
        assert contents(ada, "harpsichord") == []

    def test_a_row_whose_text_was_removed_keeps_its_words(self, ada: UserProfile) -> None:
        say(ada, "The harpsichord came.", "Die Orgel kam.")
        self._by_the_version_before()
        Message.objects.update(content="")
        index_words()
        Message.objects.update(content="")
        assert index_words(dry_run=True).is_done
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM sessions_app_message WHERE search_vector @@ 'harpsichord'")
            assert cursor.fetchone() == (1,)

    def test_a_row_without_words_is_not_considered_indexed(self, ada: UserProfile) -> None:
        say(ada, "The harpsichord came.")
        columns = "session_id, user_id, kind, role, tool_name, content, tokens, created_at, metadata, search_version"
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO sessions_app_message (sequence, {columns}) SELECT 1, {columns} FROM sessions_app_message"
            )
        assert index_words(dry_run=True).rows == 1

    def test_changed_texts_are_immediately_found_by_their_new_words_only(self, ada: UserProfile) -> None:
        atom = note(own_stream(ada), "Spielt Klavier.", "fact")
        atom.content = "Spielt seit Jahren Orgel."
        atom.save(update_fields=["content", "content_hash"])
        assert contents(ada, "Klavier") == [] and contents(ada, "Orgeln") == ["Spielt seit Jahren Orgel."]
        made = moment(ada, "m", "The kiln.")
        again = Moment.objects.defer("search_vector").get(pk=made.pk)
        again.summary = "The oven."
        again.save()
        assert contents(ada, "kiln") == [] and contents(ada, "ovens") == ["The oven."]
        again.delete()
        assert contents(ada, "ovens") == []
        assert index_words(dry_run=True).is_done

    def test_a_run_stops_on_time_and_the_next_continues(
        self, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.recall.index_words.BATCH", 2)
        say(ada, *(f"harpsichord {n}" for n in range(5)))
        self._by_the_version_before()
        assert (index_words(seconds=0).rows, index_words(seconds=0).rows) == (2, 2)
        assert Job.objects.filter(process="count_words", user=ada).count() == 1
        assert index_words() == index_words().__class__(1, is_done=True)

    def test_locked_rows_are_skipped(self, ada: UserProfile, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("moments_app.recall.index_words.BATCH", 2)
        say(ada, *(f"harpsichord {n}" for n in range(5)))
        self._by_the_version_before()
        other: Any = connection.copy()
        other.connect()
        with other.connection.transaction():
            other.connection.execute(
                f"SELECT FROM sessions_app_message WHERE user_id = {ada.pk} AND sequence < 2 FOR UPDATE"
            )
            assert index_words().rows == 3
        other.close()
        assert index_words().rows == 2

    def test_reading_a_row_does_not_load_its_words(self, ada: UserProfile) -> None:
        say(ada, "The harpsichord came.")
        with CaptureQueriesContext(connection) as captured:
            [message] = Message.objects.all()
        assert '"search_vector"' not in captured[0]["sql"]
        assert message.search_vector == "'harpsichord':2 'came':3"  # derived from its content


class TestIsolation:
    """Row 9 for the counts of words."""

    def test_row_9_typos_are_not_corrected_to_words_of_another_person(self, ada: UserProfile, bo: UserProfile) -> None:
        say(bo, "The harpsichord came from Lyon.")
        say(ada, "Nothing to say.")
        with acting_for("ada", application=DEFAULT) as acting:
            assert acting is not None
            assert recall(acting, "", RecallRequest("harpsicord", since=timezone.now() - timedelta(days=9999))) == []
