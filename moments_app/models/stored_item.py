"""The item store: JSON values that an application stores under a namespace and a key."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import DurationField, ExpressionWrapper, F, Func, Q, Value
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.lexemes import VERSION
from sessions_app.models import Application, UserProfile
from sessions_app.models.searched import Searched, SearchedQuerySet

LABELS_MAX = 20
NAMESPACE_MAX = 255  # maximum total characters of all labels
KEY_MAX = 255
TEXT_MAX = 50_000
TTL_MIN, TTL_MAX = 0.01, 10 * 365 * 24 * 60.0  # minutes
WORDS_MAX_BYTES = 1_000_000  # maximum bytes of text indexed during a request
END = "\x1f"  # ends each label of a stored namespace
AFTER_END = chr(ord(END) + 1)
HIDDEN = "\U0010ffff"  # prefix of first labels that lists of namespaces omit unless requested

# The path of a field in a value, a comparison, and the JSON value to compare with.
Condition = tuple[list[str], str, Any]


def stored(namespace: Sequence[str]) -> str:
    return "".join(label + END for label in namespace)


def labels(namespace: str) -> list[str]:
    return namespace.split(END)[:-1]


def namespace_range(prefix: Sequence[str]) -> tuple[str, str]:
    """Return the range of stored namespaces with this prefix: its start, and its end (exclusive)."""
    start = stored(prefix)
    return start, start[:-1] + AFTER_END if prefix else HIDDEN


class StoredItemQuerySet(SearchedQuerySet["StoredItem"]):
    def owned_by(self, user: UserProfile | None, application: int) -> Self:
        """Return the items of a user. Without a user, return the application's own items."""
        return self.filter(user=user, application=application)

    def live(self) -> Self:
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=Now()))

    def expired(self) -> Self:
        return self.filter(expires_at__lte=Now())

    def within(self, prefix: Sequence[str]) -> Self:
        start, end = namespace_range(prefix)
        return self.filter(namespace__gte=start, namespace__lt=end)

    def in_order(self) -> Self:
        """Order the items of one owner by address."""
        # The first two columns are constant, but without them PostgreSQL would sort the rows instead of using an index.
        return self.order_by("user_id", "application_id", "namespace", "key")

    def after(self, namespace: Sequence[str], key: str) -> Self:
        at = stored(namespace)
        # The first filter makes PostgreSQL start at this position in the index.
        return self.filter(namespace__gte=at).filter(Q(namespace__gt=at) | Q(key__gt=key))

    def at(self, addresses: Sequence[tuple[Sequence[str], str]]) -> Self:
        found = Q(pk__in=[])
        for namespace, key in addresses:
            found |= Q(namespace=stored(namespace), key=key)
        return self.filter(found)

    def satisfying(self, conditions: Sequence[Condition]) -> Self:
        if not conditions:
            return self
        condition = Value(list(conditions), models.JSONField())
        return self.filter(Func("value", condition, function="memory_item_fits", output_field=models.BooleanField()))

    def put(self, items: Sequence["StoredItem"]) -> int:
        """Insert items, or replace the items at the same addresses. Return the number of stored items.

        If several items have the same address, only the last one is stored. Texts beyond `WORDS_MAX_BYTES` are not
        indexed until `index_words` runs.
        """
        by_address = {(item.namespace, item.key): item for item in items}
        indexed = 0
        for item in by_address.values():
            item.expires_at = None if item.ttl is None else Now() + timedelta(minutes=item.ttl)
            indexed += len(item.text.encode())
            if indexed > WORDS_MAX_BYTES:
                vars(item)["search_vector"], item.search_version = "", 0
        self.bulk_create(
            [by_address[address] for address in sorted(by_address)],  # in a fixed order, to avoid deadlocks
            update_conflicts=True,
            unique_fields=["user", "application", "namespace", "key"],
            update_fields=[
                *("value", "text", "search_vector", "search_version", "ttl", "expires_at", "updated_at"),
            ],
        )
        return len(by_address)

    def restart_ttl(self, items: Sequence["StoredItem"]) -> None:
        """Restart the time to live of the items that expire.

        Skip items locked by another transaction, because a read must not wait.
        """
        if expiring := [item.pk for item in items if item.ttl is not None]:
            free = self.filter(pk__in=expiring).select_for_update(skip_locked=True, no_key=True)
            minutes = ExpressionWrapper(F("ttl") * timedelta(minutes=1), output_field=DurationField())
            self.filter(pk__in=free.values("pk")).update(expires_at=Now() + minutes)


class StoredItem(Searched):
    """A JSON value under a namespace and a key. It belongs to one user, or to the application itself."""

    SEARCHED = ("text",)

    application = models.ForeignKey(Application, on_delete=models.PROTECT, related_name="+", db_index=False)
    user = models.ForeignKey(
        UserProfile,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
        help_text="The person whom the item belongs to. Blank if it belongs to no person.",
    )
    namespace = models.CharField(
        max_length=NAMESPACE_MAX + LABELS_MAX,
        db_collation="C",
        help_text="The labels of the namespace. Each label ends with the character U+001F.",
    )
    key = models.CharField(max_length=KEY_MAX, db_collation="C")
    value = models.JSONField(default=dict)
    text = models.TextField(
        blank=True, help_text="The text that is searched. If the text is blank, searches don't find the item."
    )
    ttl = models.FloatField(
        "time to live",
        null=True,
        blank=True,
        help_text="Minutes from the latest write or read until the item expires. Blank if the item doesn't expire.",
    )
    expires_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time when the item expires. A write, or a read that refreshes the item, postpones this time.",
    )
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    score: float | None = None  # set by searches

    objects = StoredItemQuerySet.as_manager()

    class Meta:
        verbose_name = "stored item"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "application", "namespace", "key"], nulls_distinct=False, name="item_unique_address"
            )
        ]
        indexes = [
            GinIndex(fields=["search_vector"], name="item_search"),
            models.Index(fields=["user", "id"], condition=Q(search_version__lt=VERSION), name="item_unindexed"),
            models.Index(fields=["expires_at"], condition=Q(expires_at__isnull=False), name="item_expires"),
            models.Index(fields=["user", "id"], condition=~Q(text=""), name="item_with_text"),
        ]

    def __str__(self) -> str:
        return " / ".join([*self.labels, self.key])

    @property
    def labels(self) -> list[str]:
        return labels(self.namespace)


def text_of(value: Any) -> str:
    """Return the texts in a JSON value, one per line, up to `TEXT_MAX` characters."""
    texts: list[str] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict | list):
            waiting += reversed(part.values() if isinstance(part, dict) else part)
    return "\n".join(texts)[:TEXT_MAX]
