"""Streams are texts about a session, a user or an agent, with the facts and observations behind them.

A new kind of memory needs a new row, but no code. The columns configure which items a stream accepts, their number and
length, and how its text is written.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Self

from django.apps import apps
from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Func, IntegerField, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from sessions_app.database.sql import insert_if_missing, insert_missing
from sessions_app.models import Application, Session, UserProfile
from sessions_app.models.application import DEFAULT

LESSONS = "lessons"


@dataclass(frozen=True)
class Defaults:
    extraction_prompt: str
    extracts_observations: bool
    extracts_facts: bool
    observation_min: int = 0
    observation_max: int = 5
    observation_max_words: int = 25
    fact_min: int = 0
    fact_max: int = 5
    fact_max_words: int = 50
    consolidation_prompt: str = ""
    consolidation_trigger: int = 5
    consolidated_max_words: int = 400
    fact_buffer_max: int = 100


SESSION_DEFAULTS = Defaults(
    extraction_prompt="What matters later in this conversation: decisions, results, numbers, names, dates, open "
    "questions. One event per statement.",
    extracts_observations=False,
    extracts_facts=True,
)
USER_DEFAULTS = Defaults(
    extraction_prompt="Lasting information about the person: preferences, how they want to be answered, their life and "
    "work. As facts: everything that has one value at a time, such as home, work, names, ages, dates, health.",
    extracts_observations=True,
    extracts_facts=True,
    consolidation_prompt="Merge the observations into the text about the person. Keep statements that are still true. "
    "If two contradict each other, keep the newer one.",
    consolidation_trigger=10,
)
SHARD_DEFAULTS = Defaults(
    extraction_prompt="",
    extracts_observations=True,
    extracts_facts=True,
    observation_max_words=35,
    fact_max_words=30,
    consolidation_prompt="Merge the observations into the text, by subject. Keep statements that are still true. If "
    "two contradict each other, keep the newer one. The text must not identify a person.",
    consolidation_trigger=16,
    consolidated_max_words=1_000,
)
LESSONS_DEFAULTS = Defaults(
    extraction_prompt="What the assistant should do differently from now on, for everybody: corrections that it "
    "received, mistakes that it made, methods that worked. Nothing about one person.",
    extracts_observations=True,
    extracts_facts=False,
    observation_max_words=35,
    consolidation_prompt="Merge the lessons into one list of instructions without repetitions. If two contradict each "
    "other, keep the newer one.",
    consolidation_trigger=16,
    consolidated_max_words=1_000,
)


def _models_allowed() -> Collection[str]:
    return {settings.ENGINE.model, *settings.MEMORY_FORMATION.stream_models}


def _count_to(maximum: int, rows: QuerySet[models.Model]) -> Func:
    return Func(ArraySubquery(rows.values("pk")[:maximum]), function="cardinality", output_field=IntegerField())


class MemoryStreamQuerySet(models.QuerySet["MemoryStream"]):
    def active(self) -> Self:
        return self.filter(is_active=True)

    def extracting(self) -> Self:
        """Return the active streams to which formations add items."""
        return self.active().filter(Q(extracts_observations=True) | Q(extracts_facts=True))

    def visible_to(self, *sessions: Session) -> Self:
        """Return the streams of a person's sessions, of the person, and of the sessions' agents."""
        first, agents = sessions[0], {session.agent_id for session in sessions}
        own = Q(stream_type=MemoryStream.Type.SESSION, session__in=sessions)
        person = Q(stream_type=MemoryStream.Type.USER, agent_id__in=agents)
        of_application = Q(stream_type=MemoryStream.Type.AGENT, application=first.application_pk)
        shards = of_application & Q(agent_id__in={"", *agents})
        return self.filter((own | person) & Q(user_id=first.user_id) | shards)

    def refresh(self) -> None:
        """Rebuild the streams' texts from their statements, and invalidate cached contexts."""
        atoms = apps.get_model("moments_app", "MemoryAtom").objects.filter(stream=OuterRef("pk"))
        pinned = Coalesce(Subquery(atoms.pinned_texts().order_by("-id").values("content")[:1]), Value(""))
        lines = ArraySubquery(atoms.lines().values("content"))
        text = Func(lines, Value("\n"), function="array_to_string", output_field=models.TextField())
        self.update(last_updated_at=timezone.now(), pinned_content=pinned, consolidated_content=text)

    def with_counts(self, maximum: int) -> Self:
        """Annotate streams with numbers of items. Count at most `maximum`, to limit the cost for huge streams.

        `waiting` is the number of waiting observations, `fresh` the number of those that no consolidation has read, and
        `facts` the number of facts. `consolidated_at` is the time of the last consolidation.
        """
        own = apps.get_model("moments_app", "MemoryAtom").objects.filter(stream=OuterRef("pk"))
        last = own.order_by("-consolidated_at").filter(consolidated_at__isnull=False).values("consolidated_at")[:1]
        atoms = own.active()
        return self.annotate(
            waiting=_count_to(maximum, atoms.waiting()),
            fresh=_count_to(maximum, atoms.fresh()),
            facts=_count_to(maximum, atoms.facts().filter(is_candidate=False)),
            consolidated_at=Subquery(last),
        )

    def ensure_for(self, *sessions: Session) -> None:
        """Create the missing streams of a person, and of some of the person's sessions."""
        user = sessions[0].user
        own = {"user": user, "stream_type": MemoryStream.Type.SESSION, **asdict(SESSION_DEFAULTS)}
        persons = {"user": user, "stream_type": MemoryStream.Type.USER, **asdict(USER_DEFAULTS)}
        streams = [MemoryStream(session=session, agent_id=session.agent_id, **own) for session in sessions]
        agents = sorted({session.agent_id for session in sessions})
        streams += [MemoryStream(agent_id=agent, **persons) for agent in agents]
        insert_missing(streams, unique_fields=["stream_id"])

    def learning_from_each(self, sessions: Sequence[Session]) -> dict[int, "list[MemoryStream]"]:
        """Return the streams to which formations add items, keyed by session. All sessions belong to one person."""
        streams = list(self.visible_to(*sessions).extracting().order_by("id"))
        return {session.pk: [stream for stream in streams if stream.learns_from(session)] for session in sessions}

    def ensure_lessons(self, session: Session) -> "list[MemoryStream]":
        """Return the active streams for lessons: that of a session's agent, and that of all agents.

        Create them if needed.
        """
        agents = ["", session.agent_id]
        lessons = {"application_id": session.application_pk, "stream_type": MemoryStream.Type.AGENT}
        lessons |= {"name": LESSONS}
        for agent in agents:
            # Only digests add items to these streams. A formation might mistake a person's remark for a general lesson.
            fields = asdict(LESSONS_DEFAULTS) | {"extracts_observations": False}
            insert_if_missing(MemoryStream(agent_id=agent, **lessons, **fields))
        return list(self.active().filter(agent_id__in=agents, **lessons).order_by("id"))

    def ensure_of_person(self, user: UserProfile, agent_id: str) -> "MemoryStream":
        scope = {"stream_type": MemoryStream.Type.USER, "agent_id": agent_id, "user": user}
        insert_if_missing(MemoryStream(**scope, **asdict(USER_DEFAULTS)))
        return self.get(**scope)

    def lists(self) -> Self:
        return self.filter(stream_type=MemoryStream.Type.USER, agent_id="")

    def ensure_list(self, user: UserProfile) -> "MemoryStream":
        """Return the stream of the tasks, goals and problems that clients wrote for a person."""
        return self.ensure_of_person(user, "")


class MemoryStream(models.Model):
    class Type(models.TextChoices):
        SESSION = "session"
        USER = "user"
        AGENT = "agent"

    stream_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    stream_type = models.CharField(max_length=16, choices=Type)
    application = models.ForeignKey(
        Application,
        null=True,
        blank=True,
        default=None,
        db_default=models.Value(DEFAULT),  # for shards that an earlier release creates during an update
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        help_text="The application that owns the shard. Blank if the stream is not a shard.",
    )
    agent_id = models.CharField(
        max_length=255, blank=True, help_text="The agent that uses the stream. If blank, every agent uses the stream."
    )
    user = models.ForeignKey(UserProfile, null=True, blank=True, on_delete=models.CASCADE, related_name="streams")
    session = models.ForeignKey(Session, null=True, blank=True, on_delete=models.CASCADE, related_name="streams")
    name = models.CharField(
        max_length=64, blank=True, help_text="Name of the shard. Blank if the stream is not a shard."
    )
    is_active = models.BooleanField(default=True)

    extraction_prompt = models.TextField(help_text="Prompt that tells the engine what to remember in this stream.")
    extracts_observations = models.BooleanField(default=True)
    extracts_facts = models.BooleanField(default=True)
    observation_min = models.PositiveSmallIntegerField(default=0)
    observation_max = models.PositiveSmallIntegerField(default=5)
    observation_max_words = models.PositiveSmallIntegerField("maximum words in an observation", default=25)
    fact_min = models.PositiveSmallIntegerField(default=0)
    fact_max = models.PositiveSmallIntegerField(default=5)
    fact_max_words = models.PositiveSmallIntegerField("maximum words in a fact", default=50)
    extraction_model = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        help_text="Model that extracts facts and observations. The model must be listed in "
        "MEMORY_FORMATION__STREAM_MODELS. If blank, ENGINE__MODEL is used.",
    )
    consolidation_prompt = models.TextField(
        blank=True,
        help_text="Prompt that tells the engine how to merge observations into the stream's text. If blank,"
        " observations are never consolidated.",
    )
    consolidation_trigger = models.PositiveSmallIntegerField(
        default=5, help_text="Number of new observations after which a consolidation starts."
    )
    consolidated_max_words = models.PositiveSmallIntegerField("maximum words in the consolidated text", default=400)
    fact_buffer_max = models.PositiveSmallIntegerField(
        "maximum facts in a context",
        default=100,
        help_text="Maximum number of facts that a context includes, newest first. Searches find all facts.",
    )

    consolidation_model = models.CharField(
        max_length=255,
        blank=True,
        help_text="Model that writes the consolidated text. If blank, ENGINE__MODEL is used.",
    )

    pinned_content = models.TextField(
        blank=True, help_text="Text that is placed before the consolidated text. Consolidations don't change this text."
    )
    consolidated_content = models.TextField(
        blank=True,
        help_text="Text of the stream, one statement per line. Consolidations merge observations into this text.",
    )
    last_updated_at = models.DateTimeField(default=timezone.now)

    objects = MemoryStreamQuerySet.as_manager()

    class Meta:
        verbose_name = "memory stream"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "agent_id", "stream_type", "session"],
                condition=Q(user__isnull=False),
                nulls_distinct=False,
                name="stream_unique_of_person",
            ),
            models.UniqueConstraint(
                fields=["application", "agent_id", "name"],
                condition=Q(stream_type="agent"),
                name="shard_unique_in_application",
            ),
            models.CheckConstraint(
                condition=~Q(stream_type="agent") | Q(application__isnull=False), name="shard_has_application"
            ),
            models.CheckConstraint(
                condition=(
                    Q(stream_type="session", user__isnull=False, session__isnull=False, name="")
                    | Q(stream_type="user", user__isnull=False, session__isnull=True, name="")
                    | (Q(stream_type="agent", user__isnull=True, session__isnull=True) & ~Q(name=""))
                ),
                name="stream_scope_fits_type",
            ),
            models.CheckConstraint(
                condition=Q(observation_min__lte=F("observation_max")) & Q(fact_min__lte=F("fact_max")),
                name="stream_limits_in_order",
            ),
        ]

    def __str__(self) -> str:
        return self.name_on_pages

    def clean(self) -> None:
        if self.extraction_model and self.extraction_model not in _models_allowed():
            raise ValidationError(
                {"extraction_model": "Use a model of MEMORY_FORMATION__STREAM_MODELS, or leave it blank."}
            )
        for kind in ("observation", "fact"):
            if (getattr(self, f"{kind}_min") or 0) > (getattr(self, f"{kind}_max") or 0):
                raise ValidationError({f"{kind}_min": "It can't be more than the maximum."})

    @property
    def uri(self) -> str:
        return f"rem://streams/{self.stream_id}"

    @property
    def label(self) -> str:
        """The name within one session: `session` or `user`; for a shard, `shard` followed by its name."""
        return f"shard {self.name}" if self.stream_type == self.Type.AGENT else str(self.stream_type)

    @property
    def name_on_pages(self) -> str:
        """The name in the admin, without the owner. The admin calls a stream a memory text."""
        names = {self.Type.SESSION: "text about the session", self.Type.USER: "text about the person"}
        return names.get(self.Type(self.stream_type), f"shared memory {self.name}")

    @property
    def title(self) -> str:
        """The name in the admin with the owner, such as `text about session s1 of ada, agent default`."""
        whose = {
            self.Type.SESSION: f"text about session {self.session} of {self.user}",
            self.Type.USER: f"text about {self.user}",
        }
        agent = f"agent {self.agent_id}" if self.agent_id else "every agent"
        return f"{whose.get(self.Type(self.stream_type), self.name_on_pages)}, {agent}"

    @property
    def application_pk(self) -> int:
        found = self.user.application_id if self.user else self.application_id
        assert found is not None  # a shard always has an application
        return found

    @property
    def own_model(self) -> str:
        """The stream's own model; blank if it uses the default, or if settings no longer allow its model."""
        allowed = self.extraction_model in _models_allowed() and settings.ENGINE.uses_model
        return self.extraction_model if allowed and self.extraction_model != settings.ENGINE.model else ""

    @property
    def is_shard(self) -> bool:
        return self.stream_type == self.Type.AGENT

    def learns_from(self, session: Session) -> bool:
        """Return whether the stream may receive items from a session's turns."""
        if self.stream_type == self.Type.SESSION:
            return self.session_id == session.pk
        return self.agent_id == session.agent_id or (self.is_shard and not self.agent_id)

    def refresh(self) -> None:
        """Rebuild the text, and invalidate cached contexts."""
        MemoryStream.objects.filter(pk=self.pk).refresh()
