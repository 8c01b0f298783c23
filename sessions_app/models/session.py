"""One conversation of one user."""

import hmac
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self
from uuid import UUID

from django.conf import settings
from django.contrib.postgres.indexes import BrinIndex
from django.db import connection, models
from django.db.models import F, Q, Sum
from django.db.models.functions import Coalesce, Now
from django.utils import timezone
from django.utils.crypto import salted_hmac

from sessions_app.database.sql import columns, insert_if_missing, read, read_first
from sessions_app.models.event import Event
from sessions_app.models.user_profile import OfPersonQuerySet, UserProfile
from sessions_app.refusals import Refusal

Name = tuple[int, str]  # primary key of the person, and the application's id of the session

LIVE = F("last_sequence") - F("live_from_sequence") + 1
DEFAULT_AGENT = "default"
CHECKED_EVERY = timedelta(minutes=30)  # how often all sessions are checked for pending work
COLD_AFTER = timedelta(minutes=10)  # after this idle time, a few turns are enough to form memory
MIN_TURNS = 4  # minimum number of new turns for a formation or digest; settling has no minimum
DIGESTED_TURNS = 8  # minimum number of live turns for a digest on request
KEEP_RECENT = 8  # number of the newest turns that stay live after a digest of an active session
UNBUILT = F("last_sequence") - Coalesce("last_moment_message_idx", -1)

_CLAIM_SQL = """
SELECT pk FROM unnest(%s::bigint[]) pk WHERE pg_try_advisory_xact_lock(hashtextextended('archive', pk))
"""
# Locks sessions in a fixed order, to avoid deadlocks between transactions that lock several.
_LOCK_SQL = """
SELECT {columns} FROM sessions_app_session s
JOIN unnest(%s::bigint[], %s::text[]) AS wanted (user_id, session_id) USING (user_id, session_id)
ORDER BY s.user_id, s.session_id FOR NO KEY UPDATE OF s
"""
_OF_PERSON_SQL = "SELECT {columns} FROM sessions_app_session s WHERE user_id = %s AND session_id = %s"


def _sequence(column: int | None) -> int:
    return -1 if column is None else column


def _column(sequence: int) -> int | None:
    return None if sequence < 0 else sequence


def _inactive_before() -> datetime:
    return timezone.now() - timedelta(minutes=settings.SESSION_COMPACTION.inactive_after_minutes)


class SessionQuerySet(OfPersonQuerySet["Session"]):
    def of_person(self, user: UserProfile, session_id: str, *, locked: bool = False) -> "Session | None":
        """Return the person's session with this id, or None. If `locked`, lock it against other writers."""
        sql = _OF_PERSON_SQL.format(columns=columns(Session, "s")) + (" FOR NO KEY UPDATE" if locked else "")
        if (found := read_first(Session, sql, [user.pk, session_id], prepared=True)) is None:
            return None
        session, _ = found
        session.user = user
        return session

    def named(self, session_id: str, user_id: str, application: int) -> Self:
        """Return a QuerySet with the session that has these ids, or an empty one."""
        return self.filter(user__application=application, user__user_id=user_id, session_id=session_id)

    def cold(self) -> Self:
        """Return sessions with enough unformed turns, idle for `COLD_AFTER` or a shorter configured idle time."""
        idle = max(timezone.now() - COLD_AFTER, _inactive_before())
        waiting = F("message_count") - F("formed_message_count")
        unformed = self.filter(message_count__gt=F("formed_message_count"), last_arrived_at__lt=idle)
        return unformed.alias(waiting=waiting).filter(waiting__gte=MIN_TURNS).order_by("last_arrived_at")

    def idle(self) -> Self:
        """Return uncleared sessions without a new message for `SESSION_COMPACTION__INACTIVE_AFTER_MINUTES`."""
        return self.filter(status=Session.Status.ACTIVE, last_arrived_at__lt=_inactive_before(), message_count__gt=0)

    def quiet(self) -> Self:
        """Return idle sessions with turns that are live or in no moment."""
        return self.idle().worth_settling()

    def worth_settling(self) -> Self:
        """Return sessions with turns that are live or in no moment, idle or not."""
        return self.alias(live_turns=LIVE, unbuilt_turns=UNBUILT).filter(Q(live_turns__gt=0) | Q(unbuilt_turns__gt=0))

    def settled_soon(self) -> Self:
        """Return sessions whose settling is due, or will be due soon unless they get a new message."""
        conf = settings.SESSION_COMPACTION
        if not conf.enabled or timedelta(minutes=conf.inactive_after_minutes) > CHECKED_EVERY * 2:
            return self.none()
        overdue = _inactive_before() - CHECKED_EVERY * 2
        return self.filter(status=Session.Status.ACTIVE, last_arrived_at__gte=overdue).worth_settling()

    def busy(self) -> Self:
        """Return active sessions with enough live turns for a digest, besides the turns that a digest leaves live."""
        lively = self.filter(status=Session.Status.ACTIVE, last_arrived_at__gte=_inactive_before())
        return lively.alias(live_turns=LIVE).filter(live_turns__gte=KEEP_RECENT + MIN_TURNS)

    def grown(self) -> Self:
        """Return sessions that have grown by a quarter since their words were last counted."""
        return self.filter(message_count__gt=F("counted_message_count") * 1.25)

    def locked(self) -> Self:
        """Lock the rows against changes. Other transactions can still read them and add references to them."""
        return self.select_for_update(no_key=True, of=("self",))

    def ensure_locked(self, wanted: "NamedSession") -> "Session":
        """Return a session and lock it. Create it if it doesn't exist."""
        # Retry, because another transaction may create or delete the session between two statements.
        while (session := self.of_person(wanted.user, wanted.session_id, locked=True)) is None:
            session = wanted.new()
            if insert_if_missing(session):
                break
        return session

    def ensure_all_locked(self, wanted: "Sequence[NamedSession]") -> "dict[Name, Session]":
        """Lock sessions, and return them, keyed by person and id. Create those that don't exist."""
        by_name = {one.name: one for one in wanted}
        if len(by_name) == 1:  # saves a query if the session is new
            return {name: self.ensure_locked(one) for name, one in by_name.items()}
        found: dict[Name, Session] = {}
        while by_name.keys() - found.keys():  # repeats if a session was deleted between two statements
            # Create all missing sessions before locking any. Otherwise, two transactions that each lock a session and
            # create another could deadlock.
            self._create_missing(by_name)
            found = self._lock_named(by_name)
        return found

    def _create_missing(self, wanted: "Mapping[Name, NamedSession]") -> None:
        people, session_ids = zip(*wanted, strict=True)
        found = self.filter(user__in=people, session_id__in=session_ids)
        existing = set(found.values_list("user_id", "session_id"))
        if missing := [one.new() for name, one in sorted(wanted.items()) if name not in existing]:
            self.bulk_create(missing, ignore_conflicts=True)

    def _lock_named(self, wanted: "Mapping[Name, NamedSession]") -> "dict[Name, Session]":
        names = [list(column) for column in zip(*wanted, strict=True)]
        found: dict[Name, Session] = {}
        for session, _ in read(Session, _LOCK_SQL.format(columns=columns(Session, "s")), names):
            name = session.user_id, session.session_id
            found[name], session.user = session, wanted[name].user
        return found

    def claim_archive(self, pk: int) -> "Session | None":
        """Claim the archives of a session. Until the transaction ends, no other process moves turns in or out of them.

        Doesn't block appends, but blocks an erasure of the person. Returns None if another process has claimed the
        session, or it no longer exists.
        """
        session = next(iter(self.claim_archives([pk])), None)
        return session if session and UserProfile.objects.protect([session.user_id]) else None

    def claim_archives(self, pks: Sequence[int]) -> "list[Session]":
        """Claim archives like `claim_archive`, but don't block erasures. Return the sessions, ordered by key."""
        with connection.cursor() as cursor:
            cursor.execute(_CLAIM_SQL, [list(pks)])
            claimed = [pk for (pk,) in cursor]
        return list(self.filter(pk__in=claimed).select_related("user").order_by("pk"))


class Session(models.Model):
    """A conversation. Its counters are updated in the transaction that changes its turns, and are never recounted."""

    class Status(models.TextChoices):
        ACTIVE = "active"
        CLEARED = "cleared"

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="sessions", db_index=False)
    session_id = models.CharField(
        max_length=255, help_text="The application's own id for the session. The id must be unique for the user."
    )
    agent_id = models.CharField(max_length=255, default=DEFAULT_AGENT)
    source = models.CharField(
        max_length=64, default="api", help_text="Where the session comes from, such as api, discord or import."
    )
    title = models.CharField(max_length=255, blank=True)
    status = models.CharField(max_length=16, choices=Status, default=Status.ACTIVE)
    message_count = models.PositiveBigIntegerField(
        default=0, help_text="Number of turns, including archived and deleted turns, but not partition events."
    )
    total_tokens = models.PositiveBigIntegerField(default=0)
    last_sequence = models.BigIntegerField(
        default=-1, help_text="Sequence number of the latest turn. −1 if the session has no turns."
    )
    last_activity_at = models.DateTimeField(
        default=timezone.now, help_text="Time of the latest message, according to the client."
    )
    last_arrived_at = models.DateTimeField(
        default=timezone.now,
        db_default=Now(),
        help_text="When the platform last received a message. The session's idle time starts then.",
    )
    last_moment_message_idx = models.BigIntegerField(
        "last turn in a moment",
        null=True,
        blank=True,
        help_text="Sequence number of the last turn that belongs to a moment.",
    )
    built_message_count = models.PositiveBigIntegerField(
        "turns at the last build",
        default=0,
        help_text="Number of turns in the session when moments were last built. Only later turns count "
        "toward the next build.",
    )
    built_total_tokens = models.PositiveBigIntegerField(
        "tokens at the last build", default=0, help_text="Number of tokens in the session when moments were last built."
    )
    weighted_tokens = models.FloatField(
        default=0,
        help_text="Number of tokens in the session. Tokens of assistant, tool and system turns count less "
        "than tokens of user turns.",
    )
    last_formation_sequence = models.BigIntegerField(
        null=True,
        blank=True,
        help_text="Sequence number of the last turn that fact extraction has processed.",
    )
    formed_message_count = models.PositiveBigIntegerField(
        default=0, help_text="Number of turns that fact extraction has processed."
    )
    formed_weighted_tokens = models.FloatField(
        default=0, help_text="Number of tokens that fact extraction has processed, weighted by the role of each turn."
    )
    counted_message_count = models.PositiveBigIntegerField(
        default=0, help_text="Number of turns in the session when the person's words were last counted."
    )
    embedded_sequence = models.BigIntegerField(
        default=-1,
        help_text="Sequence number of the last turn that was processed for searches by meaning. −1 if no "
        "turn was processed.",
    )
    summarised_sequence = models.BigIntegerField(
        "last summarized turn",
        null=True,
        blank=True,
        help_text="Sequence number of the last turn that a summary covers.",
    )
    live_from_sequence = models.BigIntegerField(
        "first live turn",
        default=0,
        help_text="Sequence number of the first live turn. Models receive live turns word for word.",
    )
    live_tokens = models.PositiveBigIntegerField(default=0)
    kept_from_sequence = models.BigIntegerField(
        "first stored turn",
        default=0,
        help_text="Sequence number of the first turn that is neither archived nor deleted.",
    )
    restored_at = models.DateTimeField(null=True, blank=True, help_text="When archived turns were last restored.")
    legal_hold = models.BooleanField(
        default=False,
        help_text="Whether the session is under legal hold, which prevents archiving and deletion.",
    )
    compact_on_request = models.BooleanField(
        null=True,
        blank=True,
        help_text="Whether to compact the session when a client loads its messages or requests a context. If blank, "
        "the setting SESSION_COMPACTION__ON_REQUEST applies.",
    )
    retraction_count = models.PositiveIntegerField(
        default=0,
        help_text="Number of retractions, plus the number of undone retractions. A running job starts again if this "
        "number changes.",
    )
    metadata = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = SessionQuerySet.as_manager()

    class Meta:
        permissions = [("preview_context", "Can preview contexts of a session")]
        constraints = [models.UniqueConstraint(fields=["user", "session_id"], name="session_unique_for_user")]
        indexes = [
            models.Index(fields=["user", "-last_activity_at", "-id"], name="session_user_activity"),
            models.Index(fields=["-last_activity_at", "-id"], name="session_activity"),
            models.Index(
                fields=["last_arrived_at"],
                condition=Q(message_count__gt=F("formed_message_count")),
                name="session_to_form",
            ),
            models.Index(
                fields=["user"], condition=Q(message_count__gt=F("counted_message_count") * 1.25), name="session_grown"
            ),
            models.Index(
                fields=["last_arrived_at", "id"],
                condition=Q(status="active"),
                name="session_not_cleared",
            ),
            models.Index(fields=["id"], condition=Q(last_sequence__gte=F("kept_from_sequence")), name="session_kept"),
            BrinIndex(fields=["created_at"], autosummarize=True, name="session_created"),
        ]

    def __str__(self) -> str:
        return self.session_id

    @property
    def application_pk(self) -> int:
        return self.user.application_id

    @property
    def live_count(self) -> int:
        return self.last_sequence - self.live_from_sequence + 1

    @property
    def built_to(self) -> int:
        """Sequence number of the last turn that is in a moment. −1 if there is none."""
        return _sequence(self.last_moment_message_idx)

    @built_to.setter
    def built_to(self, sequence: int) -> None:
        self.last_moment_message_idx = _column(sequence)

    @property
    def formed_to(self) -> int:
        """Sequence number of the last turn that a formation has processed. −1 if there is none."""
        return _sequence(self.last_formation_sequence)

    @formed_to.setter
    def formed_to(self, sequence: int) -> None:
        self.last_formation_sequence = _column(sequence)

    @property
    def summarized_to(self) -> int:
        """Sequence number of the last turn that a summary or digest covers. −1 if there is none."""
        return _sequence(self.summarised_sequence)

    @summarized_to.setter
    def summarized_to(self, sequence: int) -> None:
        self.summarised_sequence = _column(sequence)

    @property
    def wants_digest(self) -> bool:
        """Return whether loading the session or building a context must create a digest first."""
        everywhere = settings.SESSION_COMPACTION.on_request
        wanted = everywhere if self.compact_on_request is None else self.compact_on_request
        return wanted and self.live_count >= DIGESTED_TURNS

    def begin_live_window(self, sequence: int) -> None:
        """Move the start of the live window forward to this turn."""
        self.live_from_sequence = max(self.live_from_sequence, sequence)
        turns = self.messages.turns().unretracted().filter(user_id=self.user_id)
        live = turns.filter(sequence__gte=self.live_from_sequence)
        self.live_tokens = live.aggregate(total=Sum("tokens"))["total"] or 0
        self.save(update_fields=["live_from_sequence", "live_tokens"])

    def record_summary(self, sequence: int) -> None:
        """Record that a summary or a digest covers the turns up to this one."""
        if self.summarized_to < sequence:
            self.summarized_to = sequence
            self.save(update_fields=["summarised_sequence"])

    def hold(self, held: bool, *, actor: str) -> None:
        """Place the session under legal hold, or lift the hold. The actor is `key:…` or `operator:…`."""
        self.legal_hold = held
        self.save(update_fields=["legal_hold"])
        Event.objects.create(
            type="legal_hold_set" if held else "legal_hold_ended",
            actor=actor,
            user_pk=self.user_id,
            session_pk=self.pk,
        )


# --- sessions that may not exist yet ---


@dataclass(frozen=True)
class NamedSession:
    """A session that may not exist yet."""

    user: UserProfile
    session_id: str  # the application's id
    agent_id: str = ""  # `agent_id` and `source` are for a new session
    source: str = ""

    @property
    def name(self) -> Name:
        return self.user.pk, self.session_id

    def new(self) -> Session:
        given = {field: value for field in ("agent_id", "source") if (value := getattr(self, field))}
        return Session(user=self.user, session_id=self.session_id, **given)


# --- ids of contexts ---
#
# An id proves that a context was served for a session. It must be verifiable without a table, because the receipt of a
# context is written only after the response, and because a context may be requested before its session exists. So a
# part of the id is a signature of the other part and of the ids of the application, the person and the session.

_ID_SALT = "sessions_app.context_ids"
_RANDOM_BYTES = 10  # random bytes of an id; the rest of its 16 bytes is the signature
# The bits with the variant and the version of a UUID. Version 8 leaves the other bits to the application.
_FIXED = 0xF << 76 | 0x3 << 62
_VERSION_8 = 0x8 << 76 | 0x2 << 62


class UnknownContext(Refusal):
    """No context with this `context_id` was served for the session."""

    code = "unknown_context"

    def __init__(self) -> None:
        super().__init__("No context with this context_id was served for this session.")


def new_context_id(user: UserProfile, session_id: str) -> UUID:
    """Return an id for a context of a session, which may not exist yet."""
    return _signed(os.urandom(_RANDOM_BYTES), user, session_id, settings.SECRET_KEY)


def check_context_id(context_id: UUID, user: UserProfile, session_id: str) -> None:
    """Raise UnknownContext if the id doesn't belong to a context of this session."""
    drawn = context_id.bytes[:_RANDOM_BYTES]
    secrets = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    if not any(hmac.compare_digest(_signed(drawn, user, session_id, key).bytes, context_id.bytes) for key in secrets):
        raise UnknownContext


def _signed(drawn: bytes, user: UserProfile, session_id: str, secret: str) -> UUID:
    # The version and variant bits overwrite some random bits, so the signature excludes them.
    number = int.from_bytes(drawn.ljust(16, b"\0")) & ~_FIXED
    named = json.dumps([f"{number:x}", user.application_id, user.user_id, session_id])
    signature = salted_hmac(_ID_SALT, named, secret=secret, algorithm="sha256").digest()
    signed = number | int.from_bytes(signature[: 16 - _RANDOM_BYTES])
    return UUID(int=signed & ~_FIXED | _VERSION_8)
