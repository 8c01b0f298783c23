"""Find the people whom statements name, and say of statements whom they are about.

Each person is a transaction of its own and can run again.
"""

from typing import Any

from django.db import migrations, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from moments_app.engines.statements.named_people import USER
from moments_app.streams.known_people import People, Said, called_in, named_in

AT_ONCE = 500


def write(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Go over all people."""
    users = apps.get_model("sessions_app", "UserProfile").objects.order_by("pk").values_list("pk", flat=True)
    after = 0
    while batch := list(users.filter(pk__gt=after)[:AT_ONCE]):
        for pk in batch:
            with transaction.atomic():
                _write(apps, pk)
        after = batch[-1]


def _write(apps: StateApps, pk: int) -> None:
    user = apps.get_model("sessions_app", "UserProfile").objects.select_for_update(no_key=True).filter(pk=pk).first()
    atoms = apps.get_model("moments_app", "MemoryAtom").objects.filter(user=pk, is_candidate=False)
    if user is None or atoms.filter(about__isnull=False).exists():
        return
    rows = [(atom, Said(*said)) for atom, *said in atoms.order_by("formed_at", "pk").values_list("pk", *Said._fields)]
    names = _names(atoms)
    table = apps.get_model("moments_app", "KnownPerson").objects
    people = People((), lambda key, name: table.create(user_id=pk, key=key, name=name))
    for _, said in rows:
        named = named_in(said, names)
        if named and named.relationship:
            people.find(named, adds=True)
    if not people.known:
        return
    told: dict[int, list[int]] = {}
    for atom, said in rows:
        if (named := named_in(said, names)) and (person := people.find(named, adds=False)):
            told.setdefault(person.pk, []).append(atom)
    for person in people.known:
        its = atoms.filter(pk__in=told.get(person.pk, ()))
        its.update(about=person.pk)
        _name(person, its.filter(is_wrong=False).exclude(state="evicted"), names)


def _names(atoms: Any) -> frozenset[str]:
    own = atoms.filter(attribute="name", subject__in=USER, is_wrong=False).exclude(state="evicted")
    names = list(own.values_list("value", flat=True))
    return frozenset({*USER, *names, *(name.split(" ")[0] for name in names)})


def _name(person: Any, statements: Any, names: frozenset[str]) -> None:
    ordered = statements.order_by("-is_pinned", "-worth", "-formed_at", "-id").values_list(*Said._fields)
    called, person.relationship = called_in([Said(*row) for row in ordered], names)
    person.name, *person.aliases = called or (person.name, *person.aliases)
    person.save()


class Migration(migrations.Migration):
    atomic = False  # so that no row is held for longer than a moment

    dependencies = [("moments_app", "0111_statements_about_people")]

    operations = [migrations.RunPython(write, migrations.RunPython.noop, elidable=True)]
