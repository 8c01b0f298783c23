"""`erase_user`: everything that is kept of a person goes, in one transaction; their archived files right after it.

Every row that refers to the profile is the person's, and goes by one DELETE a table. What doesn't go so (queue entries,
what agents learned from them) is removed as the table's declaration says. The logs of events and of operators' acts
stay, without ids, names and texts. At the end what is left is counted: nothing, or all of it is undone.
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
    """Rows of the person would have been left, so everything was undone. The message names their table."""


@dataclass(frozen=True)
class Erased:
    """The outcome of an erasure.

    Args:
        erasure_id: names it in the event log, and leads back to nobody.
        rows: how many, by what they are.
        has_files_left: archived files could not be removed yet; the queue tries again.
    """

    erasure_id: uuid.UUID
    rows: Counter[str]
    has_files_left: bool


def holdings(user: UserProfile) -> Counter[str]:
    """Return how many rows of a person an erasure removes, by what they are.

    One query counts all tables that refer to the profile; what goes beside those is counted as its table declares. A
    preview and the record of an erasure both say this.
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
        user_id: as the application names them.
        application: primary key of it.
        actor: who asks: key:… or operator:….

    Raises:
        UserProfile.DoesNotExist: nobody has that name.
        OnHold: nothing was erased.
        SomethingLeft: nothing was erased; a defect.
    """
    erasure_id = uuid.uuid4()
    try:
        user_pk, rows = _patiently(partial(_erase_rows, user_id, application, erasure_id, actor))
    except UserProfile.DoesNotExist:
        spool.forget(user_id, application)
        raise
    spool.forget(user_id, application)  # what other hosts have is dropped when they come to store it
    try:
        remove_archives(user_pk)
    except ArchiveError as error:
        logger.warning("archives not removed", erasure_id=str(erasure_id), reason=str(error))
        return Erased(erasure_id, rows, has_files_left=True)
    return Erased(erasure_id, rows, has_files_left=False)


def _patiently(erase: "partial[tuple[int, Counter[str]]]") -> tuple[int, Counter[str]]:
    """Try again after a deadlock: some lock the rows of many, in an order of theirs."""
    for _ in range(TRIES - 1):
        try:
            return erase()
        except OperationalError as error:
            if not isinstance(error.__cause__, DeadlockDetected):
                raise
    return erase()


@transaction.atomic(durable=True)
def _erase_rows(user_id: str, application: int, erasure_id: uuid.UUID, actor: str) -> tuple[int, Counter[str]]:
    # Against every reference to the profile: whoever adds one was done before, or waits and then finds nobody.
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
    """Return the columns that say whose a row is: its rows go with a profile."""
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
    """Count the rows of a table, each once, by however many columns it is the person's."""
    theirs = [Q(**{column.name: user.pk}) for column in _columns() if column.model is model]
    rows = model._base_manager.filter(reduce(or_, theirs)).order_by()
    named = rows.values(what=Value(str(model._meta.verbose_name_plural)))
    number: QuerySet[Any, tuple[str, int]] = named.annotate(number=Count("*")).values_list("what", "number")
    return number


def _delete_all(user: UserProfile) -> None:
    """Delete; have the database check every reference, and count what no constraint is about.

    Raises:
        SomethingLeft: names the table.
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
    """Blank whom and what the person's events were about, and their own keys.

    Returns:
        The actor as the log may name it from now on.
    """
    keys = [key.actor for key in ApiKey.objects.filter(user=user)]
    events = Event.objects.filter(user_pk=user.pk)
    events.filter(actor__in=keys).update(actor=f"key:{ERASED}")
    events.update(application=user.application_id, user_pk=None, session_pk=None, payload={})
    return f"key:{ERASED}" if actor in keys else actor


def _scrub_operators_log(column: "Field[Any, Any]", user: UserProfile) -> None:
    """Blank names and texts in what Django keeps of operators' acts on rows of one table.

    Those of others keep theirs. A row that was deleted before is nobody's any more: nobody can say whose it was.
    """
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(column.model), object_id__isnull=False
    )
    if not entries.exists():
        return
    others = column.model._base_manager.exclude(**{column.name: user.pk})
    logged = entries.values(row=Cast("object_id", BigIntegerField()))
    # Read first: where the rows are distributed, a statement that changes the log can't look for them.
    named = [str(pk) for (pk,) in others.filter(pk__in=logged).values_list("pk")]
    entries.exclude(object_id__in=named).update(object_id=None, object_repr=ERASED, change_message="")


# --- files ---


def remove_archives(user_pk: int) -> None:
    """Remove whatever lies in a person's folder of the storage named `archive`."""
    archive_files.remove(str(user_pk))
