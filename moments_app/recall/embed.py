"""`embed`: create missing vectors of the model in use, one batch of texts per run.

A job covers a session's turns; a person's facts, moments and stored items; or a shard's facts. Items that belong to no
person get no vectors. Text search still finds texts without a vector.

`embed_all`: embed every text with the embedded model, then activate the model for searches. It starts automatically
when a site first has an embedded model, and when the model or its recipe changes, because these vectors cost nothing.
One job covers the whole site, and continues where it stopped.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.models import Case, F, FloatField, Sum, Value, When
from django.db.models.functions import Cast, Ceil, Greatest
from django.db.models.lookups import GreaterThan
from django.db.models.signals import post_save
from django.dispatch import receiver

from moments_app import engines
from moments_app.engines import EngineFactory, embedder_name, embedding_model
from moments_app.engines.interface import EMBEDDING
from moments_app.jobs.process import (
    ClaimLost,
    InputChanged,
    Lane,
    PostponeJob,
    Process,
    ProcessInput,
    Progress,
    QueuedJobs,
    Skipped,
    Timing,
    Workload,
    locked_session,
    queue_embedding,
    tokens_of,
    turns_to_estimate,
)
from moments_app.jobs.runner import recorder
from moments_app.models import Circuit, EmbeddingModel, Job, MemoryAtom, Moment
from moments_app.models.embedding import KINDS, owner_arguments
from moments_app.models.job import CannotChange
from moments_app.recall.vectors import (
    Text,
    Vectors,
    batches,
    due_again,
    kinds,
    save_received,
    texts_of,
    vectors_in_parallel,
    without_vector,
    write,
)
from moments_app.turns.engine_input import end_of_round
from sessions_app.clock import database_now
from sessions_app.models import Message, Session

if TYPE_CHECKING:
    from moments_app.engines.embeddings import Embedder

MAX_RETRIED = 500  # maximum failed jobs per run, and maximum rejected texts of each kind
EMBED_ALL_SECONDS = 60.0  # maximum seconds per run of `embed_all`, so that other jobs can run in between
TURNS_OF_ROUND = 2.0  # average turns per call during a conversation
MEMORY_CALLS = 2.0  # average calls per session for moments and facts
MEMORY_SHARE = 0.4  # tokens of moments and facts, as a share of the session's tokens


@dataclass(frozen=True)
class EmbedInput(ProcessInput):
    job: Job
    model: EmbeddingModel  # the model in use when the job was claimed
    texts: list[Text]
    session: Session | None = None  # the session of the texts, if they are turns
    last_sequence: int = -1  # sequence number of the last turn that this run covers
    is_cut: bool = False  # whether more texts are waiting than fit into the batch


@dataclass(frozen=True)
class EmbeddingResult:
    made: Vectors
    # number of texts whose results are already written; None: the commit writes them
    written: int | None = None


class Embed(Process[EmbedInput, EmbeddingResult]):
    """Creates the vectors of a batch of texts.

    The commit writes the vectors of turns, because it also moves the session's counter. Vectors of memories are written
    before the commit. So the commit holds no lock on a text while it waits for requests that have joined the job, and
    can't cause a deadlock.
    """

    name = "embed"
    title = "Embed new texts"
    output = "new texts in searches by meaning"
    lane = Lane.INDEX
    is_upkeep = True
    sweep_timing = Timing(minutes=10)

    def engine_factory(self, job: Job) -> EngineFactory | None:
        if not settings.EMBEDDING.is_on:
            return None
        model = EmbeddingModel.objects.in_use()
        return embedding_model(model.recipe)

    def workload(self, *, everything: bool) -> Workload | None:
        """Estimate the calls of each session: two for memories, and one per batch of waiting turns.

        With `everything`, estimate one call per round instead of one per batch.
        """
        conf = settings.EMBEDDING
        if not conf.is_on:
            return None
        turns = Greatest(turns_to_estimate(F("last_sequence") - F("embedded_sequence"), everything=everything), 0)
        calls = Ceil(Cast(turns, FloatField()) / (TURNS_OF_ROUND if everything else conf.batch_size))
        memories = Case(When(GreaterThan(turns, 0), then=Value(MEMORY_CALLS)), default=Value(0.0))
        tokens = Sum(tokens_of(turns)) * (1 + MEMORY_SHARE)
        return Workload(embedder_name(conf.model), Sum(calls + memories), tokens, 0, 0, purpose=EMBEDDING)

    def claim(self, job: Job) -> EmbedInput | Skipped:
        """Read texts that have no vector: one batch for each call that can run in parallel."""
        factory = self.engine_factory(job)
        if factory is None:
            return Skipped("no embeddings provider is configured")
        model = EmbeddingModel.objects.in_use()
        # If the endpoint may be down, try it with a single call.
        size = settings.EMBEDDING.batch_size * (
            engines.MAX_CONCURRENT_CALLS if Circuit.objects.is_healthy(factory) else 1
        )
        if job.session:
            return _turns_of(job, job.session, model, size)
        found = _memories_of(job, model, size)
        if isinstance(found, Skipped) and job.is_claimed():  # waits for the requests that have joined the job
            return _memories_of(job, model, size)
        return found

    def think(self, input: EmbedInput, engine: "Embedder", progress: Progress) -> EmbeddingResult:
        """Call the endpoint, and write the vectors of memories. If some calls fail, write the vectors of the others.

        Raises:
            ClaimLost: another worker took over the job, or the job was canceled.
            EngineError: some of the calls failed.
        """
        progress(0, len(input.texts))
        answered = vectors_in_parallel(input.texts, engine, progress)
        if input.session and not answered.error:
            return EmbeddingResult(answered.made)
        written = save_received(input.model, answered.made, None if input.session else input.job)
        if answered.error:
            raise answered.error
        return EmbeddingResult(answered.made, written)

    def commit(self, job: Job, input: EmbedInput, answer: EmbeddingResult) -> None:
        """Write the vectors of turns, and complete the job. If texts were added in the meantime, queue the next job.

        Raises:
            ClaimLost: another worker took over the job, the job was canceled, or the session was deleted.
            InputChanged: another job embedded these turns in the meantime.
        """
        is_more = input.is_cut
        if input.session:
            session = locked_session(job)
            if session.embedded_sequence != input.session.embedded_sequence:
                raise InputChanged("Another job already embedded these turns.")
            Session.objects.filter(pk=session.pk).update(embedded_sequence=input.last_sequence)
            is_more |= session.last_sequence > input.last_sequence
        else:
            if not job.is_claimed():  # waits for the requests that have joined the job
                raise ClaimLost
            is_more |= isinstance(_memories_of(job, input.model, 1), EmbedInput)
        written = write(input.model, answer.made) if answer.written is None else answer.written
        refused = sum(isinstance(vector, str) for _text, vector in answer.made)
        job.complete({"embedded": written - refused, "refused": refused, "model": str(input.model)})
        if is_more:
            about = {"session": job.session} if job.session else owner_arguments(job)
            Job.objects.request(self.name, requested_by=f"job:{job.job_id}", **about)

    def is_due_after(self, session: Session, messages: Sequence[Message]) -> bool:
        conf = settings.EMBEDDING
        return conf.is_on and conf.turns and end_of_round(messages) is not None

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Restart failed embedding jobs, and resend rejected texts that are due."""
        again = resend_rejected(f"sweep:{self.name}", dry_run=dry_run)
        for job in Job.objects.filter(process=self.name, status=Job.Status.FAILED).order_by("-id")[:MAX_RETRIED]:
            again += dry_run or _restarted(job)
        return QueuedJobs(again)


def _restarted(job: Job) -> bool:
    try:
        job.restart()
    except CannotChange:  # another open job does the same work
        return False
    return True


def resend_rejected(requested_by: str, *, dry_run: bool = False) -> int:
    """Queue jobs for rejected texts that are due to be sent again. Return the number of jobs."""
    model = EmbeddingModel.objects.active().first() if settings.EMBEDDING.is_on else None
    about = _owners_of_rejected(model) if model else []
    for subject in () if dry_run else about:
        queue_embedding(requested_by, **subject)
    return len(about)


def _owners_of_rejected(model: EmbeddingModel) -> list[dict[str, Any]]:
    """Return the owners of rejected texts to send again: sessions, people and shards."""
    due = {kind: due_again(kind, model)[:MAX_RETRIED] for kind in KINDS}
    sessions = {turn.session_id: {"session": turn.session} for turn in due["turn"].prefetch_related("session")}
    sources = [*due["fact"].select_related("stream"), *due["moment"], *due["item"]]
    memories = map(owner_arguments, sources)
    return [*sessions.values(), *({str(about): about for about in memories}.values())]


@receiver(post_save, sender=Moment)
@receiver(post_save, sender=MemoryAtom)
def embed_again(
    instance: Moment | MemoryAtom, created: bool, update_fields: Collection[str] | None = None, **_: Any
) -> None:
    """Delete the vector of an edited fact or moment. If searches can still find the item, embed it again."""
    if created or (update_fields is not None and not {"summary", "detail", "content", "state"} & set(update_fields)):
        return
    kind = "moment" if isinstance(instance, Moment) else "fact"
    KINDS[kind].objects.filter(source_id=instance.pk).delete()
    queue_embedding("edit", **owner_arguments(instance))


# --- claim ---


def _turns_of(job: Job, session: Session, model: EmbeddingModel, size: int) -> EmbedInput | Skipped:
    """Read the turns after the last processed one, and rejected turns that are due."""
    own = {"session": session, "user_id": session.user_id}
    after = without_vector("turn", model).filter(**own, sequence__gt=session.embedded_sequence)
    waiting = list(after.order_by("sequence")[: size + 1])
    turns, is_cut = waiting[:size], len(waiting) > size
    again = list(
        due_again("turn", model).filter(**own, sequence__lte=session.embedded_sequence)[: size + 1 - len(turns)]
    )
    if not (turns or again):
        return Skipped("every turn already has a vector")
    last = turns[-1].sequence if is_cut else session.last_sequence
    batch = [*turns, *again][:size]
    is_cut |= len(batch) < len(turns) + len(again)
    return EmbedInput(None, job, model, texts_of(batch), session, last, is_cut)


def _memories_of(job: Job, model: EmbeddingModel, size: int) -> EmbedInput | Skipped:
    waiting: list[Any] = []
    for kind in ("fact", "moment", "item") if job.user_id else ("fact",):
        room = size + 1 - len(waiting)
        waiting += without_vector(kind, model).filter(**owner_arguments(job))[:room]
    texts = texts_of(waiting[:size])
    is_cut = len(waiting) > len(texts)
    return EmbedInput(None, job, model, texts, is_cut=is_cut) if texts else Skipped("every text already has a vector")


# --- all texts ---


@dataclass(frozen=True)
class EmbedAllInput(ProcessInput):
    model: EmbeddingModel


class EmbedAll(Process[EmbedAllInput, None]):
    name = "embed_all"
    title = "Embed older texts"
    output = "older texts in searches by meaning"
    lane = Lane.BULK
    is_upkeep = True
    sweep_timing = Timing(minutes=10)

    def engine_factory(self, job: Job) -> EngineFactory | None:
        model = incomplete_model()
        return embedding_model(model.recipe) if model else None

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Create missing vectors for up to `EMBED_ALL_SECONDS`.

        Raises:
            EngineError: the server failed.
            PostponeJob: more texts are left.
        """
        model, factory = incomplete_model(), self.engine_factory(job)
        if model is None or factory is None:
            return Skipped("every text already has a vector from the model")
        waiting = sum(without_vector(kind, model).count() for kind in kinds())
        embedder = factory.open(recorder(job, lambda _purpose: None, factory.work))
        done, until = 0, time.monotonic() + EMBED_ALL_SECONDS
        for kind in kinds():
            for texts in batches(kind, model):
                answered = vectors_in_parallel(texts, embedder)
                save_received(model, answered.made)
                if answered.error:
                    raise answered.error
                done += len(texts)
                progress(done, waiting)
                if time.monotonic() > until:
                    left = max(0, waiting - done)
                    raise PostponeJob(database_now() + timedelta(seconds=1), f"{left:,} texts to embed.")
        return None

    def claim(self, job: Job) -> EmbedAllInput | Skipped:
        """Return the model to activate. At this point, `prepare` has embedded every text with it."""
        model = incomplete_model()
        return EmbedAllInput(None, model) if model else Skipped("every text already has a vector from the model")

    def think(self, input: EmbedAllInput, engine: None, progress: Progress) -> None:
        """Do nothing, because `prepare` has called the server."""

    def commit(self, job: Job, input: EmbedAllInput, answer: None) -> None:
        if not job.is_claimed():
            raise ClaimLost
        EmbeddingModel.objects.filter(pk=input.model.pk).update(is_filled=True)
        input.model.activate()
        job.complete({"model": str(input.model)})

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Queue the job if some texts lack a vector of the embedded model."""
        if not incomplete_model():
            return QueuedJobs(0)
        if not dry_run:
            Job.objects.request(self.name, requested_by=self.name)
        return QueuedJobs(1)


def incomplete_model() -> EmbeddingModel | None:
    """Return the embedded server's model if some texts lack a vector of it."""
    model = EmbeddingModel.objects.in_use() if settings.EMBEDDING.is_embedded else None
    return None if model is None or model.is_filled else model
