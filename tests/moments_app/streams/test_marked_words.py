"""C, C++ and C# are different words, also in statements of earlier releases."""

from hashlib import sha256
from importlib import import_module

import pytest
from django.apps import apps
from django.db import transaction

from moments_app.models import MemoryAtom, MemoryStream, RetractedItem
from moments_app.models.atom import content_hash
from moments_app.provenance.retract_items import ItemSelection, retract_items
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.add_atoms import add_atoms
from sessions_app.models import UserProfile
from tests.support.streams import note

pytestmark = pytest.mark.django_db(transaction=True)

UPGRADE = import_module("moments_app.migrations.0108_hashes_of_marked_words")
OLD = sha256(b"user i program in c").hexdigest()


def add(stream: MemoryStream, content: str) -> list[MemoryAtom]:
    own = {"user_id": stream.user_id, "atom_type": "fact", "content_hash": content_hash(content)}
    atom = MemoryAtom(stream=stream, content=content, **own)
    with transaction.atomic():
        return add_atoms(stream, [atom], requested_by="test")


def test_an_upgrade_distinguishes_marked_words_and_recognizes_repeated_statements(ada: UserProfile) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    for content in ("User: I program in C++.", "User: I have well-known friends."):
        note(stream, content, "fact")
    MemoryAtom.objects.filter(content__contains="C++").update(content_hash=OLD)
    UPGRADE.hash_again(apps, None)
    assert not add(stream, "user: i program in C++") and not add(stream, "User: I have well known friends.")
    assert add(stream, "User: I program in C.") and add(stream, "User: I program in C#.")


def test_the_old_statement_stays_next_to_one_written_before_the_upgrade(ada: UserProfile) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    MemoryAtom.objects.filter(pk=note(stream, "User: I program in C++.", "fact").pk).update(content_hash=OLD)
    assert add(stream, "User: I program in C++.")
    UPGRADE.hash_again(apps, None)
    assert MemoryAtom.objects.active().filter(content="User: I program in C++.").count() == 2


def test_an_upgrade_covers_retracted_items(ada: UserProfile) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    fact = note(stream, "User: I program in C++.", "fact")
    retraction = retract_items(ada, ItemSelection([fact.atom_id]), reason="mistaken", requested_by="test")
    item = RetractedItem.objects.get(model="moments_app.memoryatom")
    item.data["content_hash"] = OLD
    item.save()
    UPGRADE.hash_again(apps, None)
    undo_retraction(retraction, requested_by="test")
    assert not add(stream, "User: I program in C++.")
