"""`erase_user`: delete everything that is kept about a person, in one transaction, and their archived files after it.

Tables are not listed but discovered: every row that refers to the profile belongs to the person. Receivers of
`user_erasing` remove what can't be found that way (queue entries, and what agents learned from the person). The logs
of events and of operators' actions stay, without ids, names and texts. At the end the remaining rows are counted: if
there are any, the whole erasure is rolled back.
"""

import uuid
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import CASCADE, BigIntegerField, Count, Exists, Field, ForeignKey, OuterRef, QuerySet, Value
from django.db.models.functions import Cast
from django_q.tasks import async_task
from psycopg.errors import DeadlockDetected

from sessions_app.models import ApiKey, Event, Session, UserProfile
from sessions_app.retention import archive_files
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.signals import user_erasing

REMOVE_TASK = "sessions_app.tasks.remove_archives"
TRIES = 3
ERASED = "(erased)"

logger = structlog.get_logger(__name__)


class OnHold(Exception):
    """Sessions of the person are under legal hold. The message says how many."""


class SomethingLeft(Exception):
    """Rows of the person would have been left, so everything was rolled back. The message names their table."""


@dataclass(frozen=True)
class Erased:
    """The result of an erasure.

    Args:
        erasure_id: Identifies the erasure in the event log, and can't be traced back to the person.
        rows: Number of rows removed, by kind.
        has_files_left: True if archived files could not be removed yet; the queue tries again.
    """

    erasure_id: uuid.UUID
    rows: Counter[str]
    has_files_left: bool


def holdings(user: UserProfile) -> Counter[str]:
    """Count the rows of a person by kind, in one query, however many tables there are."""
    first, *others = (_count_of(column, user) for column in _person_columns())
    rows: Counter[str] = Counter()
    for what, number in first.union(*others, all=True):  # a table may have several such columns
        rows[what] += number
    return +rows


def erase_user(user_id: str, *, actor: str) -> Erased:
    """Erase a person.

    Args:
        user_id: The application's id of the person.
        actor: Who asks: key:… or operator:….

    Raises:
        UserProfile.DoesNotExist: Nobody has that id.
        OnHold: A session is under legal hold; nothing was erased.
        SomethingLeft: Nothing was erased; this is a defect.
    """
    erasure_id = uuid.uuid4()
    user_pk, rows = _retry_deadlocks(partial(_erase_rows, user_id, erasure_id, actor))
    try:
        remove_archives(user_pk)
    except ArchiveError as error:
        logger.warning("archives not removed", erasure_id=str(erasure_id), reason=str(error))
        return Erased(erasure_id, rows, has_files_left=True)
    return Erased(erasure_id, rows, has_files_left=False)


def _retry_deadlocks(erase: "partial[tuple[int, Counter[str]]]") -> tuple[int, Counter[str]]:
    """Retry an erasure after a deadlock: some transactions lock rows of many people in an order of their own."""
    for _ in range(TRIES - 1):
        try:
            return erase()
        except OperationalError as error:
            if not isinstance(error.__cause__, DeadlockDetected):
                raise
    return erase()


@transaction.atomic(durable=True)
def _erase_rows(user_id: str, erasure_id: uuid.UUID, actor: str) -> tuple[int, Counter[str]]:
    # This lock conflicts with every new reference to the profile: whoever adds one has committed before, or waits and
    # then finds nobody.
    user = UserProfile.objects.select_for_update().get(user_id=user_id)
    if held := Session.objects.for_user(user).filter(legal_hold=True).count():
        raise OnHold(f"{held} sessions of this person are under legal hold. Nothing was erased.")
    rows: Counter[str] = Counter()
    for _receiver, removed in user_erasing.send(sender=UserProfile, user=user):
        rows.update(removed)
    actor = _scrub_events(user, actor)
    _scrub_operators_log(UserProfile._meta.pk, user)
    for column in _person_columns():
        _scrub_operators_log(column, user)
    _delete_all(user, rows)
    payload = {"erasure_id": str(erasure_id), "rows": +rows}
    Event.objects.create(type="user_erased", actor=actor, payload=payload)
    async_task(REMOVE_TASK, user.pk)
    return user.pk, +rows


# --- tables ---


def _person_columns() -> "list[ForeignKey[Any, Any]]":
    """Return the columns that name the owner of a row: foreign keys to the profile that cascade."""
    return [
        column
        for model in apps.get_models()
        for column in model._meta.concrete_fields
        if isinstance(column, ForeignKey)
        and column.related_model is UserProfile
        and column.remote_field.on_delete is CASCADE
    ]


def _rows(column: "Field[Any, Any]", user: UserProfile) -> QuerySet[Any]:
    return column.model._base_manager.filter(**{column.name: user.pk})


def _count_of(column: "Field[Any, Any]", user: UserProfile) -> QuerySet[Any, tuple[str, int]]:
    rows = _rows(column, user).order_by().values(what=Value(_name(column)))
    number: QuerySet[Any, tuple[str, int]] = rows.annotate(number=Count("*")).values_list("what", "number")
    return number


def _name(column: "Field[Any, Any]") -> str:
    return str(column.model._meta.verbose_name_plural)


def _delete_all(user: UserProfile, rows: Counter[str]) -> None:
    """Delete all rows of a person and add their numbers to `rows`.

    The database then checks every reference, and a count covers the columns that have no constraint.

    Raises:
        SomethingLeft: Rows are left; the text names their table.
    """
    try:
        for column in _person_columns():
            rows[_name(column)] += _rows(column, user)._raw_delete(connection.alias)
        UserProfile.objects.filter(pk=user.pk)._raw_delete(connection.alias)
        connection.check_constraints()
    except IntegrityError as error:
        table = getattr(getattr(error.__cause__, "diag", None), "table_name", None)
        raise SomethingLeft(f"Rows of {table} still refer to rows to be erased. Nothing was erased.") from None
    left = holdings(user) + Counter(events=Event.objects.filter(user_pk=user.pk).count())
    if left:
        raise SomethingLeft(f"Rows would have been left: {', '.join(left)}. Nothing was erased.")


# --- logs, which are kept ---


def _scrub_events(user: UserProfile, actor: str) -> str:
    """Blank the person, session and payload of the person's events, and the names of their own keys.

    Returns:
        The actor of this erasure as the log may name it.
    """
    keys = [key.actor for key in ApiKey.objects.filter(user=user)]
    events = Event.objects.filter(user_pk=user.pk)
    events.filter(actor__in=keys).update(actor=f"key:{ERASED}")
    events.update(user_pk=None, session_pk=None, payload={})
    return f"key:{ERASED}" if actor in keys else actor


def _scrub_operators_log(column: "Field[Any, Any]", user: UserProfile) -> None:
    """Blank names and texts in Django's log of operators' actions on rows of one table.

    Entries about other people's rows keep theirs. Entries about rows that were deleted earlier are blanked too, because
    it can't be told whose rows those were.
    """
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(column.model), object_id__isnull=False
    )
    others = column.model._base_manager.exclude(**{column.name: user.pk})
    named = others.filter(pk=Cast(OuterRef("object_id"), BigIntegerField()))
    entries.filter(~Exists(named)).update(object_id=None, object_repr=ERASED, change_message="")


# --- files ---


def remove_archives(user_pk: int) -> None:
    """Remove everything in a person's folder of the storage named `archive`."""
    archive_files.remove(str(user_pk))
