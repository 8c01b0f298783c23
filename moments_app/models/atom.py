"""Atoms are the facts and observations of a stream, and the lines of the stream's text."""

import hashlib
import uuid
from collections.abc import Collection
from datetime import UTC, datetime, tzinfo
from typing import Any, ClassVar, Self, cast

from django.apps import apps
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Exists, F, Func, OuterRef, Q
from django.db.models.expressions import Col, Value
from django.db.models.functions import Greatest
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone
from django.utils.text import Truncator

from moments_app.engines.statements import NAME, kind_of, statement_of, worth_of
from moments_app.engines.statements.dates import plan_ends, start_in
from moments_app.engines.statements.named_people import USER, relationship_of, with_first_names
from moments_app.engines.words import words_of
from moments_app.models.correction import SHOWN_COLUMNS, Cause, StatementChange
from moments_app.models.job import Job
from moments_app.models.known_person import SELF, KnownPerson
from moments_app.models.prompt import PromptVersion
from moments_app.models.stream import LESSONS, MemoryStream
from sessions_app.lexemes import VERSION
from sessions_app.models import Session, UserProfile
from sessions_app.models.searched import Searched, SearchedQuerySet

BY_DATE = "date"  # value of `ended_by` for a plan whose day has passed
BY_IMPORT = "import:"  # prefix of `written_by` and `ended_by` for facts imported from another system
SHARED_NAMES_NOBODY = "Send a shared item without related_users. Shared items can't name people."
# Attributes of texts that a client or operator wrote into a profile. The last two can have many values.
PROFILE_ATTRIBUTES = SUMMARY, INTEREST, TOPIC = "summary", "interest", "topic"
PINNED_TEXT = "text"  # attribute of a text that a client or operator pinned to a stream
WRITTEN_ATTRIBUTES = (*PROFILE_ATTRIBUTES, PINNED_TEXT)
TEXT_ATTRIBUTES = (SUMMARY, PINNED_TEXT)  # attributes of texts with several sentences instead of one fact
_SENTENCES = {INTEREST: "User is interested in {}.", TOPIC: "User likes to talk about {}."}

# The kinds of statements that are listed as entities.
ENTITY_KINDS = ("task", "goal", "problem")
ATOMS, ENTITIES = "rem://atoms/", "rem://entities/"  # prefixes of addresses; an entity has one address with each prefix
DROPPED = "dropped"  # `value` of a task, goal or problem that ended without being done
CHANGED = Greatest("formed_at", "ended_at")  # when a statement was formed or ended, whichever is later

# The subject of a statement, keyed by the type of its stream.
ABOUT = {MemoryStream.Type.USER: "user", MemoryStream.Type.AGENT: "agent", MemoryStream.Type.SESSION: "session"}


def true_at(columns: str, time: str) -> str:
    """Return the SQL condition that a statement was known to be true at a time: it was made, and no end was known.

    The database functions for searches as of a given time contain the same condition.

    Args:
        columns: the prefix of the columns, such as `atom.`.
        time: the SQL expression of the time.
    """
    return (
        f"{columns}formed_at <= {time} AND COALESCE({columns}corrected_at <= {time}, true) "
        f"AND COALESCE({columns}valid_from <= {time}, true) "
        f"AND NOT COALESCE({columns}valid_until <= {time} AND {columns}ended_at <= {time}, false)"
    )


class TrueAt(Func):
    """The condition `true_at` as an expression for querysets."""

    output_field = models.BooleanField()

    def __init__(self, time: datetime) -> None:
        super().__init__(F("pk"), Value(time))

    def as_sql(  # type: ignore[override]
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any
    ) -> tuple[str, list[Any]]:
        column, time = self.get_source_expressions()
        table = compiler.quote_name_unless_alias(cast("Col", column).alias)
        sql = true_at(f"{table}.", "%s")
        return f"({sql})", [cast("Value", time).value] * sql.count("%s")


def content_hash(text: str) -> str:
    """Return a hash of the words of a text. Texts with the same words (`words_of`) have the same hash."""
    return hashlib.sha256(" ".join(words_of(text)).encode()).hexdigest()


def id_hash(atom_id: uuid.UUID) -> str:
    """Return the `content_hash` of an entity that a client wrote.

    This is a hash of the id instead of the words, because two entities may have the same words.
    """
    return hashlib.sha256(str(atom_id).encode()).hexdigest()


def profile_sentence(attribute: str, text: str) -> str:
    return _SENTENCES.get(attribute, "{}").format(text)


def _text_of(attribute: str, sentence: str) -> str:
    before, _, after = _SENTENCES.get(attribute, "").partition("{}")
    return sentence.removeprefix(before).removesuffix(after) if attribute not in TEXT_ATTRIBUTES else ""


class MemoryAtomQuerySet(SearchedQuerySet["MemoryAtom"]):
    def active(self) -> Self:
        return self.filter(state=MemoryAtom.State.ACTIVE)

    def in_shards_from(self, user: UserProfile) -> Self:
        """Return a person's items in agents' shards: candidates, and shared items learned from this person."""
        theirs = Q(source_user=user) | Q(source_session__user=user) | Q(job__user=user)
        return self.filter(Q(theirs, user=None) | Q(user=user, is_candidate=True))

    def of_person(self, user: UserProfile) -> Self:
        return self.filter(user=user, is_candidate=False)

    def candidates(self) -> Self:
        """Return items that a shard learned from one person. Only this person sees them, unless they are released."""
        return self.filter(is_candidate=True)

    def to_review(self) -> Self:
        """Return undecided candidates.

        Omit a candidate in a shard for all agents if the shard of one agent has the same candidate.
        """
        twins = (
            self.model.objects.active()
            .candidates()
            .filter(user=OuterRef("user"), content_hash=OuterRef("content_hash"), stream__name=OuterRef("stream__name"))
        )
        in_agent_shard = Q(stream__agent_id="") & Exists(twins.exclude(stream__agent_id=""))
        return self.active().candidates().filter(reviewed_at=None).exclude(in_agent_shard)

    def visible_to(self, user: UserProfile | None) -> Self:
        """Return the items visible to a person: their own items, and shared items that are not evicted."""
        shared = Q(user=None) & ~Q(state=MemoryAtom.State.EVICTED)
        return self.filter(shared | Q(user=user) if user else shared)

    def about(self, user: UserProfile) -> Self:
        return self.filter(user__application=user.application_id, related_users__contains=[user.user_id])

    def duplicates_of(self, atom: "MemoryAtom") -> Self:
        """Return the active item with the same words, stream and owner as this one, if there is one."""
        return self.active().filter(stream=atom.stream_id, user=atom.user_id, content_hash=atom.content_hash)

    def statements_of(self, user: UserProfile | None) -> Self:
        return self.findable().for_user(user)

    def current(self) -> Self:
        """Return the facts not known to have ended."""
        return self.filter(state__in=[MemoryAtom.State.ACTIVE, MemoryAtom.State.ABSORBED])

    def planned(self) -> Self:
        return self.current().filter(kind=MemoryAtom.Kind.PLAN, valid_until__isnull=False)

    def past_plans(self) -> Self:
        """Return plans whose day has passed, but which are not marked as ended yet."""
        return self.planned().filter(valid_until__lte=timezone.now())

    def as_of(self, time: datetime) -> Self:
        """Return the statements that were known to be true at a time."""
        return self.findable().filter(TrueAt(time))

    def of_timeline(self, user: int, subject_filter: Q, attribute: str) -> Self:
        """Return the history of a person's attribute: its facts, oldest first.

        Exclude wrong facts, and facts ended by an import, because the order in which they were learned doesn't show
        which fact replaced them.
        """
        facts = self.findable().filter(subject_filter, user=user, attribute=attribute, is_candidate=False)
        return facts.filter(is_wrong=False).exclude(ended_by__startswith=BY_IMPORT).in_order()

    def written_directly(self) -> Self:
        """Return items that a client or operator wrote directly. They have no source turns."""
        return self.filter(engine="", source_message_ids=[], release=None)

    def facts(self) -> Self:
        return self.filter(atom_type=MemoryAtom.Type.FACT)

    def observations(self) -> Self:
        return self.filter(atom_type=MemoryAtom.Type.OBSERVATION)

    def findable(self) -> Self:
        """Return the searchable items: all except evicted items and the lines of texts."""
        return self.exclude(state__in=[MemoryAtom.State.EVICTED, MemoryAtom.State.LINE])

    def lines(self) -> Self:
        """Return the lines of texts in order. `carries` has the primary keys of the items merged into a line."""
        parts = MemoryAtom.objects.filter(merged_into=OuterRef("pk"), state=MemoryAtom.State.ABSORBED).in_order()
        lines = self.filter(state=MemoryAtom.State.LINE).order_by("position", "id")
        return lines.annotate(carries=ArraySubquery(parts.values("pk")))

    def written_since(self, time: datetime) -> Self:
        """Return the lines that consolidations wrote since a time, including former lines."""
        return self.filter(position__isnull=False, consolidated_at__gte=time).exclude(engine="")

    def waiting(self) -> Self:
        """Return the observations that wait for the next consolidation of the text."""
        return self.active().observations().unpinned().filter(is_candidate=False)

    def fresh(self) -> Self:
        """Return the waiting observations that no consolidation has read yet. They make the next consolidation due."""
        return self.waiting().filter(consolidated_at=None)

    def names_of_user(self, user: int) -> frozenset[str]:
        """Return the names that facts use for a user: those in `USER`, and the stated full and first names."""
        facts = self.findable().filter(user=user, attribute=NAME, subject__in=USER, is_candidate=False, is_wrong=False)
        return with_first_names(facts.values_list("value", flat=True)).union(USER)

    def of_profile(self) -> Self:
        return self.filter(attribute__in=PROFILE_ATTRIBUTES)

    def about_user(self) -> Self:
        """Return statements about the user, including those about relatives and friends."""
        return self.filter(about_kind=MemoryAtom.About.USER)

    def about_known(self, key: str) -> Self:
        """Return statements about the known person with this key, or about the user if the key is `SELF`."""
        return self.about_user() if key == SELF else self.filter(about__key=key, about__user=F("user"))

    def pinned_texts(self) -> Self:
        return self.active().filter(is_pinned=True, attribute=PINNED_TEXT)

    def in_profile(self) -> Self:
        """Exclude directly written texts.

        Order the other items: pinned items first, then by worth, then newest first.
        """
        return self.exclude(attribute__in=WRITTEN_ATTRIBUTES).order_by("-is_pinned", "-worth", "-formed_at", "-id")

    def in_contexts(self, stream: MemoryStream) -> Self:
        """Return the newest facts of a stream, which every context includes. Searches find the others."""
        facts = (
            self.filter(stream=stream, is_candidate=False).facts().unpinned().exclude(attribute__in=WRITTEN_ATTRIBUTES)
        )
        return facts.newest_first()[: stream.fact_buffer_max]

    def unpinned(self) -> Self:
        """Return the items that a consolidation may change."""
        return self.filter(is_pinned=False)

    def with_rag_indexed(self) -> Self:
        """Annotate items with `rag_indexed`: whether semantic search can find the item."""
        embeddings = apps.get_model("moments_app", "FactEmbedding").objects
        vectors = embeddings.filter(source_id=OuterRef("pk"), model__is_active=True, vector__isnull=False)
        return self.annotate(rag_indexed=Exists(vectors))

    def change(self, action: str, cause: Cause, **columns: Any) -> int:
        """Update statements, and record the changes in their history. Return the number of statements."""
        atoms = list(self.order_by("pk").select_for_update(no_key=True, of=("self",)))
        self.model.objects.filter(pk__in=[atom.pk for atom in atoms]).update(**columns)
        values = {
            cast("models.Field[Any, Any]", self.model._meta.get_field(name)).attname: getattr(value, "pk", value)
            for name, value in columns.items()
        }
        changes = [
            (atom, {name: was for name in values if (was := getattr(atom, name)) != values[name]}) for atom in atoms
        ]
        StatementChange.objects.record(action, cause, [(atom, before) for atom, before in changes if before])
        return len(atoms)

    def evict(self, cause: Cause) -> None:
        """Remove these items from all contexts and searches. The rows remain, with their sources."""
        ids = list(self.values_list("pk", flat=True))
        MemoryAtom.objects.filter(pk__in=ids).change(
            StatementChange.Action.EVICTED, cause, state=MemoryAtom.State.EVICTED
        )
        # Semantic search finds every item with a vector.
        apps.get_model("moments_app", "FactEmbedding").objects.filter(source_id__in=ids).delete()

    def newest_first(self) -> Self:
        return self.order_by("-formed_at", "-id")

    def older_than(self, atom: "MemoryAtom") -> Self:
        """Return the items that follow this one in the order of `newest_first`."""
        earlier = Q(formed_at__lt=atom.formed_at) | Q(formed_at=atom.formed_at, pk__lt=atom.pk)
        return self.filter(earlier, formed_at__lte=atom.formed_at)  # the last condition makes PostgreSQL use the index

    def without_repeats(self) -> Self:
        """Exclude a person's items if a later one has the same words."""
        same = self.filter(content_hash=OuterRef("content_hash"), user=OuterRef("user"))
        later = Q(formed_at__gt=OuterRef("formed_at")) | Q(formed_at=OuterRef("formed_at"), pk__gt=OuterRef("pk"))
        return self.exclude(Exists(same.filter(later)))

    def in_order(self) -> Self:
        return self.order_by("formed_at", "id")


class MemoryAtom(Searched):
    """A fact, an observation that waits for a consolidation, or a line of the stream's text."""

    class Type(models.TextChoices):
        OBSERVATION = "observation"
        FACT = "fact"

    class Kind(models.TextChoices):
        IDENTITY = "identity"
        RELATIONSHIP = "relationship"
        HOME = "home"
        WORK = "work"
        HEALTH = "health"
        PREFERENCE = "preference"
        INSTRUCTION = "instruction"
        PLAN = "plan"
        TASK = "task"
        GOAL = "goal"
        PROBLEM = "problem"
        EVENT = "event"
        LESSON = "lesson"
        OTHER = "other"

    class About(models.TextChoices):
        USER = "user"
        PERSON = "person"
        AGENT = "agent"
        SESSION = "session"

    class State(models.TextChoices):
        ACTIVE = "active"
        ABSORBED = "absorbed"
        ENDED = "ended"
        EVICTED = "evicted"
        LINE = "line"

    # Names of the states in the admin.
    STATES: ClassVar[dict[str, str]] = {
        State.ACTIVE: "in memory",
        State.ABSORBED: "merged",
        State.ENDED: "ended",
        State.EVICTED: "removed",
        State.LINE: "line of a text",
    }

    stream = models.ForeignKey(MemoryStream, on_delete=models.CASCADE, related_name="atoms", db_index=False)
    atom_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(  # blank if shared by all users of the shard
        UserProfile, null=True, blank=True, on_delete=models.CASCADE, related_name="atoms", db_index=False
    )
    is_candidate = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Whether a shard learned the item from one person. If true, only this person can see the item. A "
        "release creates a separate item for other people.",
    )
    reviewed_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When an operator decided whether to release the candidate. Blank if no operator has decided.",
    )
    atom_type = models.CharField(max_length=16, choices=Type)
    kind = models.CharField(
        max_length=16,
        choices=Kind,
        default=Kind.OTHER,
        db_default=Kind.OTHER,
        help_text="What kind of information the item contains.",
    )
    about_kind = models.CharField(
        max_length=16,
        choices=About,
        default=About.SESSION,
        db_default=About.SESSION,
        editable=False,
        help_text="What the item is about: the user, another person, the agent, or the topic of a session.",
    )
    about = models.ForeignKey(
        KnownPerson,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="statements",
        db_index=False,
        editable=False,
        help_text="The known person whom the item is about. Blank if the item is not about a known person.",
    )
    speaker = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="Name or role of the speaker whose words the item is based on. Blank if the item was "
        "written directly.",
    )
    content = models.TextField()
    content_hash = models.CharField(max_length=64, editable=False)
    state = models.CharField(max_length=16, choices=State, default=State.ACTIVE)
    merged_into = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="parts",
        editable=False,
        db_index=False,
        help_text="Line that contains the item, in the stream's text. Blank if no line contains the item.",
    )
    position = models.PositiveIntegerField(
        null=True,
        blank=True,
        editable=False,
        help_text="Position of the line in the stream's text. Blank if the item is not a line.",
    )
    consolidated_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="For a line: when a consolidation wrote it. For other items: when a consolidation first processed "
        "them.",
    )
    formed_at = models.DateTimeField(default=timezone.now, help_text="When the item was said or written.")
    created_at = models.DateTimeField(auto_now_add=True)
    is_pinned = models.BooleanField(
        "pinned",
        default=False,
        help_text="Jobs never change or consolidate a pinned item, and every context includes it.",
    )
    access_count = models.PositiveIntegerField(
        default=0, help_text="Number of times that a search has returned the item."
    )
    last_accessed_at = models.DateTimeField(null=True, blank=True)
    source_session = models.ForeignKey(Session, null=True, blank=True, on_delete=models.SET_NULL, related_name="atoms")
    source_message_ids = ArrayField(models.BigIntegerField(), default=list, blank=True)
    source_user = models.ForeignKey(
        UserProfile,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="The person from whom a shard learned the item. When the person is erased, the item is deleted.",
    )
    related_users = ArrayField(
        models.CharField(max_length=255),
        default=list,
        db_default=[],
        blank=True,
        help_text="The user_ids of other people whom the item is about. These people don't get access to the item.",
    )
    subject = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="The person or thing that the item describes. Blank if unknown.",
    )
    attribute = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="The attribute that the item states, such as home, work or name. Blank if the item states"
        " no attribute.",
    )
    value = models.CharField(max_length=255, blank=True, default="", db_default="", editable=False)
    valid_from = models.DateTimeField(null=True, blank=True, help_text="When the item became true. Blank if unknown.")
    valid_until = models.DateTimeField(
        null=True, blank=True, help_text="The item is true until this time. Blank if no end is known."
    )
    due_at = models.DateTimeField(
        "due",
        null=True,
        blank=True,
        help_text="When the task or goal is due. Blank if unknown.",
    )
    ended_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When it became known that the item had ended. Blank if the item has not ended.",
    )
    ended_by = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="What ended the item, such as an API key (key:…), an operator (operator:…) or an engine "
        "(engine:…). Blank if a later item about the same subject ended it, or if it has not ended.",
    )
    end_message_ids = ArrayField(models.BigIntegerField(), default=list, blank=True, db_default=[], editable=False)
    replaced_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", editable=False, db_index=False
    )
    is_wrong = models.BooleanField(
        "never true",
        default=False,
        db_default=False,
        editable=False,
        help_text="True if a correction established that the item was never true.",
    )
    corrected_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Time of the correction that created this item. Blank if this item is not a correction.",
    )
    confidence = models.FloatField(
        null=True,
        blank=True,
        editable=False,
        help_text="The engine's confidence that the item is true, from 0 to 1. Blank if unknown.",
    )
    worth = models.FloatField(
        default=0.0,
        db_default=0.0,
        editable=False,
        help_text="Estimate of how long the item stays true and useful, from 0 (shortest) to 1 (longest).",
    )
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="atoms")
    prompt_version = models.ForeignKey(PromptVersion, null=True, blank=True, on_delete=models.SET_NULL)
    engine = models.CharField(
        max_length=255,
        blank=True,
        help_text="The engine that wrote the item. Blank if an operator or a client wrote the item directly.",
    )
    written_by = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="The API key (key:…) or operator (operator:…) that wrote the item directly. Blank if an "
        "engine wrote the item, or if the author is unknown.",
    )
    external_id = models.CharField(  # noqa: DJ001 (unique where it is set)
        max_length=255,
        null=True,
        blank=True,
        editable=False,
        help_text="The client's own id for the item. Blank if the client gave none.",
    )

    carries: list[int]  # set on lines by `MemoryAtomQuerySet.lines`

    objects = MemoryAtomQuerySet.as_manager()

    class Meta:
        verbose_name = "memory atom"
        constraints = [
            models.UniqueConstraint(
                fields=["stream", "user", "content_hash"],
                condition=Q(state="active"),
                nulls_distinct=False,
                name="atom_unique_of_person_while_active",
            ),
            models.UniqueConstraint(
                fields=["stream", "user", "external_id"],
                condition=Q(external_id__isnull=False),
                nulls_distinct=False,
                name="atom_external_id_unique_of_person",
            ),
            models.CheckConstraint(
                condition=Q(is_candidate=False) | Q(user__isnull=False), name="atom_candidate_has_person"
            ),
            models.CheckConstraint(
                condition=Q(related_users=[]) | Q(user__isnull=False), name="atom_shared_names_nobody"
            ),
            models.CheckConstraint(
                condition=~Q(state="ended") | Q(valid_until__isnull=False, ended_at__isnull=False),
                name="atom_ended_says_when",
            ),
        ]
        indexes = [
            models.Index(
                fields=["stream", "is_candidate", "state", "atom_type", "formed_at", "id"], name="atom_in_stream"
            ),
            models.Index(fields=["user", "id"], condition=Q(is_candidate=True), name="atom_candidates"),
            models.Index(
                fields=["id"],
                condition=Q(is_candidate=True, state="active", reviewed_at__isnull=True),
                name="atom_to_review",
            ),
            models.Index(fields=["user", "-formed_at", "-id"], name="atom_user_newest"),
            models.Index(
                fields=["user", "-is_pinned", "-worth", "-formed_at", "-id"],
                condition=Q(state__in=["active", "absorbed"], about_kind="user", is_candidate=False),
                name="atom_in_profile",
            ),
            models.Index(
                fields=["stream", "-consolidated_at"],
                condition=Q(consolidated_at__isnull=False),
                name="atom_consolidated",
            ),
            models.Index(
                fields=["stream"],
                condition=Q(
                    state="active",
                    atom_type="observation",
                    is_pinned=False,
                    consolidated_at__isnull=True,
                    is_candidate=False,
                ),
                name="atom_fresh",
            ),
            models.Index(fields=["stream", "position"], condition=Q(state="line"), name="atom_lines"),
            models.Index(fields=["merged_into"], condition=Q(merged_into__isnull=False), name="atom_merged_into"),
            models.Index(fields=["stream"], condition=Q(state="active", is_pinned=True), name="atom_pinned"),
            models.Index(fields=["user", "id"], condition=Q(search_version__lt=VERSION), name="atom_unindexed"),
            GinIndex(fields=["related_users"], condition=~Q(related_users=[]), name="atom_related"),
            models.Index(
                fields=["user", "attribute", "subject", "formed_at"], condition=~Q(attribute=""), name="atom_timeline"
            ),
            models.Index(
                fields=["user", "content_hash"], condition=Q(state__in=["active", "absorbed"]), name="atom_said_again"
            ),
            models.Index(fields=["user", "-formed_at", "-id"], condition=Q(state="ended"), name="atom_ended"),
            models.Index(
                fields=["user", "-ended_at", "-id"], condition=Q(ended_at__isnull=False), name="atom_user_ended"
            ),
            models.Index(fields=["replaced_by"], condition=Q(replaced_by__isnull=False), name="atom_replaced_by"),
            models.Index(
                fields=["about", "-is_pinned", "-worth", "-formed_at", "-id"],
                condition=Q(about__isnull=False),
                name="atom_about",
            ),
            models.Index(
                F("user"),
                CHANGED.desc(),
                F("id").desc(),
                condition=Q(kind__in=ENTITY_KINDS, is_candidate=False),
                name="atom_entities",
            ),
        ]

    def __str__(self) -> str:
        return Truncator(self.content).chars(80)

    def save(self, *args: object, **kwargs: object) -> None:
        self._set_hash()
        super().save(*args, **kwargs)

    def _set_hash(self) -> None:
        if not self.is_listed:
            self.content_hash = content_hash(self.content)

    @property
    def is_listed(self) -> bool:
        """True if a client wrote or reworded the item as a task, goal or problem."""
        return self.content_hash == id_hash(self.atom_id)

    def save_edit(self, cause: Cause, update_fields: Collection[str] | None = None) -> None:
        was = MemoryAtom.objects.get(pk=self.pk)
        self.save(update_fields=update_fields)
        before = {name: getattr(was, name) for name in SHOWN_COLUMNS if getattr(was, name) != getattr(self, name)}
        StatementChange.objects.record(StatementChange.Action.EDITED, cause, [(self, before)])

    def describe(self) -> Self:
        """Set the subject, attribute, value, dates, kind and worth from the content. Return the item."""
        if self.state == self.State.LINE:  # these fields are set on the merged items instead
            return self
        if self.about_kind != self.About.PERSON:
            self.about_kind = ABOUT[MemoryStream.Type(self.stream.stream_type)]
        if self.attribute in WRITTEN_ATTRIBUTES:
            self.value = _text_of(self.attribute, self.content)[:255]
            self.kind = self.Kind.OTHER if self.attribute in TEXT_ATTRIBUTES else self.Kind.PREFERENCE
            return self
        is_relative = self.about_kind == self.About.PERSON and bool(relationship_of(self.subject, self.content))
        statement = None if is_relative else statement_of(self.content)
        if statement:
            self.subject, self.attribute = statement.subject[:255], statement.attribute[:64]
        else:  # keep the engine's subject if the content still contains it
            self.subject, self.attribute = self.subject if self.subject in self.content else "", ""
        self.value = statement.value[:255] if statement and not statement.is_over else ""
        if statement and self.valid_from is None:
            begins = self.formed_at if statement.is_new else None
            self.valid_from = start_in(self.content, self.formed_at, self.zone) or begins
        self.worth = worth_of(self.content)
        if self.kind == self.Kind.OTHER:
            self.kind = self.Kind.LESSON if self.stream.name == LESSONS else kind_of(self.content)
        self.valid_until = self.valid_until or self.planned_until
        return self

    @property
    def is_planned(self) -> bool:
        """True if the item is a plan with a day, and was not ended for another reason."""
        ended_otherwise = self.ended_at is not None and self.ended_by != BY_DATE
        return self.kind == self.Kind.PLAN and self.valid_until is not None and not ended_otherwise

    @property
    def planned_until(self) -> datetime | None:
        """The end of the plan's day in the person's time zone; None if the item is not a plan or has no day."""
        if self.kind != self.Kind.PLAN or statement_of(self.content):
            return None
        return plan_ends(self.content, self.formed_at, self.zone)

    @property
    def zone(self) -> tzinfo:
        return self.user.zone if self.user else UTC

    def clean(self) -> None:
        """Check the unique constraint. Django can't, because the hash is not a field of the form."""
        self._set_hash()
        same = MemoryAtom.objects.duplicates_of(self)
        if self.state == self.State.ACTIVE and same.exclude(pk=self.pk).exists():
            raise ValidationError({"content": "The memory text already has an item with these words."})
        if self.related_users and self.user_id is None:
            raise ValidationError({"related_users": SHARED_NAMES_NOBODY})

    @property
    def source_count(self) -> int:
        return len(self.source_message_ids)

    @property
    def state_in_words(self) -> str:
        return self.STATES[self.state]

    @property
    def uri(self) -> str:
        return f"{ATOMS}{self.atom_id}"

    @property
    def uris(self) -> set[str]:
        return {f"{ATOMS}{self.atom_id}"} | ({f"{ENTITIES}{self.atom_id}"} if self.kind in ENTITY_KINDS else set())
