"""The pages of streams: their items, the versions of their text, and an operator's actions."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from moments_app.interfaces.api.streams import IGNORED_FIELDS
from moments_app.models import Job, MemoryStream
from moments_app.models.stream import SHARD_DEFAULTS
from moments_app.operator.admin.stream import PAGE
from moments_app.operator.diff import word_diff
from sessions_app.models import UserProfile
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, list_url, page, queries_of
from tests.support.streams import fold, note, rewrite, shard
from tests.support.transcript import START, talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def own(ada: UserProfile) -> MemoryStream:
    """The user stream of Ada, with two waiting observations."""
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    note(stream, "Wants short answers.", formed_at=START)
    note(stream, "Lives in Turin.", formed_at=START + timedelta(days=1))
    return stream


def url(stream: MemoryStream, verb: str, *more: object) -> str:
    return reverse(f"admin:moments_app_memorystream_{verb}", args=[stream.pk, *more])


class TestDiff:
    """The difference word by word."""

    def test_both_texts_can_be_restored_from_a_diff(self) -> None:
        before, after = "  One two\nthree  four.\n", "One two\n\nthree four, five."
        parts = word_diff(before, after)
        assert "".join(part.text for part in parts if part.change != "added") == before
        assert "".join(part.text for part in parts if part.change != "removed") == after

    def test_unchanged_words_are_not_marked(self) -> None:
        parts = word_diff("She lives in Turin.", "She lives in Rome.")
        assert [(part.change, part.text) for part in parts] == [
            ("same", "She lives in"),
            ("removed", " Turin."),
            ("added", " Rome."),
        ]
        assert [part.words for part in parts] == [3, 1, 1]

    def test_equal_texts_have_no_changes(self) -> None:
        assert {part.change for part in word_diff("a b", "a b")} == {"same"}
        assert word_diff("", "") == []


class TestList:
    def test_the_list_shows_waiting_items_and_the_last_consolidation(self, root: Client, own: MemoryStream) -> None:
        note(own, "Felt wears out.", "fact")
        note(own, "Kept as it is.", is_pinned=True)
        shown = page(root, list_url(MemoryStream))
        assert "2 of 10" in shown and "never" in shown
        fold(own)
        shown = page(root, list_url(MemoryStream))
        assert "0 of 10" in shown and "never" not in shown

    def test_a_stream_is_found_by_a_prefix_of_its_owner(self, root: Client, own: MemoryStream, bo: UserProfile) -> None:
        other = MemoryStream.objects.ensure_of_person(bo, "default")
        shown = page(root, list_url(MemoryStream), q="ad")
        assert change_url(own) in shown and change_url(other) not in shown

    def test_empty_lists_and_searches_say_why(self, root: Client) -> None:
        shown = page(root, list_url(MemoryStream))
        assert "The first conversations create a text about each session" in shown and "Add memory text" in shown
        assert re.search(r"<title>\s*Memory texts \|", shown)
        assert "Nothing matches" in page(root, list_url(MemoryStream), q="x")

    def test_a_new_shard_has_the_defaults_of_the_api(self, root: Client) -> None:
        form = root.get(reverse("admin:moments_app_memorystream_add")).context["adminform"].form
        begins = {name: form[name].value() for name in form.fields}
        defaults = {name: value for name, value in vars(SHARD_DEFAULTS).items() if name not in IGNORED_FIELDS}
        assert {name: begins[name] for name in defaults} == defaults
        assert not begins.keys() & set(IGNORED_FIELDS)

    def test_a_shard_requires_an_unused_name(self, root: Client) -> None:
        shard("repairs")
        fields: dict[str, object] = dict.fromkeys(("observation_max_words", "fact_max_words", "fact_buffer_max"), 30)
        fields |= {"consolidation_trigger": 5, "consolidated_max_words": 400}
        asked = fields | {"extraction_prompt": "x", "is_active": "on", "agent_id": ""}
        refused: list[tuple[dict[str, object], str]] = [
            ({"name": ""}, "This field is required."),
            ({"name": "repairs"}, "This agent already has a shared memory with this name. Choose another name."),
        ]
        for wrong, told in refused:
            answer = root.post(reverse("admin:moments_app_memorystream_add"), asked | wrong)
            assert told in answer.content.decode()
        assert root.post(reverse("admin:moments_app_memorystream_add"), asked | {"name": "new"}).status_code == 302
        assert MemoryStream.objects.get(name="new").stream_type == "agent"


class TestPage:
    def test_the_page_shows_items_and_the_next_consolidation(self, root: Client, own: MemoryStream) -> None:
        note(own, "Felt wears out.", "fact", access_count=7, last_accessed_at=START)
        note(own, "No longer so.", "fact", state="evicted")
        shown = page(root, change_url(own))
        assert "Wants short answers." in shown and "Felt wears out." in shown and "No longer so." not in shown
        assert "used 7×" in shown
        assert "The text is updated automatically after 8 more observations." in shown
        assert "0 of 400 words" in shown

    def test_each_line_shows_its_sources(self, root: Client, own: MemoryStream) -> None:
        fold(own)
        own.refresh_from_db()
        rewrite(own, f"{own.consolidated_content}\nNever call <b>early</b>.")
        shown = page(root, change_url(own))
        assert shown.count("from 1 observation<") == 2
        assert "Never call &lt;b&gt;early&lt;/b&gt;." in shown and shown.count("written by hand, kept") == 1

    def test_items_without_a_line_differ_from_new_ones(self, root: Client, own: MemoryStream) -> None:
        MemoryStream.objects.update(consolidated_max_words=1)
        fold(own)
        note(own, "Repairs pianos.")
        shown = page(root, change_url(own))
        assert "3 waiting, 1 of them new (the text is updated after 10 new ones)" in shown
        assert "The text is updated automatically after 9 more observations." in shown

    @pytest.mark.slow
    def test_a_requested_consolidation_is_shown_until_it_is_done(self, root: Client, own: MemoryStream) -> None:
        shown = root.post(url(own, "consolidate"), follow=True).content.decode()
        job = Job.objects.get(process="consolidate")
        assert (job.stream, job.force, job.requested_by) == (own, True, "operator:root")
        assert "A merge is queued." in shown and change_url(job) in shown
        Job.objects.update(status=Job.Status.FAILED, error="The model is away.")
        assert "The last merge failed: The model is away." in page(root, change_url(own))

    @pytest.mark.slow
    def test_undoing_the_last_consolidation_keeps_later_items(self, root: Client, own: MemoryStream) -> None:
        assert "Undo last merge" not in page(root, change_url(own))
        fold(own)
        assert "Undo last merge" in page(root, change_url(own))
        root.post(url(own, "undo"))
        own.refresh_from_db()
        assert own.consolidated_content == "" and own.atoms.active().count() == 2
        fold(own)
        rewrite(own, f"{own.consolidated_content}\nBy hand.")
        root.post(url(own, "undo"))
        own.refresh_from_db()
        assert own.consolidated_content == "By hand." and own.atoms.active().count() == 2
        assert "There is no merge to undo." in root.post(url(own, "undo"), follow=True).content.decode()

    @pytest.mark.slow
    def test_editing_a_setting_keeps_a_text_consolidated_meanwhile(self, root: Client, own: MemoryStream) -> None:
        answer = root.get(change_url(own))
        fields = {name: value for name, value in answer.context["adminform"].form.initial.items() if value is not None}
        fold(own)
        own.refresh_from_db()
        text = own.consolidated_content
        asked = fields | {"consolidation_trigger": 9, "consolidated_content": text}
        assert root.post(change_url(own), asked).status_code == 302
        own.refresh_from_db()
        assert (own.consolidation_trigger, own.consolidated_content) == (9, text)

    def test_editing_a_text_and_a_setting_locks_the_person_before_the_stream(
        self, root: Client, own: MemoryStream
    ) -> None:
        answer = root.get(change_url(own))
        fields = {name: value for name, value in answer.context["adminform"].form.initial.items() if value is not None}
        asked = fields | {"consolidation_trigger": 9, "consolidated_content": "By hand."}
        with CaptureQueriesContext(connection) as queries:
            assert root.post(change_url(own), asked).status_code == 302
        holding = [
            one["sql"] for one in queries if "FOR NO KEY UPDATE" in one["sql"] or one["sql"].startswith("UPDATE")
        ]
        tables = [MemoryStream._meta.db_table, UserProfile._meta.db_table]
        first = next(sql for sql in holding if any(table in sql for table in tables))
        assert UserProfile._meta.db_table in first
        own.refresh_from_db()
        assert (own.consolidation_trigger, own.consolidated_content) == (9, "By hand.")

    def test_more_facts_are_loaded_with_and_without_javascript(self, root: Client, own: MemoryStream) -> None:
        for number in range(PAGE + 3):
            note(own, f"Fact {number:02}.", "fact", formed_at=START + timedelta(minutes=number // 2))
        first = page(root, change_url(own))
        assert "Fact 22." in first and "Fact 02." not in first
        last = own.atoms.facts().newest_first()[PAGE - 1]
        more = f"{url(own, 'items', 'fact')}?after={last.pk}"
        assert more in first
        plain = page(root, more)
        assert "Fact 02." in plain and "Fact 03." not in plain and "<html" in plain
        part = root.get(more, headers={"HX-Request": "true"}).content.decode()
        assert "Fact 00." in part and "<html" not in part and "Earlier items" not in part

    def test_the_owner_of_a_text_takes_no_extra_queries(self, root: Client, ada: UserProfile) -> None:
        session = talk(ada, 2)
        MemoryStream.objects.ensure_for(session)
        of_session = MemoryStream.objects.get(session=session)
        asked, of_shard = (queries_of(root, url(stream, "items", "fact")) for stream in (of_session, shard("repairs")))
        assert asked == of_shard + 1  # the access log of the person

    def test_an_unknown_kind_of_item_is_not_found(self, root: Client, own: MemoryStream) -> None:
        assert root.get(url(own, "items", "moment")).status_code == 404


def test_get_requests_change_nothing(root: Client, own: MemoryStream) -> None:
    assert [root.get(url(own, verb)).status_code for verb in ("consolidate", "undo")] == [405, 405]


@pytest.mark.slow
def test_pages_take_a_constant_number_of_queries(root: Client, own: MemoryStream) -> None:
    def asked() -> list[int]:
        urls = [change_url(own), url(own, "items", "fact")]
        return [queries_of(root, address) for address in [list_url(MemoryStream), *urls]]

    note(own, "Felt wears out.", "fact")
    fold(own)
    note(own, "Repairs pianos.")
    few = asked()
    for number in range(60):
        person = UserProfile.objects.ensure(f"person-{number}")
        MemoryStream.objects.ensure_for(talk(person, 2))
        note(own, f"Fact {number}.", "fact")
        note(own, f"Observation {number}.")
    fold(own)
    for number in range(60):
        note(own, f"Another observation {number}.")
    assert asked() == few
    assert max(few) <= MAX_QUERIES


class TestByHand:
    """Adding a shard, and undoing a text from the list."""

    def test_a_shard_can_be_added_from_the_list(self, transactional_db: None) -> None:
        root = operator()
        defaults = {"name": "kilns", "agent_id": "", "is_active": "on", "extraction_prompt": "Ways to repair."}
        limits = {"observation_max_words": 5, "fact_max_words": 5, "fact_buffer_max": 100, "consolidation_trigger": 5}
        forms = {"versions-TOTAL_FORMS": 0, "versions-INITIAL_FORMS": 0, "consolidated_max_words": 400}
        answer = root.post(reverse("admin:moments_app_memorystream_add"), defaults | limits | forms)
        assert answer.status_code == 302, answer.content
        assert MemoryStream.objects.get().stream_type == "agent"

    @pytest.mark.slow
    def test_a_consolidation_is_undone_from_the_list(self, own: MemoryStream) -> None:
        root = operator()
        note(own, "<script>alert('planted')</script>")
        listed = reverse("admin:moments_app_memorystream_changelist")
        for url in (listed, reverse("admin:moments_app_memoryatom_changelist")):
            assert "<script>alert('planted')" not in root.get(url).content.decode()
        fold(own)
        page = root.get(reverse("admin:moments_app_memorystream_change", args=[own.pk])).content.decode()
        assert "planted" in page and "<script>alert('planted')" not in page
        selected = {"action": "undo", "_selected_action": [own.pk]}
        assert "Undo these merges" in root.post(listed, selected).content.decode()
        own.refresh_from_db()
        assert own.consolidated_content
        root.post(listed, selected | {"sure": "1"})
        own.refresh_from_db()
        assert own.consolidated_content == ""

    def test_row_18_a_viewer_cannot_change_a_stream(self, own: MemoryStream) -> None:
        viewer = operator("view_")
        note(own, "An observation.")
        fold(own)
        own.refresh_from_db()
        listed = reverse("admin:moments_app_memorystream_changelist")
        viewer.post(listed, {"action": "undo", "_selected_action": [own.pk], "sure": "1"})
        assert viewer.post(reverse("admin:moments_app_memorystream_change", args=[own.pk]), {}).status_code == 403
        before = own.consolidated_content
        own.refresh_from_db()
        assert own.consolidated_content == before != ""
