"""`erase_user`: delete all data about a person in one transaction, and then their archived files.

Every row that refers to the profile belongs to the person, and one DELETE per table removes these rows. A table's
declaration says how to remove other data, such as queue entries and what agents learned from the person. The event log
and Django's admin log stay, without ids, names and texts. At the end, remaining rows are counted. If there are any, the
transaction is rolled back.
"""

import uuid
from collections import Counter
from dataclasses import dataclass
from functools import cache, partial, reduce
from operator import or_
from typing import Any

import structlog
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import (
    CASCADE,
    BigIntegerField,
    Count,
    Field,
    ForeignKey,
    Model,
    Q,
    QuerySet,
    Value,
)
from django.db.models.functions import Cast
from psycopg.errors import DeadlockDetected

from sessions_app.models import ApiKey, Event, Session, UserProfile
from sessions_app.people.provenance import declared
from sessions_app.refusals import Conflict
from sessions_app.retention import archive_files
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.signals import call_wanted
from sessions_app.transcript import spool

REMOVE_TASK = "sessions_app.tasks.remove_archives"
TRIES = 3
ERASED = "(erased)"
ERASED_EVENT = "user_erased"

logger = structlog.get_logger(__name__)


class OnHold(Conflict):
    """Sessions of the person are under legal hold. The message says how many."""

    code = "legal_hold"


class SomethingLeft(Exception):
    """Rows of the person would remain, so everything was rolled back. The message names their table."""


@dataclass(frozen=True)
class Erased:
    """The outcome of an erasure.

    Args:
        erasure_id: Identifies the erasure in the event log, but not the person.
        rows: The number of deleted rows by kind.
        has_files_left: Some archived files could not be removed yet. A job retries.
    """

    erasure_id: uuid.UUID
    rows: Counter[str]
    has_files_left: bool


def holdings(user: UserProfile) -> Counter[str]:
    """Return the number of rows that an erasure of a person removes, by kind.

    One query counts all tables that refer to the profile. Other rows are counted as their table declares. The preview
    and the record of an erasure show these numbers.
    """
    first, *others = (_number(model, user) for model in dict.fromkeys(column.model for column in _columns()))
    rows: Counter[str] = Counter()
    for what, number in first.union(*others, all=True):
        rows[what] += number
    for provenance in declared():
        if provenance.beside:
            rows.update(provenance.beside(user))
    return +rows


def erase_user(user_id: str, *, application: int, actor: str) -> Erased:
    """Erase a person.

    Args:
        user_id: The application's id of the person.
        application: The primary key of the application.
        actor: The actor: key:… or operator:….

    Raises:
        UserProfile.DoesNotExist: No person has this id.
        OnHold: Nothing was erased.
        SomethingLeft: Nothing was erased, because of a bug.
    """
    erasure_id = uuid.uuid4()
    try:
        user_pk, rows = _patiently(partial(_erase_rows, user_id, application, erasure_id, actor))
    except UserProfile.DoesNotExist:
        spool.forget(user_id, application)
        raise
    spool.forget(user_id, application)  # other hosts drop their spooled messages when they store them
    try:
        remove_archives(user_pk)
    except ArchiveError as error:
        logger.warning("archives not removed", erasure_id=str(erasure_id), reason=str(error))
        return Erased(erasure_id, rows, has_files_left=True)
    return Erased(erasure_id, rows, has_files_left=False)


def _patiently(erase: "partial[tuple[int, Counter[str]]]") -> tuple[int, Counter[str]]:
    """Retry after a deadlock, because some transactions lock rows of many people in another order."""
    for _ in range(TRIES - 1):
        try:
            return erase()
        except OperationalError as error:
            if not isinstance(error.__cause__, DeadlockDetected):
                raise
    return erase()


@transaction.atomic(durable=True)
def _erase_rows(user_id: str, application: int, erasure_id: uuid.UUID, actor: str) -> tuple[int, Counter[str]]:
    # Blocks new references to the profile. A concurrent writer has either finished, or waits and then finds no profile.
    user = UserProfile.objects.select_for_update().get(application=application, user_id=user_id)
    if held := Session.objects.for_user(user).filter(legal_hold=True).count():
        raise OnHold(
            f"{held} sessions of this person are under legal hold. Nothing was erased. Release the holds first."
        )
    rows = holdings(user)
    for provenance in declared():
        if provenance.erase:
            provenance.erase(user)
    actor = _scrub_events(user, actor)
    _scrub_operators_log(UserProfile._meta.pk, user)
    for column in _columns():
        _scrub_operators_log(column, user)
    _delete_all(user)
    payload = {"erasure_id": str(erasure_id), "rows": rows}
    Event.objects.create(type=ERASED_EVENT, actor=actor, application_id=application, payload=payload)
    call_wanted.send(None, function=REMOVE_TASK, args=[user.pk], user_pk=None)
    return user.pk, rows


# --- tables ---


@cache
def _columns() -> "tuple[ForeignKey[Any, Any], ...]":
    """Return the columns that refer to a row's owner. Deleting the profile deletes these rows."""
    return tuple(
        column
        for model in apps.get_models()
        for column in model._meta.concrete_fields
        if isinstance(column, ForeignKey)
        and column.related_model is UserProfile
        and column.remote_field.on_delete is CASCADE
    )


def _rows(column: "Field[Any, Any]", user: UserProfile) -> QuerySet[Any]:
    return column.model._base_manager.filter(**{column.name: user.pk})


def _number(model: type[Model], user: UserProfile) -> QuerySet[Any, tuple[str, int]]:
    """Count the rows of a table that belong to the person. A row with several such columns counts once."""
    theirs = [Q(**{column.name: user.pk}) for column in _columns() if column.model is model]
    rows = model._base_manager.filter(reduce(or_, theirs)).order_by()
    named = rows.values(what=Value(str(model._meta.verbose_name_plural)))
    number: QuerySet[Any, tuple[str, int]] = named.annotate(number=Count("*")).values_list("what", "number")
    return number


def _delete_all(user: UserProfile) -> None:
    """Delete the person's rows, check all foreign keys, and count remaining rows that no foreign key covers.

    Raises:
        SomethingLeft: The message names the table.
    """
    try:
        for column in _columns():
            _rows(column, user)._raw_delete(connection.alias)
        UserProfile.objects.filter(pk=user.pk)._raw_delete(connection.alias)
        connection.check_constraints()
    except IntegrityError as error:
        table = getattr(getattr(error.__cause__, "diag", None), "table_name", None)
        raise SomethingLeft(f"Rows of {table} still refer to the person. Nothing was erased.") from None
    left = holdings(user) + Counter(events=Event.objects.filter(user_pk=user.pk).count())
    if left:
        raise SomethingLeft(f"Rows of these tables would remain: {', '.join(left)}. Nothing was erased.")


# --- logs, which stay ---


def _scrub_events(user: UserProfile, actor: str) -> str:
    """Remove ids and payloads from the person's events, and the names of the person's keys.

    Returns:
        The actor, without the name of an erased key.
    """
    keys = [key.actor for key in ApiKey.objects.filter(user=user)]
    events = Event.objects.filter(user_pk=user.pk)
    events.filter(actor__in=keys).update(actor=f"key:{ERASED}")
    events.update(application=user.application_id, user_pk=None, session_pk=None, payload={})
    return f"key:{ERASED}" if actor in keys else actor


def _scrub_operators_log(column: "Field[Any, Any]", user: UserProfile) -> None:
    """Remove names and texts from Django's admin log of one table.

    Entries about other people's rows stay. Entries about rows that were deleted earlier are removed too, because their
    owner is unknown.
    """
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(column.model), object_id__isnull=False
    )
    if not entries.exists():
        return
    others = column.model._base_manager.exclude(**{column.name: user.pk})
    logged = entries.values(row=Cast("object_id", BigIntegerField()))
    # A separate query, because an UPDATE of the log can't read distributed rows.
    named = [str(pk) for (pk,) in others.filter(pk__in=logged).values_list("pk")]
    entries.exclude(object_id__in=named).update(object_id=None, object_repr=ERASED, change_message="")


# --- files ---


def remove_archives(user_pk: int) -> None:
    """Remove all files in a person's folder of the storage named `archive`."""
    archive_files.remove(str(user_pk))
