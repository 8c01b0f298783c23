"""The pages of a person: current and past facts, days as lanes, related items, and cost."""

import re
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from moments_app.models import (
    EngineCall,
    EntityLink,
    Job,
    KnownPerson,
    MemoryAtom,
    MemoryStream,
    Moment,
    Retraction,
    Summary,
)
from moments_app.models.atom import content_hash
from moments_app.operator.views.person import DAYS_SHOWN, EVENTS_SHOWN, EventCursor, days_of
from sessions_app.models import Session, UserProfile
from tests.support.entities import make_entity
from tests.support.lives import BERGEN, MAYA, OSLO, say
from tests.support.moments import remember
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, page, queries_of
from tests.support.streams import note, shard, written
from tests.support.transcript import START, talk

pytestmark = pytest.mark.django_db(transaction=True)

PAGES = ("change", "days", "entities", "cost", "details")


def url(user: UserProfile, name: str) -> str:
    return reverse(f"admin:sessions_app_userprofile_{name}", args=[user.pk])


def escaped(text: str) -> str:
    return text.replace("'", "&#x27;")


def facts_of(user: UserProfile, count: int, *, at: datetime = START) -> list[MemoryAtom]:
    """Create facts of the same time. Every second one has ended."""
    stream = MemoryStream.objects.ensure_of_person(user, "default")
    ended = {"state": "ended", "valid_until": at, "ended_at": at}
    texts = [f"Fact {number} of {user}, said on day {at.day}." for number in range(count)]
    return MemoryAtom.objects.bulk_create(
        MemoryAtom(
            stream=stream,
            user=user,
            atom_type="fact",
            content=text,
            content_hash=content_hash(text),
            formed_at=at,
            **(ended if number % 2 else {}),
        )
        for number, text in enumerate(texts)
    )


class TestWho:
    """Current and past facts."""

    @pytest.mark.slow
    def test_the_profile_is_escaped(self, root: Client, ada: UserProfile) -> None:
        written(ada, summary=f"Fires pots. {PLANTED}", interests=[f"rowing {PLANTED}"], preferred_topics=["glaze"])
        shown = page(root, change_url(ada))
        assert "Fires pots." in shown and "rowing" in shown and "glaze" in shown and PLANTED not in shown
        assert "Fires pots." not in page(root, change_url(ada), as_of="2020-01-01")

    @pytest.mark.slow
    @pytest.mark.usefixtures("forming")
    def test_current_and_past_facts_are_shown_as_of_a_day_that_links_keep(self, root: Client, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "I live in Oslo.")
        say(ada, "s2", "2025-03-03", "I moved to Bergen today.")
        now, then = page(root, change_url(ada)), page(root, change_url(ada), as_of="2025-02-01")
        assert now.index(BERGEN) < now.index("Past facts") < now.index(OSLO)
        assert OSLO in then and BERGEN not in then
        said = [shown.partition('id="rem-said"')[2].partition("</section>")[0] for shown in (now, then)]
        assert [(OSLO in text, BERGEN in text) for text in said] == [(False, True), (True, False)]
        assert "No fact has ended." in then and "Access log" not in then
        for name in ("days", "facts", "entities"):
            assert f'href="{url(ada, name)}?as_of=2025-02-01"' in then
        assert f"{reverse('admin:moments_app_moment_chain', args=[ada.pk])}?as_of=2025-02-01" in then
        assert "Enter a valid date" in page(root, change_url(ada), as_of="soon")

    def test_a_fact_in_several_streams_is_shown_once(self, root: Client, ada: UserProfile) -> None:
        MemoryStream.objects.ensure_for(talk(ada, 2))
        notes = [note(stream, "Ada fires pots in Lyon.", "fact") for stream in ada.streams.all()]
        assert len(notes) == 2
        facts = page(root, change_url(ada)).partition('id="rem-holds"')[2].partition("</section>")[0]
        assert facts.count("Ada fires pots in Lyon.</a>") == 1

    def test_instructions_for_the_assistant_are_separate(self, root: Client, ada: UserProfile) -> None:
        stream = MemoryStream.objects.ensure_of_person(ada, "default")
        for kind in ("instruction", "lesson", "home"):
            note(stream, f"This is of the kind {kind}.", "fact", kind=kind)
        learned = {"user": ada, "is_candidate": True, "atom_type": "observation"}
        shard("lessons").atoms.create(content="This is of the kind candidate.", **learned)
        facts, _, rest = page(root, change_url(ada)).partition("How the assistant should behave")
        behavior = rest.partition("Past facts")[0]
        assert "of the kind home" in facts and "of the kind home" not in behavior
        for kind in ("instruction", "lesson", "candidate"):
            assert f"of the kind {kind}" not in facts and f"of the kind {kind}" in behavior

    def test_no_half_of_the_page_is_empty(self, root: Client, ada: UserProfile) -> None:
        stream = MemoryStream.objects.ensure_of_person(ada, "default")
        note(stream, "Ada fires pots in Lyon.", "fact")
        assert 'class="rem-halves"' not in page(root, change_url(ada))
        note(stream, "Answer Ada in French.", "fact", kind="instruction")
        assert 'class="rem-halves"' in page(root, change_url(ada))

    @pytest.mark.slow
    @pytest.mark.usefixtures("forming")
    def test_each_fact_links_to_other_texts_that_say_it(self, root: Client, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-20", "My daughter is called Maya.")
        written(ada, summary=f"{MAYA} They like tea.")
        fact = MemoryAtom.objects.get(content=MAYA)
        elsewhere = reverse("admin:moments_app_memoryatom_elsewhere", args=[fact.pk])
        assert elsewhere in page(root, change_url(ada)) and elsewhere in page(root, change_url(fact))
        shown = page(root, elsewhere)
        assert "Facts" in shown and "They like tea." not in shown
        assert "Turns (marked" in shown and f"{change_url(Session.objects.get())}?at=0#turn-0" in shown
        assert queries_of(root, elsewhere) <= MAX_QUERIES
        assert operator("view_memoryatom").get(elsewhere).status_code == 403

    @pytest.mark.slow
    @pytest.mark.usefixtures("forming")
    def test_each_fact_can_be_corrected_and_each_known_person_has_a_link(self, root: Client, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-20", "My daughter is called Maya.")
        fact, maya = MemoryAtom.objects.get(content=MAYA), KnownPerson.objects.get(user=ada)
        shown = page(root, change_url(ada))
        assert reverse("admin:moments_app_memoryatom_correct", args=[fact.pk]) in shown
        assert change_url(maya) in shown and change_url(maya) not in page(root, change_url(ada), as_of="2025-02-01")
        viewer = operator("view_userprofile", "view_memoryatom")
        assert "/correct/" not in page(viewer, change_url(ada)) and change_url(maya) not in page(
            viewer, change_url(ada)
        )

    def test_forbidden_kinds_are_not_shown(self, ada: UserProfile) -> None:
        remember(ada, 2)
        facts_of(ada, 2)
        viewer = operator("view_userprofile")
        shown = page(viewer, change_url(ada))
        for hidden in ("Moment 1", "Fact 0", "Current facts", "s1"):
            assert not re.search(rf"\b{hidden}\b", shown)  # a form token may contain the letters
        assert viewer.get(url(ada, "cost")).status_code == 403

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PAGES)
    def test_the_page_takes_a_constant_number_of_queries(self, ada: UserProfile, name: str) -> None:
        client = operator(group="administrators")
        remember(ada, 2)
        facts_of(ada, 2)
        few = queries_of(client, url(ada, name))
        remember(ada, 40, session_id="s2")
        facts_of(ada, 90, at=START + timedelta(days=1))
        for number in range(5):
            make_entity(ada, f"Task {number}")
        assert queries_of(client, url(ada, name)) <= few + 1 <= MAX_QUERIES  # links are looked up if there are entities


class TestDays:
    @pytest.mark.slow
    def test_pages_show_every_event_once_even_at_one_instant(self, ada: UserProfile, bo: UserProfile) -> None:
        at = START + timedelta(days=1)
        facts_of(ada, 150, at=at)
        facts_of(bo, 5, at=at)
        remember(ada, 30)
        session = Session.objects.get(user=ada)
        Retraction.objects.create(user=ada, session=session, reason="Wrong.", requested_by="test", created_at=at)
        for number in range(3):
            window = {"start_sequence": number, "end_sequence": number + 1, "text": f"Summary {number}."}
            Summary.objects.create(session=session, user=ada, status="completed", created_at=at, **window)
        met: list[tuple[str, int]] = []
        before: EventCursor | None = None
        while before or not met:
            found = days_of(ada, sees=lambda model: True, before=before)
            assert len(found.events) <= EVENTS_SHOWN and len(found.by_day) <= DAYS_SHOWN
            met += [(event.name, event.pk) for event in found.events]
            before = EventCursor.read(str(found.older)) if found.older else None
            if not before:
                break
        wanted = {("formed", pk) for pk in MemoryAtom.objects.filter(user=ada).values_list("pk", flat=True)}
        wanted |= {("ended", atom.pk) for atom in MemoryAtom.objects.filter(user=ada, state="ended")}
        wanted |= {("moment", moment.pk) for moment in Moment.objects.filter(user=ada)}
        wanted |= {("summary", summary.pk) for summary in Summary.objects.all()}
        wanted |= {("retraction", Retraction.objects.get().pk), ("session", session.pk)}
        assert len(met) == len(set(met)) and set(met) == wanted

    @pytest.mark.slow
    def test_a_long_fact_ends_with_an_ellipsis(self, root: Client, ada: UserProfile) -> None:
        [fact] = facts_of(ada, 1)
        MemoryAtom.objects.filter(pk=fact.pk).update(content="Kiln " * 40)
        shown = page(root, url(ada, "days"))
        assert "Kiln…</a>" in shown or "Kiln …</a>" in shown

    def test_the_page_lists_events_and_links_to_earlier_days(self, root: Client, ada: UserProfile) -> None:
        facts_of(ada, 120)
        remember(ada, 3)
        Session.objects.update(title=f"Kilns {PLANTED}")
        shown = page(root, url(ada, "days"))
        assert "Moment 2 of s1" in shown and PLANTED not in shown and "profile on this day" in shown
        [older] = re.findall(r'href="\?before=([^"]+)"', shown)
        assert shown != page(root, f"{url(ada, 'days')}?before={older}")
        then = page(root, url(ada, "days"), as_of=f"{START - timedelta(days=1):%Y-%m-%d}")
        assert "Nothing happened up to this day." in then

    @pytest.mark.parametrize("before", ["x", "2026-03-02", "2026-03-02T08:00:00+00:00,x,1", "9" * 40, "\0", ",,"])
    def test_an_invalid_parameter_shows_the_newest(self, root: Client, ada: UserProfile, before: str) -> None:
        remember(ada, 1)
        assert "Moment 0 of s1" in page(root, url(ada, "days"), before=before)

    @pytest.mark.slow
    def test_any_page_is_read_by_index(self, ada: UserProfile, bo: UserProfile) -> None:
        for user in (ada, bo):
            facts_of(user, 1_000)
        moments = [
            Moment(user=user, key=f"m-{n}", name="m", starts_at=at, ends_at=at, first_sequence=n, last_sequence=n)
            for user in (ada, bo)
            for n in range(1_000)
            for at in [START + timedelta(minutes=n)]
        ]
        Moment.objects.bulk_create(moments)
        session = talk(bo, 2)
        window = {"session": session, "user": bo, "status": "completed", "text": "x"}
        Summary.objects.bulk_create(
            Summary(**window, start_sequence=n, end_sequence=n, created_at=START + timedelta(minutes=n))
            for n in range(1_000)
        )
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE moments_app_memoryatom, moments_app_moment, moments_app_summary")
            with CaptureQueriesContext(connection) as captured:
                days_of(bo, sees=lambda model: True, before=EventCursor(START + timedelta(minutes=500), 0, 10**9))
            [sql] = [str(query["sql"]) for query in captured if "UNION ALL" in str(query["sql"])]
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(row for (row,) in cursor.fetchall())
        for index in ("moment_user_in_time", "atom_user_newest", "atom_user_ended", "summary_user_newest"):
            assert index in plan, plan
        for table in ("memoryatom", "moment", "summary"):
            assert f"Seq Scan on moments_app_{table}" not in plan, plan


class TestEntities:
    def test_the_table_shows_links(self, root: Client, ada: UserProfile, bo: UserProfile) -> None:
        felt, piano = (make_entity(ada, title) for title in ("Felt", f"Pi {PLANTED}"))
        make_entity(bo, "Of Bo", "goal")
        EntityLink.objects.create(user=ada, from_entity=felt, to_entity=piano, relation="blocks")
        shown = page(root, url(ada, "entities"))
        assert f'blocks <a class="rem-link" href="{change_url(piano)}">' in shown
        assert PLANTED not in shown and "Of Bo" not in shown
        assert "None up to this day." in page(root, url(ada, "entities"), as_of="2020-01-01")


class TestCost:
    """The usage of model calls for a person."""

    def test_costs_are_summed_by_month_and_purpose_for_one_person(
        self, root: Client, ada: UserProfile, bo: UserProfile
    ) -> None:
        for user, usd in ((ada, "0.25"), (ada, "0.5"), (bo, "8")):
            job = Job.objects.create(process="build_moments", user=user, status="completed", requested_by="test")
            EngineCall.objects.create(
                job=job, purpose="moments", engine="e", latency_ms=1, ok=True, input_tokens=1_200, cost_usd=Decimal(usd)
            )
        shown = page(root, url(ada, "cost"))
        assert "0.7500" in shown and "2,400" in shown and "8.0000" not in shown
        calls = f"{reverse('admin:moments_app_enginecall_changelist')}?purpose=moments&amp;user_id=ada"
        assert calls in shown
        listed = page(root, calls.replace("&amp;", "&"))
        assert listed.count("1,200, –") == 2 and "0.250000" in listed
