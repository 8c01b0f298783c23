"""Kinds of statements, and the upgrade of an installation in which full buffers evicted facts."""

from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType

from moments_app.engines.statements import kind_of
from moments_app.models import MemoryAtom, MemoryStream
from sessions_app.models import UserProfile
from tests.support.streams import note
from tests.support.transcript import START, talk

UPGRADE = import_module("moments_app.migrations.0090_nothing_evicted_by_a_buffer")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Nora lives in Oslo.", "home"),
        ("The user works as a nurse at Haukeland Hospital.", "work"),
        ("Nora's daughter is called Lia.", "relationship"),
        ("Nora is 34 years old.", "identity"),
        ("Nora is allergic to peanuts.", "health"),
        ("Nora prefers short answers.", "instruction"),
        ("Nora likes strong tea.", "preference"),
        ("Nora: I really love the sea.", "preference"),
        ("Nora: We never liked the flat, but we like the garden.", "preference"),
        ("Nora: My two sons love football.", "preference"),
        ("Nora: I don't like olives.", "preference"),
        ("Nora: I have a love of maps.", "preference"),
        ("Nora: I'm a fan of Bach.", "preference"),
        ("Nora: It feels like a storm.", "other"),
        ("Nora: Evenings like these are rare.", "other"),
        ("Nora: The room was full of love and light.", "other"),
        ("Nora: They sing like birds.", "other"),
        ("Nora: Such work needs love.", "other"),
        ("Nora: I'd like to learn Welsh.", "goal"),
        ("Nora: She would like to teach.", "goal"),
        ("Nora: I won't give up.", "other"),
        ("Nora: The shop won’t open.", "other"),
        ("Nora: I won a kayak.", "event"),
        ("Nora: It must have been hard.", "other"),
        ("Nora: That must be the postman.", "other"),
        ("Nora: I must call the bank.", "task"),
        ("Nora: The music speaks to me.", "other"),
        ("Nora: He speaks Danish.", "identity"),
        ("Nora: The cake for the birthday was dry.", "other"),
        ("Nora: My birthday is in June.", "identity"),
        ("Nora: Today is Ada's birthday.", "identity"),
        ("Nora: The road is flat as a plate.", "other"),
        ("Nora: We crossed a flat country.", "other"),
        ("Nora: My flat has two rooms.", "home"),
        ("Nora: She rents a flat.", "home"),
        ("Nora: Mia will unbedingt Geige lernen.", "other"),
        ("Nora: Er will den Garten pflegen.", "other"),
        ("Nora: Ich sage, was ich will.", "other"),
        ("Nora: Papa will nicht mit.", "other"),
        ("Nora: Oma will ein Boot.", "other"),
        ("Nora: Mia will sing in a choir.", "plan"),
        ("Nora plans to visit Rome.", "plan"),
        ("Nora wants to run a marathon.", "goal"),
        ("Nora's sister came along.", "relationship"),
        ("Nora bought a kayak.", "event"),
        ("Nora will visit Rome.", "plan"),
        ("Nora's son Will broke a cup.", "problem"),
        ("Soy alérgica a los mariscos.", "health"),
        ("У меня аллергия на орехи.", "health"),
        ("我对花生过敏。", "health"),
        ("Ein Satz ohne Muster.", "other"),
    ],
)
def test_sentences_have_kinds(text: str, kind: str) -> None:
    assert kind_of(text) == kind


@pytest.mark.django_db
class TestUpgrade:
    """Rows of the previous release: without kinds, some of them evicted."""

    @pytest.fixture
    def own(self, ada: UserProfile) -> MemoryStream:
        return MemoryStream.objects.ensure_of_person(ada, "default")

    def test_items_evicted_by_a_buffer_are_current_again_but_not_those_evicted_by_operators(
        self, own: MemoryStream
    ) -> None:
        by_buffer = note(own, "Ada likes tea.", "fact", state="evicted", formed_at=START)
        by_hand = note(own, "Ada likes coffee.", "fact", state="evicted", formed_at=START)
        content_type = ContentType.objects.get_for_model(MemoryAtom)
        root = User.objects.create(username="root")
        log: dict[str, Any] = {"user": root, "content_type": content_type, "object_id": str(by_hand.pk)}
        LogEntry.objects.create(action_flag=CHANGE, change_message="Evicted.", **log)
        said_again = note(own, "Ada likes milk.", "fact", state="evicted")
        note(own, "Ada likes milk.", "fact")
        UPGRADE.describe(apps, None)
        states = dict(MemoryAtom.objects.values_list("pk", "state"))
        assert [states[atom.pk] for atom in (by_buffer, by_hand, said_again)] == ["active", "evicted", "evicted"]

    def test_an_evicted_fact_that_a_later_one_ended_stays_ended(self, own: MemoryStream) -> None:
        home = {"attribute": "home", "subject": "User", "formed_at": START}
        old = note(own, "User lives in Oslo.", "fact", value="Oslo", state="evicted", **home)
        later = home | {"formed_at": START + timedelta(days=1)}
        new = note(own, "User lives in Bergen.", "fact", value="Bergen", **later)
        UPGRADE.describe(apps, None)
        old.refresh_from_db()
        assert (old.state, old.replaced_by, old.valid_until) == ("ended", new, new.formed_at)

    def test_existing_rows_get_kind_and_speaker(self, ada: UserProfile, own: MemoryStream) -> None:
        turn = talk(ada, 2).messages.order_by("sequence")[0]
        note(own, "Ada likes tea.", "fact", source_message_ids=[turn.pk])
        UPGRADE.describe(apps, None)
        atom = MemoryAtom.objects.get()
        assert (atom.kind, atom.about_kind, atom.speaker) == ("preference", "user", turn.role)
