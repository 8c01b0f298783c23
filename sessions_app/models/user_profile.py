"""People whose memory is stored."""

import re
import zoneinfo
from collections.abc import Collection, Iterable
from typing import Self, TypeVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchQuery, SearchVector
from django.core.exceptions import ValidationError
from django.db import connection, models
from django.db.models import F, Func, Value
from django.db.models.functions import Concat, Left

from sessions_app.database.sql import insert_if_missing
from sessions_app.models.application import DEFAULT, Application

Row = TypeVar("Row", bound=models.Model)
PROFILE_LIST_MAX = 50
DERIVED = ("summary", "interests", "preferred_topics")  # derived from statements about the person
EDITED = (*DERIVED, "timezone")  # the memory app is notified of changes to these
INDEXED_CHARS = 50_000  # maximum characters of a summary to index, because a tsvector is limited to a megabyte
# The words of the id, which is split at punctuation, and of the summary. Queries search for prefixes of these words.
_NAME = Func(F("user_id"), Value("@._:/-|"), Value(" " * 7), function="translate", output_field=models.TextField())
_SEARCHED_TEXT = Concat(_NAME, Value(" "), Left("summary", INDEXED_CHARS), output_field=models.TextField())
WORDS = SearchVector(_SEARCHED_TEXT, config="simple")
_WORD = re.compile(r"[^\W_]+")
# PostgreSQL takes this lock on a row when a transaction that added a reference to the row commits. This query takes it
# earlier. The ORM doesn't support a lock this weak.
_PROTECT_SQL = "SELECT id FROM sessions_app_userprofile WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE"


def validate_timezone(name: str) -> None:
    if name not in zoneinfo.available_timezones():
        raise ValidationError(
            "%(name)s is not an IANA time zone. Enter one such as Europe/Berlin.", params={"name": name}
        )


class UserProfileQuerySet(models.QuerySet["UserProfile"]):
    def ensure(self, user_id: str, application: int = DEFAULT) -> "UserProfile":
        """Return the profile of a person. Create it if it doesn't exist. Safe under concurrency."""
        named = {"application_id": application, "user_id": user_id}
        found = self.filter(**named).first()
        if found:
            return found
        created = UserProfile(**named)
        return created if insert_if_missing(created) else self.get(**named)

    def ensure_protected(self, user_ids: Collection[str], application: int = DEFAULT) -> "dict[str, UserProfile]":
        """Return profiles by `user_id`, protected from erasure like `protect`. Create missing profiles."""
        while True:  # repeats if an erasure ran between two statements
            found = {user.user_id: user for user in self.filter(application=application, user_id__in=user_ids)}
            if missing := sorted({*user_ids} - found.keys()):
                new = [UserProfile(application_id=application, user_id=user_id) for user_id in missing]
                self.bulk_create(new, ignore_conflicts=True)
            elif self.protect([user.pk for user in found.values()]) == {user.pk for user in found.values()}:
                return found

    def named(self, user_id: str, application: int) -> "UserProfile | None":
        return self.filter(application=application, user_id=user_id).first()

    def matching(self, text: str) -> Self:
        """Return people whose id or summary contains, for each word of the text, a word that starts with it.

        Ignores case. Empty if the text has no words.
        """
        words = " & ".join(f"{word}:*" for word in _WORD.findall(text))
        query = SearchQuery(words, search_type="raw", config="simple")
        return self.annotate(words=WORDS).filter(words=query) if words else self.none()

    def locked(self) -> Self:
        """Lock the rows for an update. New messages that refer to them are not blocked."""
        return self.select_for_update(no_key=True)

    def protect(self, pks: Collection[int]) -> set[int]:
        """Protect people from erasure until the transaction ends. Return the primary keys of existing people.

        Nothing else is blocked. To avoid deadlocks, a transaction that writes rows of a person must call this before it
        acquires other locks.
        """
        with connection.cursor() as cursor:
            cursor.execute(_PROTECT_SQL, [list(pks)])
            return {pk for (pk,) in cursor}

    def try_protect(self, pk: int) -> bool:
        """Protect a person from erasure like `protect`, without waiting.

        Return False if the person is being erased or no longer exists.
        """
        with connection.cursor() as cursor:
            cursor.execute(f"{_PROTECT_SQL} SKIP LOCKED", [[pk]])
            return cursor.fetchone() is not None


class UserProfile(models.Model):
    """A user of an application, identified by the application's id. Never a Django login."""

    application = models.ForeignKey(
        Application,
        db_default=models.Value(DEFAULT),
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
    )
    user_id = models.CharField(max_length=255, help_text="The application's own id for the person.")
    summary = models.TextField(blank=True, help_text="Summary of what is known about the person.")
    interests = ArrayField(models.TextField(), default=list, blank=True)
    preferred_topics = ArrayField(models.TextField(), default=list, blank=True)
    timezone = models.CharField(
        max_length=64, default="UTC", validators=[validate_timezone], help_text="IANA time zone, such as Europe/Berlin."
    )
    metadata = models.JSONField(default=dict, blank=True)
    is_test = models.BooleanField(
        "test person",
        default=False,
        db_default=models.Value(False),
        editable=False,
        help_text="Whether operators created this person for tests in the playground.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = UserProfileQuerySet.as_manager()

    class Meta:
        verbose_name = "user profile"
        permissions = [
            ("read_userprofile", "Can view all data of a person"),
            ("export_userprofile", "Can export all data of a person"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["application", "user_id"], name="user_profile_unique_in_application")
        ]
        # Operators search for people by the start of an id, and by words of the id and the summary.
        indexes = [
            models.Index(fields=["user_id"], opclasses=["varchar_pattern_ops"], name="user_profile_begins"),
            GinIndex(WORDS, name="user_profile_words"),
            models.Index(fields=["-id"], condition=models.Q(is_test=True), name="user_profile_test"),
        ]

    def __str__(self) -> str:
        return self.user_id

    @property
    def uri(self) -> str:
        return f"rem://users/{self.user_id}"

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        """The person's time zone, or UTC if the profile has no valid one."""
        try:
            return zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            return zoneinfo.ZoneInfo("UTC")


def merge_lists(known: Iterable[str], new: Iterable[str]) -> list[str]:
    """Merge two lists, without case-insensitive duplicates. Keep the newest 50, newest last."""
    merged: dict[str, str] = {}
    for item in (*known, *new):
        text = item.strip()
        if text:
            merged.setdefault(text.casefold(), text)
    return list(merged.values())[-PROFILE_LIST_MAX:]


class OfPersonQuerySet(models.QuerySet[Row]):
    """A QuerySet of rows that belong to the person in `user`."""

    def for_user(self, user: UserProfile | None) -> Self:
        """Return the person's rows. If `user` is None, return no rows, instead of rows without a person."""
        return self.filter(user=user) if user else self.none()
