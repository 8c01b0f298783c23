"""`embed`: texts that have no vector of the model in use get one, a batch a run.

A job is about a session's turns, about a person's facts and moments, or about a shard's facts. What fails to embed is
found by its words all the same; a sweep tries failed jobs again.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from moments_app.engines import Caller, embedding_model
from moments_app.engines.embeddings import Embedder
from moments_app.engines.interface import EngineError
from moments_app.jobs.process import (
    Asked,
    ClaimLost,
    Lane,
    Moved,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    Timing,
    locked_session,
)
from moments_app.models import EmbeddingModel, Job, MemoryAtom, Moment
from moments_app.models.embedding import KINDS, ask_to_embed, whose_memories
from moments_app.models.job import CannotChange
from moments_app.turns.platform_text import drop_platform_text, is_only_platform_text
from moments_app.turns.rounds import end_of_round
from sessions_app.models import Message, Session

HARMLESS = "Good morning."
SWEEP = 500  # failed jobs a run
COUNTED = 10_000  # texts of a kind
SPOKEN = (Message.Role.USER, Message.Role.ASSISTANT)

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Text:
    """Something to embed.

    Args:
        kind: a key of `KINDS`.
        pk: of the fact, moment or turn.
        user_id: primary key of its person; None for a shard's fact.
        said_at: when.
        text: what is embedded.
    """

    kind: str
    pk: int
    user_id: int | None
    said_at: datetime
    text: str


@dataclass(frozen=True)
class EmbedInput(ProcessInput):
    """The input of a run.

    Args:
        model: in use at the claim.
        texts: a batch.
        session: of the texts, where they are turns.
        last_sequence: of the session's turns that this run takes care of.
        is_cut: more is waiting than one batch takes.
    """

    model: EmbeddingModel
    texts: list[Text]
    session: Session | None = None
    last_sequence: int = -1
    is_cut: bool = False


# Texts with their vectors; None for one that the endpoint refuses by itself.
Vectors = list[tuple[Text, list[float] | None]]


class Embed(Process[EmbedInput, Vectors]):
    """Gives a batch of texts their vectors."""

    name = "embed"
    lane = Lane.INDEX
    is_upkeep = True
    sweep_timing = Timing(minutes=10)

    def caller(self, job: Job) -> Caller | None:
        """Return the endpoint of the settings, for the model in use."""
        if not settings.EMBEDDING.is_on:
            return None
        model = EmbeddingModel.objects.in_use()
        return embedding_model(model.name, model.dimensions, timeout=settings.EMBEDDING.timeout_seconds)

    def claim(self, job: Job) -> EmbedInput | Skipped:
        """Read a batch of texts that have no vector."""
        if not settings.EMBEDDING.is_on:
            return Skipped("no embeddings provider is set")
        model = EmbeddingModel.objects.in_use()
        return _turns_of(job.session, model) if job.session else _memories_of(job, model)

    def think(self, input: EmbedInput, engine: Embedder, progress: Progress) -> Vectors:
        """Call the endpoint."""
        progress(0, len(input.texts))
        return vectors_of(input.texts, engine)

    def commit(self, job: Job, input: EmbedInput, answer: Vectors) -> None:
        """Write the vectors and complete the job.

        Raises:
            ClaimLost: the job was taken over or cancelled, or the session is gone.
            Moved: these turns were taken care of meanwhile.
        """
        if input.session:
            session = locked_session(job)
            if session.embedded_to != input.session.embedded_to:
                raise Moved("These turns were embedded meanwhile.")
            Session.objects.filter(pk=session.pk).update(embedded_sequence=input.last_sequence)
        refused = sum(vector is None for _text, vector in answer)
        written = write(input.model, answer)
        if input.session is None and not job.is_claimed():
            raise ClaimLost
        job.complete({"embedded": written - refused, "refused": refused, "model": str(input.model)})
        if input.is_cut:
            about = {"session": job.session} if job.session else whose_memories(job)
            Job.objects.request(self.name, requested_by=f"job:{job.job_id}", **about)

    def after_append(self, session: Session, messages: Sequence[Message]) -> Job | None:
        """Ask for the vectors of a session's turns at the end of a round."""
        is_wanted = settings.EMBEDDING.turns and end_of_round(messages) is not None
        return ask_to_embed("append", session=session) if is_wanted else None

    def sweep(self, *, dry_run: bool = False) -> Asked:
        """Try again what failed to be embedded."""
        again = 0
        for job in Job.objects.filter(process=self.name, status=Job.Status.FAILED).order_by("-id")[:SWEEP]:
            again += dry_run or _restarted(job)
        return Asked(again)


def _restarted(job: Job) -> bool:
    try:
        job.restart()
    except CannotChange:  # another job about the same is open, and does its work
        return False
    return True


# --- what has no vector ---


def without_vector(kind: str, model: EmbeddingModel) -> QuerySet[Any]:
    """Return the sources of a kind that have no vector of a model, by primary key."""
    there = KINDS[kind].objects.filter(model=model, source_id=OuterRef("pk"))  # type: ignore[attr-defined]
    return _SOURCES[kind]().filter(~Exists(there)).order_by("pk")


@dataclass(frozen=True)
class Filled:
    """Progress of a model with a kind of text.

    Args:
        kind: a key of `KINDS`.
        vectors: texts that have one, or that the endpoint refuses.
        texts: that can have one.
        is_exact: counted; else what the database's planner reckons.
    """

    kind: str
    vectors: int
    texts: int
    is_exact: bool


def filled(model: EmbeddingModel) -> list[Filled]:
    """Tell how far a model is; large numbers are not counted, which would take seconds."""
    kinds = [kind for kind in KINDS if settings.EMBEDDING.turns or kind != "turn"]
    return [_filled(kind, model) for kind in kinds]


def _filled(kind: str, model: EmbeddingModel) -> Filled:
    embedded: QuerySet[Any] = KINDS[kind].objects.filter(model=model)  # type: ignore[attr-defined]
    if kind == "turn":  # archived ones keep their vectors, and are no source any more
        embedded = embedded.filter(source__kind=Message.Kind.TURN)
    rows = embedded, _SOURCES[kind]()
    vectors, texts = (json.loads(some.explain(format="json"))[0]["Plan"]["Plan Rows"] for some in rows)
    if max(vectors, texts) <= COUNTED:
        vectors, texts = (some[: COUNTED + 1].count() for some in rows)
    is_exact = max(vectors, texts) <= COUNTED
    return Filled(kind, min(vectors, texts), texts, is_exact)


def _facts() -> QuerySet[Any]:
    return MemoryAtom.objects.findable()


def _moments() -> QuerySet[Any]:
    return Moment.objects.defer("search_vector")


def _turns() -> QuerySet[Any]:
    spoken = Message.objects.turns().believed().filter(role__in=SPOKEN).exclude(content="")
    return spoken.exclude(is_only_platform_text())


_SOURCES: dict[str, Callable[[], QuerySet[Any]]] = {"fact": _facts, "moment": _moments, "turn": _turns}


def texts_of(sources: Sequence[Any]) -> list[Text]:
    """Return what of facts, moments or turns is embedded; of turns not what the platform itself put there."""
    turns = [source for source in sources if isinstance(source, Message)]
    others = [source for source in sources if not isinstance(source, Message)]
    return [text for text in map(_text_of, [*others, *drop_platform_text(turns)]) if text]


def _text_of(source: Any) -> Text | None:
    if isinstance(source, MemoryAtom):
        kind, said_at, text = "fact", source.formed_at, source.content
    elif isinstance(source, Moment):
        kind, said_at, text = "moment", source.ends_at, f"{source.summary}\n{source.detail}"
    else:
        kind, said_at, text = "turn", source.created_at, source.content
    text = text.strip()
    return Text(kind, source.pk, source.user_id, said_at, text) if text else None


# --- claim ---


def _turns_of(session: Session, model: EmbeddingModel) -> EmbedInput | Skipped:
    """Read turns after the last one taken care of; what has a vector already is passed over."""
    after = without_vector("turn", model).filter(
        session=session, user_id=session.user_id, sequence__gt=session.embedded_to
    )
    waiting = list(after.order_by("sequence")[: settings.EMBEDDING.batch_size + 1])
    turns = waiting[: settings.EMBEDDING.batch_size]
    if not turns:
        return Skipped("every turn has its vector")
    is_cut = len(waiting) > len(turns)
    last = turns[-1].sequence if is_cut else session.last_sequence
    return EmbedInput(None, model, texts_of(turns), session, last, is_cut)


def _memories_of(job: Job, model: EmbeddingModel) -> EmbedInput | Skipped:
    waiting: list[Any] = []
    for kind in ("fact", "moment") if job.user_id else ("fact",):
        room = settings.EMBEDDING.batch_size + 1 - len(waiting)
        waiting += without_vector(kind, model).filter(**whose_memories(job))[:room]
    texts = texts_of(waiting[: settings.EMBEDDING.batch_size])
    is_cut = len(waiting) > len(texts)
    return EmbedInput(None, model, texts, is_cut=is_cut) if texts else Skipped("every text has its vector")


# --- think ---


def vectors_of(texts: Sequence[Text], embedder: Embedder) -> Vectors:
    """Return the vectors of texts. A batch that is refused is halved, so that one bad text costs no good one.

    Raises:
        EngineError: when the endpoint gave no valid answer.
    """
    if not texts:
        return []
    try:
        return list(zip(texts, embedder.embed([text.text for text in texts]), strict=True))
    except EngineError as error:
        if error.kind != "rejected":
            raise
        if len(texts) == 1:
            if not _takes_texts(embedder):
                raise  # then it is not about this one
            logger.warning("text refused by the embeddings endpoint", kind=texts[0].kind, pk=texts[0].pk)
            return [(texts[0], None)]
    middle = len(texts) // 2
    return vectors_of(texts[:middle], embedder) + vectors_of(texts[middle:], embedder)


def _takes_texts(embedder: Embedder) -> bool:
    """Ask whether the endpoint takes a text that nobody could object to."""
    try:
        embedder.embed([HARMLESS])
    except EngineError as error:
        if error.kind == "rejected":
            return False
        raise
    return True


# --- commit ---


@transaction.atomic
def write(model: EmbeddingModel, made: Vectors) -> int:
    """Keep the vectors of texts that are still there and still the same, and note which ones are refused.

    Returns:
        How many texts that are.
    """
    written = 0
    for kind, embedding in KINDS.items():
        vectors = {text.pk: (text, vector) for text, vector in made if text.kind == kind}
        there = _SOURCES[kind]().filter(pk__in=vectors).select_for_update(no_key=True, of=("self",)).order_by("pk")
        now = texts_of(list(there))
        rows = [
            embedding(  # type: ignore[misc]  # each has a source, of its own kind
                model=model, user_id=text.user_id, source_id=text.pk, said_at=text.said_at, vector=vectors[text.pk][1]
            )
            for text in now
            if vectors[text.pk][0] == text
        ]
        embedding.objects.bulk_create(rows, ignore_conflicts=True)  # type: ignore[attr-defined]
        written += len(rows)
    return written
