"""`erase_user`: delete all data about a person in one transaction, and then the person's archive files.

Every row that refers to the profile belongs to the person, and one DELETE per table removes these rows. A table's
declaration says how to remove other data, such as queue entries and what agents learned from the person. The event log
and Django's admin log stay, without ids, names and texts. At the end, the erasure searches every table for the person.
If it finds a row, the transaction is rolled back. Otherwise the event records what was erased and what remains.

`delete_session` deletes a session with its transcript and archives. Memory derived from it stays.
"""

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
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

Lookup = tuple[type[Model], str]  # a table, and the lookup from its rows to the person

REMOVE_TASK = "sessions_app.tasks.remove_archives"
TRIES = 3
ERASED = "(erased)"
ERASED_EVENT = "user_erased"
DELETED_EVENT = "session_deleted"

logger = structlog.get_logger(__name__)


class OnHold(Conflict):
    """The session is under legal hold, or the person has such a session. Nothing was deleted."""

    code = "legal_hold"


class RowsRemain(Exception):
    """Rows of the person would remain, so everything was rolled back. The message names their table."""


@dataclass(frozen=True)
class ErasureResult:
    """The outcome of an erasure."""

    erasure_id: uuid.UUID  # identifies the erasure in the event log, but not the person
    rows: Counter[str]  # number of erased rows and names, by kind
    left: Counter[str]  # number of remaining rows by kind; all are zero, to show which kinds were searched
    kept: Counter[str]  # number of rows that stay without ids, names and texts, by kind
    has_files_left: bool = True  # whether archive files could not be removed yet; a task retries this

    @property
    def receipt(self) -> dict[str, Any]:
        return vars(self) | {"erasure_id": str(self.erasure_id)}


def count_erasable_rows(user: UserProfile) -> Counter[str]:
    """Count the rows that an erasure of the person removes, by kind.

    Includes names that it removes from other people's items.
    """
    return +(_count(_lookups_to_profile(), user) + _count_others(user))


def erase_user(user_id: str, *, application: int, actor: str) -> ErasureResult:
    """Erase a person of the application with this primary key. The actor is `key:…` or `operator:…`.

    Raises:
        UserProfile.DoesNotExist: No person has this id.
        OnHold: Sessions are under legal hold. Nothing was erased.
        RowsRemain: Nothing was erased, because rows would remain. This is a bug.
    """
    erasure_id = uuid.uuid4()
    try:
        user_pk, erased = _with_retries(partial(_erase_rows, user_id, application, erasure_id, actor))
    except UserProfile.DoesNotExist:
        spool.remove_person(user_id, application)
        raise
    spool.remove_person(user_id, application)  # other hosts discard their spooled messages when they try to store them
    try:
        remove_archives(user_pk, str(erasure_id))
    except ArchiveError as error:
        logger.warning("archives not removed", erasure_id=str(erasure_id), reason=str(error))
        return erased
    return replace(erased, has_files_left=False)


def _with_retries(erase: "partial[tuple[int, ErasureResult]]") -> tuple[int, ErasureResult]:
    """Retry after a deadlock, because some transactions lock rows of many people in another order."""
    for _ in range(TRIES - 1):
        try:
            return erase()
        except OperationalError as error:
            if not isinstance(error.__cause__, DeadlockDetected):
                raise
    return erase()


@transaction.atomic(durable=True)
def _erase_rows(user_id: str, application: int, erasure_id: uuid.UUID, actor: str) -> tuple[int, ErasureResult]:
    # This lock conflicts with transactions that add a reference to the profile. These have either committed already, or
    # they wait for the lock and then don't find the person.
    user = UserProfile.objects.select_for_update().get(application=application, user_id=user_id)
    if held := Session.objects.for_user(user).filter(legal_hold=True).count():
        raise OnHold(
            f"{held} sessions of this person are under legal hold. Nothing was erased. Release the holds first."
        )
    rows, kept = count_erasable_rows(user), Counter[str]()
    for provenance in declared():
        if provenance.erase and (blanked := provenance.erase(user)):
            kept[_kind(provenance.model)] += blanked
    actor, kept[_kind(Event)] = _scrub_events(user, actor)
    for column in (UserProfile._meta.pk, *_owner_columns()):
        _scrub_operators_log(column, user)
    _delete_all(user)
    erased = ErasureResult(erasure_id, rows, left=_find_remaining_rows(user), kept=+kept)
    Event.objects.create(type=ERASED_EVENT, actor=actor, application_id=application, payload=erased.receipt)
    call_wanted.send(None, function=REMOVE_TASK, args=[user.pk, str(erasure_id)], user_pk=None)
    return user.pk, erased


# --- tables ---


@cache
def _owner_columns() -> "tuple[ForeignKey[Any, Any], ...]":
    """Return the foreign keys to the person who owns a row. Such rows are deleted together with the profile."""
    return tuple(
        column
        for model in apps.get_models()
        for column in model._meta.concrete_fields
        if isinstance(column, ForeignKey)
        and column.related_model is UserProfile
        and column.remote_field.on_delete is CASCADE
    )


def _kind(model: type[Model]) -> str:
    return str(model._meta.verbose_name_plural)


def _lookups_to_profile() -> list[Lookup]:
    return [(column.model, column.name) for column in _owner_columns()]


def _count(lookups: Iterable[Lookup], user: UserProfile) -> Counter[str]:
    """Count the rows that the lookups find, by kind, including kinds without rows. Uses one query."""
    found: dict[type[Model], Q] = {}
    for model, lookup in lookups:
        found[model] = found.get(model, Q()) | Q(**{lookup: user.pk})
    counts = Counter({_kind(model): 0 for model in found})
    first, *others = (_count_query(model, theirs) for model, theirs in found.items())
    for what, number in first.union(*others, all=True):
        counts[what] += number
    return counts


def _count_query(model: type[Model], theirs: Q) -> QuerySet[Any, tuple[str, int]]:
    named = model._base_manager.filter(theirs).order_by().values(what=Value(_kind(model)))
    number: QuerySet[Any, tuple[str, int]] = named.annotate(number=Count("*")).values_list("what", "number")
    return number


def _count_others(user: UserProfile) -> Counter[str]:
    counts = Counter[str]()
    for provenance in declared():
        if provenance.count_others:
            counts.update(provenance.count_others(user))
    return counts


def _delete_all(user: UserProfile) -> None:
    """Delete the person's rows and the profile. Raise RowsRemain if other rows still refer to the profile."""
    try:
        for column in _owner_columns():
            rows: QuerySet[Any] = column.model._base_manager.filter(**{column.name: user.pk})
            rows._raw_delete(connection.alias)
        UserProfile.objects.filter(pk=user.pk)._raw_delete(connection.alias)
        connection.check_constraints()
    except IntegrityError as error:
        table = getattr(getattr(error.__cause__, "diag", None), "table_name", None)
        raise RowsRemain(f"Rows of {table} still refer to the person. Nothing was erased.") from None


def _find_remaining_rows(user: UserProfile) -> Counter[str]:
    """Search every table that is declared or refers to people. Return a zero for each kind, or raise RowsRemain."""
    left = _count([*_lookups_to_profile(), *((each.model, each.person) for each in declared())], user)
    left.update(_count_others(user))
    if found := +left:
        raise RowsRemain(f"Rows of these tables would remain: {', '.join(found)}. Nothing was erased.")
    return left


# --- logs, which stay ---


def _scrub_events(user: UserProfile, actor: str) -> tuple[str, int]:
    """Remove personal data from the person's events.

    Return the actor and the number of events. An actor that is an API key of the person is anonymized.
    """
    keys = [key.actor for key in ApiKey.objects.filter(user=user)]
    events = Event.objects.filter(user_pk=user.pk)
    events.filter(actor__in=keys).update(actor=f"key:{ERASED}")
    number = events.update(application=user.application_id, user_pk=None, session_pk=None, payload={})
    return f"key:{ERASED}" if actor in keys else actor, number


def _scrub_operators_log(column: "Field[Any, Any]", user: UserProfile) -> None:
    # Scrub entries about rows that no longer exist as well, because their owner is unknown.
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


def remove_archives(user_pk: int, erasure_id: str) -> None:
    """Remove a person's archive files, and record this in the event. Raise ArchiveError if files may remain."""
    archive_files.remove(str(user_pk))
    for event in Event.objects.filter(type=ERASED_EVENT, payload__erasure_id=erasure_id):
        event.payload["has_files_left"] = False
        event.save(update_fields=["payload"])


class CannotDelete(Conflict):
    """The session can't be deleted now. The message says why."""


def delete_session(session: Session, *, actor: str) -> None:
    """Delete a session of the acting user in the caller's transaction, and its archive files after the commit.

    If a file also contains other sessions, a job rewrites it. Raise OnHold if the session is under legal hold, and
    CannotDelete if it is being archived.
    """
    claimed = Session.objects.claim_archive(session.pk)
    if claimed is None:
        raise CannotDelete("The session is being archived. Try again later.")
    # The full lock prevents new rows from referring to the session.
    if Session.objects.select_for_update().get(pk=session.pk).legal_hold:
        raise OnHold("The session is under legal hold. Release the hold first.")
    Event.objects.create(
        type=DELETED_EVENT,
        actor=actor,
        user_pk=session.user_id,
        session_pk=session.pk,
        payload={"message_count": session.message_count},
    )
    folder = archive_files.folder_of(session)
    archive_files.remove_archives(session.user_id, session.archives.all())
    session.delete()
    transaction.on_commit(partial(archive_files.remove, folder), robust=True)
