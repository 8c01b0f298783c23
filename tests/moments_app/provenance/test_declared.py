"""Each table with data of a person is declared: its owner, its sources, and whether it is exported."""

from collections.abc import Iterable
from typing import Any

import pytest
from django.apps import apps
from django.db import models
from django.test.utils import isolate_apps

from moments_app.jobs.process import processes
from moments_app.models import Job, Moment
from sessions_app.models import Session, UserProfile
from sessions_app.people.provenance import Provenance, declared

Model = type[models.Model]
OURS = [
    model
    for app in apps.get_app_configs()
    if app.name.startswith(("sessions_app", "moments_app", "memory_extras."))
    for model in app.get_models()
    if not model._meta.proxy
]


def personal(tables: Iterable[Model]) -> set[Model]:
    """Return the tables that refer to a person, directly or through others."""
    found: set[Model] = {UserProfile}
    while more := {table for table in tables if table not in found and refers_to(table, found)}:
        found |= more
    return found


def refers_to(table: Model, others: set[Model]) -> bool:
    columns = table._meta.concrete_fields
    return any(column.related_model in others or column.column in ("user_pk", "user_id") for column in columns)


def undeclared(tables: Iterable[Model]) -> set[Model]:
    return personal(tables) - {provenance.model for provenance in declared()}


def test_every_table_that_belongs_to_a_person_is_declared() -> None:
    assert undeclared(OURS) == set()


@isolate_apps("moments_app")
@pytest.mark.parametrize(
    "column",
    [
        lambda: models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+"),
        lambda: models.ForeignKey(Session, null=True, on_delete=models.SET_NULL, related_name="+"),
        lambda: models.OneToOneField(Moment, on_delete=models.CASCADE, related_name="+"),
        lambda: models.ForeignKey(Job, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"),
        lambda: models.BigIntegerField(db_column="user_pk"),
    ],
)
def test_an_undeclared_table_is_found(column: type[models.Field]) -> None:  # type: ignore[type-arg]
    attributes = {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "moments_app"}), "about": column()}
    diary: Model = type("Diary", (models.Model,), attributes)
    assert undeclared([*OURS, diary]) == {diary}


@pytest.mark.parametrize("provenance", declared(), ids=lambda provenance: provenance.model.__name__)
class TestDeclarations:
    """The declarations are correct."""

    def test_every_declaration_leads_to_a_person(self, provenance: Provenance) -> None:
        condition: Any = provenance.rows(UserProfile(pk=1)).query.where.children[0]
        target = condition.lhs.target
        assert target.column == "user_pk" or UserProfile in (target.related_model, target.model)

    def test_every_declaration_names_existing_columns(self, provenance: Provenance) -> None:
        names = {field.name for field in provenance.model._meta.get_fields()}
        assert names.issuperset(provenance.derived_from)

    def test_every_declaration_names_existing_processes(self, provenance: Provenance) -> None:
        assert {process.name for process in processes()} >= set(provenance.processes)

    def test_every_table_is_exported_or_gives_a_reason(self, provenance: Provenance) -> None:
        assert bool(provenance.files) != bool(provenance.not_exported)

    def test_every_table_is_retracted_or_gives_a_reason(self, provenance: Provenance) -> None:
        assert (provenance.is_withdrawn or provenance.is_rewritten) != bool(provenance.not_retracted)
