"""Other people in a user's memory, such as a sister, a dentist, or a second speaker of a session.

Their names, aliases and relationships are derived from statements about them (`streams/known_people.py`).
"""

from collections.abc import Collection
from typing import Self

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Exists, F, Func, OuterRef, Q
from django.utils.text import slugify

from sessions_app.models import UserProfile
from sessions_app.models.user_profile import OfPersonQuerySet

KEY_MAX_LENGTH = 255
KEY_CHARS = 100  # maximum characters of the name in a key
SELF = "user"  # refers to the user, so no known person has this key
_LOWERED = Func(
    F("aliases"),
    template="lower(%(expressions)s::text)::text[]",
    output_field=ArrayField(models.TextField()),
)


def person_key(name: str, used_keys: Collection[str]) -> str:
    """Return a key for a new person: the name, or the name and a number (`anna-2`) if the key is taken."""
    key = slug = slugify(name, allow_unicode=True)[:KEY_CHARS].strip("-") or "person"
    number = 1
    while key == SELF or key in used_keys:
        number += 1
        key = f"{slug}-{number}"
    return key


class KnownPersonQuerySet(OfPersonQuerySet["KnownPerson"]):
    def with_statements(self) -> Self:
        """Return people with at least one statement that was not withdrawn."""
        statements = apps.get_model("moments_app", "MemoryAtom").objects.findable().filter(is_wrong=False)
        return self.filter(Exists(statements.filter(about=OuterRef("pk"))))

    def named(self, name: str) -> Self:
        """Return people with this full name, first name, last name or alias, ignoring case."""
        is_alias = Q(lower_aliases__contains=[name.lower()])
        is_part = Q(name__istartswith=f"{name} ") | Q(name__iendswith=f" {name}")
        return self.annotate(lower_aliases=_LOWERED).filter(Q(name__iexact=name) | is_alias | is_part)

    def newest_first(self) -> Self:
        return self.order_by("-id")


class KnownPerson(models.Model):
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="known_people", db_index=False)
    key = models.CharField(
        max_length=KEY_MAX_LENGTH,
        help_text="Id of the person. Two people with the same name have different ids.",
    )
    name = models.CharField(max_length=255)
    aliases = ArrayField(
        models.CharField(max_length=255), default=list, blank=True, help_text="Other names of the person."
    )
    relationship = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="What the person is to the user, such as sister or dentist. Blank if unknown.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = KnownPersonQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "known persons"
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="known_person_key_unique_of_user")]
        indexes = [models.Index(fields=["user", "-id"], name="known_person_newest")]

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> list[str]:
        return [self.name, *self.aliases]
