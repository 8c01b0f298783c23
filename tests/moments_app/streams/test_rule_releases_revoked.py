"""The upgrade of an installation where a rule released shared memory."""

import json
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction

from moments_app.models import Job, MemoryAtom, MemoryStream, Release, RetractedItem
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.release import extend, release, reword
from sessions_app.models import Event, UserProfile
from tests.support.api import Api
from tests.support.jobs import work_off
from tests.support.reach import reached
from tests.support.streams import candidate, fold, note, rewrite, shard
from tests.support.tables import everything

pytestmark = pytest.mark.django_db(transaction=True)

EVE, RULE = "operator:eve", "rule:said alike v1"
BY_RULE, BY_HAND = "A kiln is vented first.", "Glaze dries slowly."
EARLIER = """
ALTER TABLE moments_app_release ADD COLUMN rule varchar(16) DEFAULT 'operator' NOT NULL;
ALTER TABLE moments_app_memoryatom ADD COLUMN absorbed_in_id bigint, ADD COLUMN shown_in_id bigint;
CREATE TABLE moments_app_streamversion
    (id bigserial, stream_id bigint, content_after text, lines jsonb, undone_at timestamptz)
"""
NOW = """
DROP TABLE moments_app_streamversion;
ALTER TABLE moments_app_memoryatom DROP COLUMN absorbed_in_id, DROP COLUMN shown_in_id;
ALTER TABLE moments_app_release DROP COLUMN rule
"""
ABSORB = """
WITH version AS (
    INSERT INTO moments_app_streamversion (stream_id, content_after, lines) VALUES (%(stream)s, %(text)s, %(lines)s)
    RETURNING id
)
UPDATE moments_app_memoryatom SET state = 'absorbed', absorbed_in_id = version.id, shown_in_id = version.id
FROM version WHERE stream_id = %(stream)s AND user_id IS NULL
"""
UPGRADE = import_module("moments_app.migrations.0083_rule_releases_revoked")


@pytest.fixture(autouse=True)
def earlier(transactional_db: None) -> Iterator[None]:
    """Add the columns and the table of the earlier version."""
    with connection.cursor() as cursor:
        cursor.execute(EARLIER)
    yield
    with connection.cursor() as cursor:
        cursor.execute(NOW)


@pytest.fixture
def kilns() -> MemoryStream:
    return shard("kilns", "default")


def released_by_rule(stream: MemoryStream, ada: UserProfile) -> Release:
    """Create a release by the rule, from similar messages of three people."""
    said = candidate(ada, stream, "Open the kiln's vent before firing.")
    made = release(said, BY_RULE, actor=RULE)
    for number in range(2):
        person = UserProfile.objects.ensure(f"other{number}")
        other = candidate(person, stream, f"Vents open, then fire, said {number}.")
        made.sources.create(user=person, atom=other)
        MemoryAtom.objects.filter(pk=other.pk).update(reviewed_at=made.created_at)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE moments_app_release SET rule = 'alike' WHERE id = %s", [made.pk])
    return made


def consolidated(stream: MemoryStream) -> None:
    """Merge the waiting items of a stream into its text, as the earlier version did."""
    atoms = dict(stream.atoms.waiting().values_list("pk", "content"))
    text, lines = "\n".join(f"- {content}" for content in atoms.values()), [[pk] for pk in atoms]
    with connection.cursor() as cursor:
        cursor.execute(ABSORB, {"stream": stream.pk, "text": text, "lines": json.dumps(lines)})
    MemoryStream.objects.filter(pk=stream.pk).update(consolidated_content=text)


def upgrade() -> None:
    with transaction.atomic():
        UPGRADE.revoke(apps, SimpleNamespace(connection=connection))


@pytest.mark.slow
def test_row_24_releases_by_rule_are_revoked_and_those_by_operators_stay(
    service: Api, ada: UserProfile, bo: UserProfile, kilns: MemoryStream
) -> None:
    note(kilns, "Kilns are hot.")
    made = released_by_rule(kilns, ada)
    by_hand = release(candidate(ada, kilns, "Let the glaze dry."), BY_HAND, actor=EVE)
    consolidated(kilns)
    kilns.refresh_from_db()
    assert BY_RULE in kilns.consolidated_content
    MemoryStream.objects.filter(pk=kilns.pk).update(consolidated_content=f"{kilns.consolidated_content}\nVents rust.")
    assert any(BY_RULE in text for text in reached(service, "bo").values())
    upgrade()
    after = reached(service, "bo")
    assert not any(BY_RULE in text for text in after.values())
    for text in (BY_HAND, "Kilns are hot.", "Vents rust."):
        assert text in after["context"]
    made.refresh_from_db()
    assert made.revoked_by == "migrate" and made.atom and made.atom.state == "evicted"
    assert list(Release.objects.in_effect()) == [by_hand] and by_hand.is_signed
    [event] = Event.objects.filter(type="memory_release_revoked")
    assert (event.actor, event.payload["people"]) == ("migrate", 3)
    assert event.application_id == kilns.application_id
    waiting = MemoryAtom.objects.to_review()
    assert {atom.pk for atom in waiting} == {source.atom_id for source in made.sources.all()}
    kilns.refresh_from_db()
    rewrite(kilns, kilns.consolidated_content)  # a later migration converts its lines to statements
    work_off()
    kilns.refresh_from_db()
    assert "vented" not in kilns.consolidated_content
    assert all(text in kilns.consolidated_content for text in (BY_HAND, "Kilns are hot.", "Vents rust."))
    before = everything()
    upgrade()
    assert everything() == before


@pytest.mark.slow
def test_row_24_releases_reworded_or_extended_by_an_operator_stay(
    service: Api, ada: UserProfile, bo: UserProfile, kilns: MemoryStream
) -> None:
    extended = extend(released_by_rule(kilns, ada), actor=EVE)
    reworded = reword(released_by_rule(shard("lessons", "default"), ada), "Vents come first.", actor=EVE)
    upgrade()
    assert set(Release.objects.in_effect()) == {extended, reworded}
    assert all(one.is_signed for one in Release.objects.in_effect())
    seen = reached(service, "bo")["context"]
    assert BY_RULE in seen and "Vents come first." in seen
    assert not MemoryAtom.objects.to_review().exists()


@pytest.mark.slow
def test_row_24_undoing_an_earlier_retraction_restores_no_release_by_rule(
    service: Api, ada: UserProfile, bo: UserProfile, kilns: MemoryStream
) -> None:
    made = released_by_rule(kilns, ada)
    consolidated(kilns)
    source = made.sources.order_by("pk").first()
    assert source and source.atom and source.atom.source_session
    retraction = retract(source.atom.source_session, None, reason="Planted.", requested_by=EVE)
    as_kept_earlier()
    upgrade()
    undo_retraction(retraction, requested_by=EVE)
    made.refresh_from_db()
    assert made.revoked_by == "migrate" and made.atom and made.atom.state == "evicted"
    kilns.refresh_from_db()
    assert "vented" not in kilns.consolidated_content
    assert MemoryAtom.objects.candidates().active().filter(user=ada).exists()
    assert not any(BY_RULE in text for text in reached(service, "bo").values())


def as_kept_earlier() -> None:
    """Add the former columns to the rows stored by a retraction."""
    gone: dict[str, dict[str, Any]] = {
        "release": {"rule": "alike", "quorum": 3},
        "memoryatom": {"alike": None, "left_to_operator": ""},
        "memorystream": {"shares_by_rule": True},
    }
    for model, columns in gone.items():
        items = list(RetractedItem.objects.filter(model=f"moments_app.{model}"))
        assert items
        for item in items:
            item.data |= columns
            item.save()


def test_open_jobs_of_the_rule_are_skipped(kilns: MemoryStream) -> None:
    for process in ("share_alike", "group_candidates", "consolidate"):
        Job.objects.request(process, stream=kilns, requested_by="test")
    upgrade()
    assert set(Job.objects.values_list("process", "status")) == {
        ("share_alike", "skipped"),
        ("group_candidates", "skipped"),
        ("consolidate", "queued"),
    }


def test_an_installation_without_the_rule_is_unchanged(ada: UserProfile, kilns: MemoryStream) -> None:
    release(candidate(ada, kilns, "Let the glaze dry."), BY_HAND, actor=EVE)
    fold(kilns)
    before = everything()
    upgrade()
    assert everything() == before
