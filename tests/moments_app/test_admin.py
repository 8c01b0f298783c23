"""The operator's pages of memory, asked for as a browser asks."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django.fixtures import Settings

from moments_app.models import ContextReceipt, Entity, Job, MemoryStream, Moment, PromptResource, Summary
from moments_app.prompts import MOMENT_BUILDER_URI
from moments_app.recall import receipts
from sessions_app.models import Event, Session, UserProfile
from sessions_app.processes.append import NewMessage, append
from tests.support.jobs import assert_chain_is_whole, build
from tests.support.operator import operator
from tests.support.streams import note, shard
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

PLANTED = "<script>alert('planted')</script>"
MAX_QUERIES = 20


@pytest.fixture
def root(transactional_db: None) -> Client:
    return operator()


@pytest.fixture
def built(ada: UserProfile) -> Session:
    """A session of 120 turns, the older of them in moments."""
    session = talk(ada, 120)
    assert build(session).status == Job.Status.COMPLETED
    session.refresh_from_db()
    return session


@pytest.fixture
def prompt(transactional_db: None) -> PromptResource:
    return PromptResource.objects.get(uri=MOMENT_BUILDER_URI)


def change_url(thing: Any) -> str:
    return reverse(f"admin:{thing._meta.app_label}_{thing._meta.model_name}_change", args=[thing.pk])


def list_url(model: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def page(client: Client, url: str, **query: Any) -> str:
    answer = client.get(url, query)
    assert answer.status_code == 200
    return answer.content.decode()


def queries_of(client: Client, url: str) -> int:
    page(client, url)  # what is cached for good is cached now
    with CaptureQueriesContext(
        connection,
    ) as captured:
        page(client, url)
    return len(captured)


class TestSession:
    """The transcript."""

    def test_it_shows_the_newest_turns_the_boundary_and_the_live_window(self, root: Client, built: Session) -> None:
        shown = page(root, change_url(built))
        assert "Turn 119 is about" in shown
        assert "turns 20–119 of 120" in shown
        assert shown.index("partition") < shown.index("Live window")
        assert shown.index(f'id="turn-{built.last_moment_message_idx}"') < shown.index("Live window")
        for moment in Moment.objects.filter(source_session=built, last_sequence__gte=20):
            assert change_url(moment) in shown

    def test_one_can_page_back_and_forth(self, root: Client, built: Session) -> None:
        earlier = page(root, change_url(built), before=20)
        assert "Turn 0 is about" in earlier
        assert "Turn 20 is about" not in earlier
        assert "?after=19" in earlier
        assert "Turn 20 is about" in page(root, change_url(built), after=19)

    @pytest.mark.parametrize("asked", ["-1", "x", "9" * 30, "²", ""])
    def test_nonsense_in_the_address_shows_the_newest(self, root: Client, built: Session, asked: str) -> None:
        assert "Turn 119 is about" in page(root, change_url(built), before=asked)

    def test_a_build_can_be_asked_for_by_post_alone(self, root: Client, built: Session) -> None:
        url = reverse("admin:sessions_app_session_build", args=[built.pk])
        before = Job.objects.count()
        assert root.get(url).status_code == 405
        assert Job.objects.count() == before
        answer = root.post(url, follow=True)
        job = Job.objects.latest("id")
        assert answer.redirect_chain[-1][0] == change_url(job)
        assert (job.force, job.requested_by) == (True, "operator:root")
        assert LogEntry.objects.filter(object_id=str(built.pk), change_message__contains="built").exists()

    def test_a_form_of_another_site_is_refused(self, built: Session) -> None:
        client = operator()
        strict = Client(enforce_csrf_checks=True)
        strict.cookies = client.cookies
        assert strict.post(reverse("admin:sessions_app_session_build", args=[built.pk])).status_code == 403

    def test_it_is_found_by_the_beginning_of_its_id_or_of_its_persons(self, root: Client, ada: UserProfile) -> None:
        talk(ada, 2, session_id="alpha")
        talk(ada, 2, session_id="beta")
        shown = page(root, list_url(Session), q="alp")
        assert "alpha" in shown and "beta" not in shown
        assert "beta" in page(root, list_url(Session), q="ad")
        assert "beta" not in page(root, list_url(Session), q="%_")
        assert root.get(list_url(Session), {"q": "a\0b"}).status_code == 200

    def test_its_legal_hold_is_set_by_hand_and_noted_and_no_counter_is_overwritten(
        self, root: Client, built: Session
    ) -> None:
        assert root.post(change_url(built), {"title": "Kiln", "legal_hold": "on"}).status_code == 302
        built.refresh_from_db()
        assert (built.title, built.legal_hold, built.message_count) == ("Kiln", True, 120)
        assert Event.objects.get(type="legal_hold_set").actor == "operator:root"
        assert root.post(change_url(built), {"title": "Kiln", "legal_hold": "on"}).status_code == 302
        assert root.post(change_url(built), {"title": "Kiln"}).status_code == 302
        assert Event.objects.filter(type__startswith="legal_hold").count() == 2

    def test_turns_that_are_archived_are_told_there_and_at_their_moments(self, root: Client, built: Session) -> None:
        built.messages.filter(sequence__lt=50).delete()
        Session.objects.update(kept_from_sequence=50)
        shown = page(root, change_url(built))
        assert "Turns before 50 are past their keep-by date" in shown
        assert "turns 50–119 of 120" in shown and "Earlier turns" not in shown
        first = Moment.objects.earliest("id")
        assert "Turns before 50 are past their keep-by date" in page(root, change_url(first))
        built.messages.all().delete()
        Session.objects.update(kept_from_sequence=120)
        assert "no turns" in page(root, change_url(built))


class TestMoment:
    """Moments with their chain and sources."""

    def test_it_is_read_beside_its_source_turns_and_between_its_neighbours(self, root: Client, built: Session) -> None:
        first, second, third = Moment.objects.order_by("id")[:3]
        shown = page(root, change_url(second))
        assert change_url(first) in shown and change_url(third) in shown
        assert f'id="turn-{second.first_sequence}"' in shown and f'id="turn-{second.last_sequence}"' in shown
        assert f'id="turn-{second.last_sequence + 1}"' not in shown
        assert f"{change_url(built)}?before=" in shown
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


class TestPrompt:
    """The editor of prompts and its versions."""

    def add(self, client: Client, prompt: PromptResource, **data: str) -> Any:
        url = reverse("admin:moments_app_promptresource_add_version", args=[prompt.pk])
        return client.post(url, {"content": "A new text.", "note": "try", **data}, follow=True)

    def test_saving_makes_a_version_that_is_not_in_force_yet(self, root: Client, prompt: PromptResource) -> None:
        answer = self.add(root, prompt, content="Line one.\r\nLine two.\r\n")
        version = prompt.versions.latest("number")
        assert (version.content, version.note) == ("Line one.\nLine two.\n", "try")
        assert version.created_by == "operator:root"
        prompt.refresh_from_db()
        assert prompt.active_version != version
        assert "Line one." in answer.content.decode()

    def test_a_version_is_put_in_force_and_rolled_back_with_an_event_each(
        self, root: Client, prompt: PromptResource
    ) -> None:
        self.add(root, prompt, activate="")
        prompt.refresh_from_db()
        assert prompt.active_version and prompt.active_version.content == "A new text."
        back = reverse("admin:moments_app_promptresource_activate", args=[prompt.pk, 1])
        assert root.get(back).status_code == 405
        assert "Version 1 is in force." in root.post(back, follow=True).content.decode()
        prompt.refresh_from_db()
        assert prompt.active_version.number == 1
        events = Event.objects.filter(type="prompt_activated").order_by("id")
        assert [(event.actor, event.payload["version"]) for event in events] == [
            ("operator:root", 2),
            ("operator:root", 1),
        ]

    @pytest.mark.parametrize("content", ["", "  \n ", "x" * 100_001, "a\0b"])
    def test_a_text_that_is_none_is_refused_by_name(self, root: Client, prompt: PromptResource, content: str) -> None:
        assert "content: " in self.add(root, prompt, content=content).content.decode()
        assert prompt.versions.count() == 1

    def test_an_unknown_version_is_not_found(self, root: Client, prompt: PromptResource) -> None:
        assert root.post(reverse("admin:moments_app_promptresource_activate", args=[prompt.pk, 99])).status_code == 404


class TestJob:
    """Jobs and what can be done about failed ones."""

    @pytest.fixture
    def failed(self, ada: UserProfile) -> Job:
        job = build(talk(ada, 10))
        Job.objects.filter(pk=job.pk).update(status=Job.Status.FAILED, error="The model is away.", attempts=5)
        return job

    def test_a_failed_job_is_retried_and_a_completed_one_is_not(
        self, root: Client, failed: Job, bo: UserProfile
    ) -> None:
        completed = build(talk(bo, 60))
        data = {"action": "retry", "_selected_action": [failed.pk, completed.pk]}
        shown = root.post(list_url(Job), data, follow=True).content.decode()
        assert "is queued again" in shown
        assert str(completed.job_id) in shown
        failed.refresh_from_db()
        completed.refresh_from_db()
        assert (failed.status, completed.status) == (Job.Status.QUEUED, Job.Status.COMPLETED)

    def test_it_shows_its_error(self, root: Client, failed: Job) -> None:
        assert "The model is away." in page(root, change_url(failed))

    def test_it_is_found_by_its_id(self, root: Client, failed: Job) -> None:
        assert change_url(failed) in page(root, list_url(Job), q=str(failed.job_id))
        assert change_url(failed) not in page(root, list_url(Job), q="12")


def everything_shown(root: Client) -> list[str]:
    """The text of every page that shows something of Ada."""
    models = [Session, Moment, UserProfile, Job, PromptResource, Event, Entity, Summary, ContextReceipt]
    pages = [page(root, list_url(model)) for model in models]
    return pages + [page(root, change_url(thing)) for model in models for thing in model._default_manager.all()[:4]]


def test_row_18_a_script_in_any_text_is_shown_and_never_run(root: Client, ada: UserProfile) -> None:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    turns = [
        NewMessage(
            role="tool" if number % 5 == 4 else "user",
            content=f"{PLANTED} {number}",
            tool_name=PLANTED[:64] if number % 5 == 4 else "",
            payload={"tool_calls": [{"id": PLANTED, "function": {"name": PLANTED}}]},
            metadata={"x": PLANTED},
            created_at=at,
        )
        for number in range(60)
    ]
    session = append(ada, PLANTED, turns).session
    build(session)
    Moment.objects.update(
        name=PLANTED, summary=PLANTED, detail=PLANTED, topic_tags=[PLANTED], present_persons=[PLANTED]
    )
    UserProfile.objects.update(user_id=PLANTED, summary=PLANTED, interests=[PLANTED], metadata={"x": PLANTED})
    Session.objects.update(title=PLANTED, metadata={"x": PLANTED})
    Job.objects.update(error=PLANTED)
    Event.objects.create(type="x", actor=PLANTED, payload={"x": PLANTED})
    PromptResource.objects.update(name=PLANTED)
    Entity.objects.create(user=ada, kind="task", title=PLANTED, body=PLANTED)
    Summary.objects.create(
        session=session, user=ada, start_sequence=0, end_sequence=5, text=PLANTED, error=PLANTED, facts=[PLANTED]
    )
    PromptResource.objects.get(uri=MOMENT_BUILDER_URI).add_version(
        f"</textarea>{PLANTED}", created_by=PLANTED, note=PLANTED
    )
    shown = everything_shown(root)
    assert sum("planted" in text for text in shown) >= 10
    for text in shown:
        assert PLANTED not in text
        assert not re.search(r"<script>alert", text)


def test_row_18_a_viewer_sees_every_page_and_changes_nothing(built: Session, prompt: PromptResource) -> None:
    viewer = operator("view_")
    everything_shown(viewer)
    moment, before = Moment.objects.earliest("id"), Moment.objects.count()
    Job.objects.update(status=Job.Status.FAILED)
    posts = [
        (change_url(moment), {"name": "x", "summary": "x"}),
        (change_url(built), {"title": "x"}),
        (change_url(built.user), {"summary": "x"}),
        (reverse("admin:sessions_app_session_build", args=[built.pk]), {}),
        (reverse("admin:moments_app_promptresource_add_version", args=[prompt.pk]), {"content": "x"}),
        (reverse("admin:moments_app_promptresource_activate", args=[prompt.pk, 1]), {}),
        (reverse("admin:moments_app_moment_delete", args=[moment.pk]), {"post": "yes"}),
    ]
    assert [viewer.post(url, data).status_code for url, data in posts] == [403] * len(posts)
    actions = [(Moment, "delete_selected", moment.pk), (Job, "retry", Job.objects.earliest("id").pk)]
    for model, action, pk in actions:
        viewer.post(list_url(model), {"action": action, "_selected_action": [pk], "post": "yes"})
    assert Moment.objects.count() == before
    assert Job.objects.get().status == Job.Status.FAILED
    assert prompt.versions.count() == 1
    shown = page(viewer, change_url(built)) + page(viewer, change_url(prompt))
    assert "Build moments now" not in shown and "put in force" not in shown.lower()


def test_somebody_without_rights_sees_nothing(built: Session) -> None:
    nobody = operator("nothing")
    for model in (Session, Moment, UserProfile, Job, PromptResource):
        assert nobody.get(list_url(model)).status_code == 403
    assert nobody.get(change_url(built)).status_code == 403


def test_no_page_asks_more_of_the_database_when_there_is_more(root: Client, ada: UserProfile) -> None:
    def asked() -> dict[str, int]:
        urls = [list_url(model) for model in (Session, Moment, UserProfile, Job, Event, PromptResource)]
        urls += [change_url(Session.objects.earliest("id")), change_url(Moment.objects.order_by("id")[3])]
        return {url: queries_of(root, url) for url in urls}

    first = talk(ada, 150, session_id="first")
    build(first)
    few = asked()
    for number in range(12):
        person = UserProfile.objects.ensure(f"person-{number}")
        build(talk(person, 60, session_id=f"s{number}"))
    talk(ada, 60, session_id="first")
    build(first)
    many = asked()
    assert few == many
    assert max(many.values()) <= MAX_QUERIES


class TestContextPreview:
    """What an application would get, looked at."""

    def url(self, session: Session) -> str:
        return reverse("admin:sessions_app_session_context", args=[session.pk])

    def test_it_shows_layers_with_tokens_and_where_each_line_is_from(self, root: Client, built: Session) -> None:
        entity = Entity.objects.create(user=built.user, kind="task", title="Order the element")
        shown = page(root, self.url(built), query="The element?", max_tokens=2000, format="markdown")
        for moment in Moment.objects.newest_first()[:3]:
            assert change_url(moment) in shown
        assert change_url(entity) in shown and change_url(built.user) in shown
        assert f"{change_url(built)}?before=" in shown
        assert "of 2000 tokens" in shown and "Nothing was trimmed." in shown
        assert "## The user" in shown

    def test_it_says_what_was_trimmed_and_when_the_budget_is_too_small(self, root: Client, built: Session) -> None:
        assert "hot_turns: " in page(root, self.url(built), max_tokens=300, format="xml")
        assert "Policy and query alone need" in page(root, self.url(built), max_tokens=5, format="xml")
        assert "max_tokens" in page(root, self.url(built), max_tokens="many", format="xml").lower().replace(" ", "_")

    def test_what_was_retrieved_leads_to_its_own_session_and_fact(self, root: Client, built: Session) -> None:
        other = append(built.user, "a/b", [NewMessage("user", "The harpsichord came from Lyon.")]).session
        stream = MemoryStream.objects.create(stream_type="user", agent_id="other", user=built.user)
        fact = note(stream, "Plays the harpsichord.", "fact")
        shown = page(root, self.url(built), query="harpsichord", max_tokens=2000)
        assert f"{change_url(other)}?before=51#turn-0" in shown
        assert change_url(fact) in shown
        assert "searched by words alone" in shown

    def test_looking_leaves_no_receipt(self, root: Client, built: Session, settings: Settings) -> None:
        settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"receipt_days": 7})
        page(root, self.url(built))
        receipts.waiting.flush()
        assert not ContextReceipt.objects.exists()

    def test_row_18_planted_scripts_stay_text(self, root: Client, built: Session) -> None:
        Moment.objects.update(summary=PLANTED)
        UserProfile.objects.update(summary=PLANTED)
        append(built.user, "s1", [NewMessage("user", f"</textarea>{PLANTED}")])
        for name in ("xml", "markdown", "messages"):
            shown = page(root, self.url(built), query=f'"></textarea>{PLANTED}', format=name)
            assert "planted" in shown and PLANTED not in shown

    def test_the_same_number_of_queries_however_much_there_is(self, root: Client, built: Session) -> None:
        few = queries_of(root, self.url(built))
        Entity.objects.bulk_create(Entity(user=built.user, kind="task", title=f"t{n}") for n in range(50))
        talk(built.user, 100)
        many = queries_of(root, self.url(built))
        assert many <= few + 1 <= MAX_QUERIES  # links are only looked for when there is something to link


class TestAtoms:
    """Items of streams, written and corrected by hand."""

    @pytest.fixture
    def repairs(self, transactional_db: None) -> MemoryStream:
        return shard("repairs")

    def test_what_an_operator_writes_is_pinned_and_asked_to_be_found_well(
        self, root: Client, repairs: MemoryStream
    ) -> None:
        before = repairs.last_updated_at
        fields = {"stream": repairs.pk, "atom_type": "fact", "content": "Felt wears out.", "state": "active"}
        when = {"formed_at_0": "2026-03-02", "formed_at_1": "08:00:00"}
        answer = root.post(reverse("admin:moments_app_memoryatom_add"), fields | when)
        assert answer.status_code == 302, answer.content.decode()[-3_000:]
        atom = repairs.atoms.get()
        assert (atom.is_pinned, atom.user_id, atom.engine) == (True, None, "")
        repairs.refresh_from_db()
        assert repairs.last_updated_at > before
        assert Job.objects.get(process="count_words").stream == repairs

    def test_what_is_corrected_is_pinned_what_is_only_looked_at_is_not(
        self, root: Client, repairs: MemoryStream
    ) -> None:
        atom = note(repairs, "Felt wears out.", "fact", engine="extractive")
        fields = {"content": "Felt wears out in a year.", "state": "active"}
        when = {"formed_at_0": "2026-03-02", "formed_at_1": "08:00:00"}
        assert root.post(change_url(atom), fields | when).status_code == 302
        atom.refresh_from_db()
        assert (atom.content, atom.is_pinned, atom.engine) == ("Felt wears out in a year.", True, "extractive")
        other = note(repairs, "A jack is of wood.", "fact")
        assert root.post(change_url(other), {"content": other.content, "state": "evicted"} | when).status_code == 302
        other.refresh_from_db()
        assert (other.state, other.is_pinned) == ("evicted", False)

    def test_what_the_stream_has_already_is_refused_in_words(self, root: Client, repairs: MemoryStream) -> None:
        note(repairs, "Felt wears out.", "fact")
        fields = {"stream": repairs.pk, "atom_type": "fact", "content": "felt WEARS out", "state": "active"}
        when = {"formed_at_0": "2026-03-02", "formed_at_1": "08:00:00"}
        answer = root.post(reverse("admin:moments_app_memoryatom_add"), fields | when)
        assert "The stream has this already." in answer.content.decode()
        assert repairs.atoms.count() == 1
